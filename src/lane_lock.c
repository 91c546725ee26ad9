/*
 * lane_lock.c
 *		The locks of lanes: taking one of a poll, waiting for it, giving it back.
 *
 * A lock is owned by the subtransaction at hand and goes with it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/resowner.h"

#include "lane.h"
#include "lane_lock.h"
#include "lane_wait.h"
#include "stats.h"
#include "store.h"

/*
 * The lane that this backend held last of a poll: tried first, so that backends
 * that meet at a hot poll settle on lanes of their own.  Only a hint.
 */
#define LANE_HINTS 64
static struct
{
	int32 poll_id;
	int lane;
} lane_hints[LANE_HINTS];

static void
lane_locktag(LOCKTAG *tag, int32 poll_id, int number)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, (uint32) poll_id, (uint32) number,
						 LANE_LOCK_CLASS);
}

/*
 * Lock or unlock for the subtransaction, not for the portal that happens to run:
 * a cursor that fails in a savepoint after it was opened has all its locks
 * released with the savepoint, also those that it took before.
 */
bool
lane_lock(int32 poll_id, int number, LOCKMODE mode, bool wait)
{
	ResourceOwner owner = CurrentResourceOwner;
	LockAcquireResult result;
	LOCKTAG tag;

	lane_locktag(&tag, poll_id, number);
	CurrentResourceOwner = CurTransactionResourceOwner;
	/* After an error, the abort sets the owner anew. */
	result = LockAcquire(&tag, mode, false, !wait);
	CurrentResourceOwner = owner;
	return result != LOCKACQUIRE_NOT_AVAIL;
}

void
lane_unlock(int32 poll_id, int number, LOCKMODE mode)
{
	ResourceOwner owner = CurrentResourceOwner;
	LOCKTAG tag;

	lane_locktag(&tag, poll_id, number);
	CurrentResourceOwner = CurTransactionResourceOwner;
	(void) LockRelease(&tag, mode, false);
	CurrentResourceOwner = owner;
}

bool
lane_try(int32 poll_id, int lane)
{
	return lane_lock(poll_id, lane, ExclusiveLock, false);
}

void
lane_await(int32 poll_id, int lane)
{
	(void) lane_lock(poll_id, lane, ExclusiveLock, true);
}

void
lane_give_back(int32 poll_id, int lane)
{
	lane_unlock(poll_id, lane, ExclusiveLock);
}

void
lane_note_home(int32 poll_id, int lane)
{
	lane_hints[(uint32) poll_id % LANE_HINTS].poll_id = poll_id;
	lane_hints[(uint32) poll_id % LANE_HINTS].lane = lane;
}

/* The lane of the poll that this backend held last, or -1. */
static int
lane_home(int32 poll_id, int max_lanes)
{
	int hint = (uint32) poll_id % LANE_HINTS;

	if (lane_hints[hint].poll_id != poll_id ||
		lane_hints[hint].lane >= max_lanes)
		return -1;
	return lane_hints[hint].lane;
}

/*
 * Lock a lane that is free: the one held last, else the first from 0 upwards, so
 * that a new lane is opened only when those before it are taken; -1: none is.
 */
static int
lane_try_any(int32 poll_id, int max_lanes)
{
	int home = lane_home(poll_id, max_lanes);

	if (home >= 0 && lane_try(poll_id, home))
		return home;
	for (int lane = 0; lane < max_lanes; lane++)
	{
		if (lane != home && lane_try(poll_id, lane))
			return lane;
	}
	return -1;
}

int
lane_lock_any(int32 poll_id, int max_lanes, bool beside_queue)
{
	int lane = lane_try_any(poll_id, max_lanes);

	if (lane >= 0)
		return lane;
	store_refuse_to_wait_for_lane(poll_id, false);
	stats_count(STATS_LANE_WAITS);
	if (beside_queue)
		lane = lane_wait(poll_id, max_lanes, lane_try_any);
	if (lane >= 0)
		return lane;
	lane = lane_home(poll_id, max_lanes);
	lane = lane >= 0 ? lane : MyProcPid % max_lanes;
	lane_await(poll_id, lane);
	return lane;
}
