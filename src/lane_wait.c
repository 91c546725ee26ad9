/*
 * lane_wait.c
 *		Waiting for a lane of a poll whose lanes are all taken.
 *
 * The queue of a lock hands it over strictly in turn.  Between the commit of one
 * holder and the work of the next lies the time that it takes to wake a process
 * up, in which nobody may have the lane; a hot poll with one lane lost a third of
 * its speed to that.  So a transaction waits beside the queue first: it sleeps, is
 * woken by a commit that gives a lane back, and tries again, and whoever runs at
 * that moment gets the lane.
 *
 * Nobody waits so for longer than deadlock_timeout.  Then the queue is joined,
 * which goes before all who wait beside it, and in which deadlocks are found.
 *
 * Whoever gives a lane back by another way than a commit (rollback, COMMIT
 * PREPARED, the end of a process) wakes nobody; for that, and for a sleeper who
 * comes just too late to be woken, each looks again after a while.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/proclist.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "lane_wait.h"
#include "shared.h"

#define LANE_WAIT_LOOK_MS 10

/* Where those wait that want a lane of the poll; polls may share one. */
static ConditionVariable *
lane_wait_place(int32 poll_id)
{
	uint32 hash = hash_combine(murmurhash32(MyDatabaseId),
							   murmurhash32((uint32) poll_id));

	return &shared_get()->lane_waits[hash % SHARED_LANE_WAITS];
}

int
lane_wait(int32 poll_id, int max_lanes,
		  int (*try)(int32 poll_id, int max_lanes))
{
	TimestampTz start = GetCurrentTimestamp();
	ConditionVariable *place;
	int lane;

	/* The queue knows lock_timeout. */
	if (shared_get() == NULL || LockTimeout > 0)
		return -1;
	place = lane_wait_place(poll_id);
	ConditionVariablePrepareToSleep(place);
	while ((lane = try(poll_id, max_lanes)) < 0 &&
		   !TimestampDifferenceExceeds(start, GetCurrentTimestamp(),
									   DeadlockTimeout))
		(void) ConditionVariableTimedSleep(place, LANE_WAIT_LOOK_MS,
										   PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
	return lane;
}

bool
lane_wait_is_likely(int32 poll_id)
{
	/* Read without the lock, which is as good for a hint. */
	return shared_get() != NULL &&
		   !proclist_is_empty(&lane_wait_place(poll_id)->wakeup);
}

void
lane_wait_wake(int32 poll_id)
{
	if (shared_get() != NULL)
		ConditionVariableSignal(lane_wait_place(poll_id));
}
