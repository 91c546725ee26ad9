/*
 * exact.h
 *		Counts near the bounds of bigint, summed over the lanes.
 */
#ifndef POLL_TALLY_EXACT_H
#define POLL_TALLY_EXACT_H

#include "lane.h"
#include "poll.h"

/*
 * Raise 22003 when the effect would take a choice's count, summed over all
 * lanes, out of bigint.  The caller holds the lane.
 *
 * Costs next to nothing while each lane's count is far from the bounds.  The
 * first event that takes one near them makes the poll exact, for ever: from then
 * on every event takes all lanes of the poll, to sum them.
 */
extern void exact_check(const Poll *poll, LaneHold *hold, const Tally *effect);

#endif /* POLL_TALLY_EXACT_H */
