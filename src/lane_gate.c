/*
 * lane_gate.c
 *		Locks beside the lanes: the gate of batches, and of a poll its deadline, its
 *		audiences, its changes and its publication.
 *
 * They have tags of the lanes' class, with numbers that no lane has.
 */
#include "postgres.h"

#include "storage/lock.h"
#include "utils/resowner.h"

#include "lane.h"
#include "store.h"

/* Behind the numbers of lanes; the view blockers knows the last two. */
#define LANE_DEADLINE LANE_MAX
#define LANE_AUDIENCES (LANE_MAX + 1)
#define LANE_CHANGES (LANE_MAX + 2)
#define LANE_PUBLICATION (LANE_MAX + 3)

/* Like a lane's, a lock is the subtransaction's. */
static bool
lane_gate_lock(int32 poll_id, int number, LOCKMODE mode, bool wait)
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

static void
lane_gate_unlock(int32 poll_id, int number, LOCKMODE mode)
{
	ResourceOwner owner = CurrentResourceOwner;
	LOCKTAG tag;

	lane_locktag(&tag, poll_id, number);
	CurrentResourceOwner = CurTransactionResourceOwner;
	(void) LockRelease(&tag, mode, false);
	CurrentResourceOwner = owner;
}

void
lane_lock_gate(bool exclusively)
{
	/* No poll has the number 0. */
	(void) lane_gate_lock(0, 0, exclusively ? ExclusiveLock : ShareLock, true);
}

void
lane_unlock_gate(bool exclusively)
{
	lane_gate_unlock(0, 0, exclusively ? ExclusiveLock : ShareLock);
}

void
lane_lock_deadline(int32 poll_id)
{
	(void) lane_gate_lock(poll_id, LANE_DEADLINE, ExclusiveLock, true);
}

bool
lane_await_deadline(int32 poll_id)
{
	bool waited = false;

	if (!lane_gate_lock(poll_id, LANE_DEADLINE, ShareLock, false))
	{
		store_refuse_to_wait_for_lane(poll_id, false);
		waited = lane_gate_lock(poll_id, LANE_DEADLINE, ShareLock, true);
	}
	lane_gate_unlock(poll_id, LANE_DEADLINE, ShareLock);
	return waited;
}

void
lane_lock_audiences(int32 poll_id)
{
	(void) lane_gate_lock(poll_id, LANE_AUDIENCES, ExclusiveLock, true);
}

void
lane_lock_changes(int32 poll_id)
{
	(void) lane_gate_lock(poll_id, LANE_CHANGES, ExclusiveLock, true);
}

bool
lane_try_changes(int32 poll_id)
{
	return lane_gate_lock(poll_id, LANE_CHANGES, ExclusiveLock, false);
}

void
lane_note_publication(int32 poll_id)
{
	(void) lane_gate_lock(poll_id, LANE_PUBLICATION, ShareLock, true);
}
