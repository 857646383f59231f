/*
 * area.h
 *		Access to the shared area by its own header, for tests and benchmarks.
 *		Server and clients go by private copies of the header (server.h,
 *		shmem.h), because the other side could overwrite it.
 */
#ifndef TEST_AREA_H
#define TEST_AREA_H

#include "server/protocol.h"

static inline _Atomic uint32_t *
area_word(AreaHeader *area, uint32_t slot)
{
	return (_Atomic uint32_t *) ((char *) area + area->words_offset) + slot;
}

static inline RequestPayload *
area_payload(AreaHeader *area, uint32_t slot)
{
	return (RequestPayload *) ((char *) area + area->payloads_offset + area->payload_stride * slot);
}

static inline AreaMirror *
area_mirror(AreaHeader *area, uint32_t entry)
{
	return (AreaMirror *) ((char *) area + area->mirrors_offset + area->mirror_stride * entry);
}

static inline AreaChannel *
area_channel(AreaHeader *area, uint32_t channel)
{
	return (AreaChannel *) ((char *) area + area->channels_offset + area->channel_stride * channel);
}

static inline unsigned char *
area_channel_data(AreaHeader *area, uint32_t channel)
{
	return (unsigned char *) area + area->channel_data_offset + area->channel_data_bytes * channel;
}

#endif							/* TEST_AREA_H */
