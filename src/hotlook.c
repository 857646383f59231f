/*
 * hotlook.c
 *		Optimistic reads: see hotlook.h.
 */
#include "gpuann.h"

#include "hotlook.h"
#include "storage/bufpage.h"
#include "storage/lwlock.h"

#define BIT_UNKNOWN		PG_UINT32_MAX

/*
 * The bit of a lock's state word that says that somebody has it exclusively.
 *
 * lwlock.h declares the word, but keeps its bits to lwlock.c: the one asked for
 * is 1 << 24 in 15 to 17, another in 18. So we take a lock of our own, which
 * nobody else can see, and look what that changes. LWLockAcquire of a lock that
 * is free adds this bit and nothing else, in all four: waiters and the lock of
 * their list have flags of their own, which it leaves alone. Were it otherwise
 * some day, more bits than one would have changed, or the release would not
 * change them back: 0 is returned then, and nobody looks.
 *
 * The word itself is only read. A reader of it may miss a writer who takes the
 * lock a moment later; that the end of the look finds him out is hotlook.h's
 * argument, not this word's.
 */
static uint32
exclusive_bit(void)
{
	static uint32 bit = BIT_UNKNOWN;

	if (bit == BIT_UNKNOWN)
	{
		LWLock		lock;
		uint32		before;
		uint32		changed;

		LWLockInitialize(&lock, LWTRANCHE_BUFFER_CONTENT);
		before = pg_atomic_read_u32(&lock.state);
		LWLockAcquire(&lock, LW_EXCLUSIVE);
		changed = before ^ pg_atomic_read_u32(&lock.state);
		LWLockRelease(&lock);
		if ((changed & (changed - 1)) != 0 || pg_atomic_read_u32(&lock.state) != before)
			changed = 0;
		bit = changed;
	}
	return bit;
}

/*
 * Whether somebody may be changing a page.
 */
static inline bool
is_changing(Buffer buffer)
{
	LWLock	   *lock = BufferDescriptorGetContentLock(GetBufferDescriptor(buffer - 1));

	return (pg_atomic_read_u32(&lock->state) & exclusive_bit()) != 0;
}

/*
 * Begin a look.
 */
const char *
hot_look(HotBlocks *hot, BlockNumber block, PageLook *look)
{
	Buffer		buffer = hot_hint(hot, block);
	const char *page;

	if (!gpuann_debug_optimistic_records || !RelationNeedsWAL(hot->index) || exclusive_bit() == 0)
		return NULL;
	page = hot_page(hot, block, buffer);
	if (page == NULL)
		return NULL;
	*look = (PageLook) {buffer, block, PageGetLSN((Page) page)};
	pg_read_barrier();
	if (is_changing(buffer))
		return NULL;
	pg_read_barrier();
	return page;
}

/*
 * End it.
 */
bool
hot_looked(HotBlocks *hot, const PageLook *look)
{
	pg_read_barrier();
	if (is_changing(look->buffer))
		return false;
	pg_read_barrier();
	return PageGetLSN(BufferGetPage(look->buffer)) == look->lsn && hot_peeked(hot, look->block, look->buffer);
}
