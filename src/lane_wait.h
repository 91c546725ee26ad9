/*
 * lane_wait.h
 *		Waiting for a lane of a poll whose lanes are all taken.
 */
#ifndef POLL_TALLY_LANE_WAIT_H
#define POLL_TALLY_LANE_WAIT_H

#include "postgres.h"

/*
 * Wait, beside the queue of the lane's lock, until "try" gets a lane; returns it,
 * or -1 when it is time to join the queue.
 */
extern int lane_wait(int32 poll_id, int max_lanes,
					 int (*try)(int32 poll_id, int max_lanes));

/* May anybody be waiting so for a lane of the poll?  A hint. */
extern bool lane_wait_is_likely(int32 poll_id);

/* A lane of the poll was given back: wake one who waits for it. */
extern void lane_wait_wake(int32 poll_id);

#endif /* POLL_TALLY_LANE_WAIT_H */
