/*
 * lane_gate.c
 *		Two locks beside the lanes: the gate of batches, and deadlines that move.
 *
 * They have tags of the lanes' class, with numbers that no lane has.
 */
#include "postgres.h"

#include "storage/lock.h"

#include "lane.h"
#include "store.h"

/* Behind the numbers of lanes: the lock of a poll's deadline. */
#define LANE_DEADLINE LANE_MAX

void
lane_lock_gate(bool exclusively)
{
	LOCKTAG tag;

	/* No poll has the number 0. */
	lane_locktag(&tag, 0, 0);
	(void) LockAcquire(&tag, exclusively ? ExclusiveLock : ShareLock, false,
					   false);
}

void
lane_unlock_gate(bool exclusively)
{
	LOCKTAG tag;

	lane_locktag(&tag, 0, 0);
	(void) LockRelease(&tag, exclusively ? ExclusiveLock : ShareLock, false);
}

void
lane_lock_deadline(int32 poll_id)
{
	LOCKTAG tag;

	lane_locktag(&tag, poll_id, LANE_DEADLINE);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

bool
lane_await_deadline(int32 poll_id)
{
	LOCKTAG tag;
	bool waited = false;

	lane_locktag(&tag, poll_id, LANE_DEADLINE);
	if (LockAcquire(&tag, ShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
	{
		store_refuse_to_wait_for_lane(poll_id, false);
		(void) LockAcquire(&tag, ShareLock, false, false);
		waited = true;
	}
	(void) LockRelease(&tag, ShareLock, false);
	return waited;
}
