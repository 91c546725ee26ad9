/*
 * lane_gate.c
 *		Locks beside the lanes: the gate of batches, deadlines that move, audiences.
 *
 * They have tags of the lanes' class, with numbers that no lane has.
 */
#include "postgres.h"

#include "storage/lock.h"

#include "lane.h"
#include "store.h"

/* Behind the numbers of lanes: the locks of a poll's deadline and audiences. */
#define LANE_DEADLINE LANE_MAX
#define LANE_AUDIENCES (LANE_MAX + 1)

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

void
lane_lock_audiences(int32 poll_id)
{
	LOCKTAG tag;

	lane_locktag(&tag, poll_id, LANE_AUDIENCES);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}
