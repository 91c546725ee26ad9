/*
 * lane_lock.h
 *		The locks of lanes; for lane.c and lane_gate.c alone.
 */
#ifndef POLL_TALLY_LANE_LOCK_H
#define POLL_TALLY_LANE_LOCK_H

#include "postgres.h"
#include "storage/lockdefs.h"

/*
 * Lock a number of a poll, a lane or not, until the subtransaction ends; false when
 * that would mean waiting, and there is to be none.  And unlock it before.
 */
extern bool lane_lock(int32 poll_id, int number, LOCKMODE mode, bool wait);
extern void lane_unlock(int32 poll_id, int number, LOCKMODE mode);

/* Lock a lane if it is free; lock it, waiting in its queue; give it back. */
extern bool lane_try(int32 poll_id, int lane);
extern void lane_await(int32 poll_id, int lane);
extern void lane_give_back(int32 poll_id, int lane);

/*
 * Lock any lane of the poll, waiting if need be: first beside the queue, where
 * nothing else of ours is held, then in the queue of one, spread over the
 * backends.
 */
extern int lane_lock_any(int32 poll_id, int max_lanes, bool beside_queue);

/* This backend has the lane: it is tried first the next time. */
extern void lane_note_home(int32 poll_id, int lane);

#endif /* POLL_TALLY_LANE_LOCK_H */
