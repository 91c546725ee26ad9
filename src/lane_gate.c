/*
 * lane_gate.c
 *		Locks beside the lanes: the gate of batches, and of a poll its deadline, its
 *		audiences, its changes and its publication.
 *
 * They have tags of the lanes' class, with numbers that no lane has.
 */
#include "postgres.h"

#include "lane.h"
#include "lane_lock.h"
#include "store.h"

/* Behind the numbers of lanes; the view blockers knows the last two. */
#define LANE_DEADLINE LANE_MAX
#define LANE_AUDIENCES (LANE_MAX + 1)
#define LANE_CHANGES (LANE_MAX + 2)
#define LANE_PUBLICATION (LANE_MAX + 3)

void
lane_lock_gate(bool exclusively)
{
	/* No poll has the number 0. */
	(void) lane_lock(0, 0, exclusively ? ExclusiveLock : ShareLock, true);
}

void
lane_unlock_gate(bool exclusively)
{
	lane_unlock(0, 0, exclusively ? ExclusiveLock : ShareLock);
}

void
lane_lock_deadline(int32 poll_id)
{
	(void) lane_lock(poll_id, LANE_DEADLINE, ExclusiveLock, true);
}

bool
lane_await_deadline(int32 poll_id)
{
	bool waited = false;

	if (!lane_lock(poll_id, LANE_DEADLINE, ShareLock, false))
	{
		store_refuse_to_wait_for_lane(poll_id, false);
		waited = lane_lock(poll_id, LANE_DEADLINE, ShareLock, true);
	}
	lane_unlock(poll_id, LANE_DEADLINE, ShareLock);
	return waited;
}

void
lane_lock_audiences(int32 poll_id)
{
	(void) lane_lock(poll_id, LANE_AUDIENCES, ExclusiveLock, true);
}

void
lane_lock_changes(int32 poll_id)
{
	(void) lane_lock(poll_id, LANE_CHANGES, ExclusiveLock, true);
}

bool
lane_try_changes(int32 poll_id)
{
	return lane_lock(poll_id, LANE_CHANGES, ExclusiveLock, false);
}

void
lane_note_publication(int32 poll_id)
{
	(void) lane_lock(poll_id, LANE_PUBLICATION, ShareLock, true);
}
