/*
 * exact.h
 *		Counts near the bounds of bigint, summed over the lanes.
 */
#ifndef POLL_TALLY_EXACT_H
#define POLL_TALLY_EXACT_H

#include "lane.h"
#include "poll.h"

/*
 * Does judging the effect ask for all lanes of the poll, and are they not held?
 * Then take them with exact_take_lanes, and judge the event anew.
 *
 * They are needed once a lane's count would come near the bounds, and from then
 * on for every event of the poll; far from them, this costs next to nothing.
 */
extern bool exact_lacks_lanes(const Poll *poll, LaneHold *hold,
							  const Tally *effect);

/*
 * Take all lanes, in ascending order; *hold is given back before if it is fresh,
 * so that this cannot deadlock with another who does the same.
 */
extern void exact_take_lanes(const Poll *poll, LaneHold *hold, bool fresh);

/*
 * Raise 22003 when the effect would take a choice's count, summed over all
 * lanes, out of bigint.  The lanes that it asks for are held.
 */
extern void exact_check(const Poll *poll, LaneHold *hold, const Tally *effect);

#endif /* POLL_TALLY_EXACT_H */
