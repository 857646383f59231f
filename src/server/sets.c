/*
 * sets.c
 *		Sets of rows that sessions restrict exact searches to.
 *
 * A session owns the word that says whether its set is still needed
 * (protocol.h, "sets of rows"), so no message is needed to end a set. Sets have
 * SET_MEMORY_BYTES in all. Bitmaps are used by the main thread alone: engines
 * copy them in submit.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/bits.h"
#include "server/server.h"

#define NO_SET(error, name) \
	engine_error(error, ENGINE_NOT_FOUND, "there is no set %llu of rows", \
				 (unsigned long long) (name)->id)

/* Whether a set's session still has it, and its mirror is there. */
static bool
set_is_needed(const Server *server, const HeldSet *set)
{
	size_t		place = (size_t) (set - server->sets);
	const RequestPayload *payload = server_payload(server, (uint32_t) (place / REQUEST_SETS));
	const HeldMirror *mirror = &server->mirrors[set->entry];

	return atomic_load(&payload->sets[place % REQUEST_SETS]) == set->id && mirror->id != 0 &&
		mirror->generation == set->generation;
}

static void
set_free(Server *server, HeldSet *set)
{
	server->sets_bytes -= bits64_bytes(set->slots);
	server->sets_held--;
	free(set->words);
	*set = (HeldSet) {0};
}

/* Free the sets that no session needs, and those of mirrors that went. */
void
sets_sweep(Server *server)
{
	for (size_t i = 0; server->sets_held > 0 && i < (size_t) server->layout.slots * REQUEST_SETS;
		 i++)
		if (server->sets[i].id != 0 && !set_is_needed(server, &server->sets[i]))
			set_free(server, &server->sets[i]);
}

/* The place of a set; NULL: there is no such place, or no id. */
static HeldSet *
set_place(const Server *server, const SetName *name)
{
	return name->id != 0 && name->place < (uint64_t) server->layout.slots * REQUEST_SETS
		? &server->sets[name->place] : NULL;
}

/* Restrict a query of an entry's mirror to a set of rows, if it names one. */
EngineStatus
set_restrict(const Server *server, const SetName *name, uint32_t entry, EngineQuery *query,
			 EngineError *error)
{
	const HeldSet *set = set_place(server, name);

	if (name->id == 0)
		return ENGINE_OK;
	if (set == NULL || set->id != name->id || set->entry != entry || !set_is_needed(server, set))
	{
		NO_SET(error, name);
		return ENGINE_NOT_FOUND;
	}
	query->filter = set->words;
	query->filter_slots = set->slots;
	return ENGINE_OK;
}

/* Make an empty set in a place, instead of one that was there. */
static EngineStatus
set_make(Server *server, const ChannelRequest *request, HeldSet *set, EngineError *error)
{
	size_t		bytes = bits64_bytes(request->set_slots);
	HeldSet		made = {request->query.set.id, request->mirror, request->mirror_generation,
						request->set_slots, NULL};

	if (held_find(server, request->mirror, request->mirror_generation, error) == NULL)
		return error->status;
	if (request->set_slots < 1 || request->set_slots > ENGINE_MAX_SLOTS)
		return engine_error(error, ENGINE_INVALID, "a set of rows has %u slots",
							request->set_slots);
	if (set->id != 0)
		set_free(server, set);
	if (server->sets_bytes + bytes > SET_MEMORY_BYTES)
		sets_sweep(server);
	if (server->sets_bytes + bytes <= SET_MEMORY_BYTES)
		made.words = calloc(1, bytes);
	if (made.words == NULL)
		return engine_error(error, ENGINE_NO_MEMORY,
							"no memory for a set of rows of %zu bytes: %llu of %llu are used",
							bytes, (unsigned long long) server->sets_bytes,
							(unsigned long long) SET_MEMORY_BYTES);
	*set = made;
	server->sets_bytes += bytes;
	server->sets_held++;
	return ENGINE_OK;
}

/* Add a part that is a list of slots; false if one is out of range. */
static bool
set_add_slots(HeldSet *set, const void *data, uint32_t count)
{
	const volatile uint32_t *slots = data;

	for (uint32_t i = 0; i < count; i++)
	{
		uint32_t	slot = slots[i];	/* read once: the client could change it */

		if (slot >= set->slots)
			return false;
		bit64_set(set->words, slot);
	}
	return true;
}

/* Add a part that is a bitmap, whose range was checked. */
static void
set_add_bits(HeldSet *set, const unsigned char *bits, uint32_t first, uint32_t count)
{
	uint64_t   *words = set->words + first / 64;

	for (uint32_t i = 0; i < (count + 63) / 64; i++)
	{
		uint64_t	word;

		memcpy(&word, bits + (size_t) i * sizeof(word), sizeof(word));
		if (count - i * 64 < 64)
			word &= (UINT64_C(1) << (count - i * 64)) - 1;
		words[i] |= word;
	}
}

/* Check a part, and add it to its set. */
static EngineStatus
set_add_part(const Server *server, uint32_t number, HeldSet *set, EngineError *error)
{
	const ChannelRequest *request = &server->channels[number].request;
	const unsigned char *data = server_channel_data(server, number);
	uint32_t	first = request->first_slot;
	uint32_t	count = request->count;
	bool		fits = false;

	if (request->arrays == SET_SLOTS)
		fits = count <= SET_PART_SLOTS &&
			channel_holds(server, request->slots_offset, count, sizeof(uint32_t)) &&
			set_add_slots(set, data + request->slots_offset, count);
	else if (request->arrays == SET_BITMAP)
	{
		fits = first % 64 == 0 && first <= set->slots && count <= set->slots - first &&
			channel_holds(server, request->body_offset, bits64_bytes(count), 1);
		if (fits)
			set_add_bits(set, data + request->body_offset, first, count);
	}
	if (fits)
		return ENGINE_OK;
	return engine_error(error, ENGINE_INVALID,
						"a part of %u slots from %u on does not fit a set of %u", count, first,
						set->slots);
}

/* Run a CHANNEL_SET. A part that is refused ends its set. */
EngineStatus
set_take_part(Server *server, uint32_t number, EngineError *error)
{
	const ChannelRequest *request = &server->channels[number].request;
	const SetName *name = &request->query.set;
	HeldSet    *set = set_place(server, name);
	EngineStatus status = ENGINE_OK;

	if (set == NULL ||
		atomic_load(&server_payload(server, name->place / REQUEST_SETS)
					->sets[name->place % REQUEST_SETS]) != name->id)
	{
		NO_SET(error, name);
		return ENGINE_NOT_FOUND;
	}
	if (set->id != name->id)
		status = set_make(server, request, set, error);
	else if (set->entry != request->mirror || set->generation != request->mirror_generation ||
			 set->slots != request->set_slots)
		status = engine_error(error, ENGINE_INVALID, "a part is not of its set of rows");
	if (status == ENGINE_OK)
		status = set_add_part(server, number, set, error);
	if (status != ENGINE_OK && set->id == name->id)
		set_free(server, set);
	return status;
}
