/*
 * exact.h
 *		Counts near the bounds of bigint, summed over the lanes.
 */
#ifndef POLL_TALLY_EXACT_H
#define POLL_TALLY_EXACT_H

#include "lane.h"
#include "poll.h"

/* What the counts have to say to an effect. */
typedef enum ExactVerdict
{
	EXACT_FITS,
	EXACT_LACKS_LANES, /* exact_take_lanes, and then judge the event anew */
	EXACT_BEYOND_LIMITS,
	EXACT_OVERFLOWS /* a count would leave bigint */
} ExactVerdict;

/*
 * May the effect be counted in the lane?  *choice: which one may not, palloc'd.
 *
 * All lanes of the poll are needed once a lane's count would come near the
 * bounds of bigint, and from then on for every event of the poll; far from them,
 * this costs next to nothing.
 */
extern ExactVerdict exact_judge(const Poll *poll, LaneHold *hold,
								const Tally *effect, char **choice);

/*
 * Mark the poll as one that needs all lanes, which the caller holds.  May wait for
 * who alters the poll.
 */
extern void exact_mark(int32 poll_id);

/*
 * Take all lanes, in ascending order; *hold is given back before if it is fresh,
 * so that this cannot deadlock with another who does the same.
 */
extern void exact_take_lanes(const Poll *poll, LaneHold *hold, bool fresh);

#endif /* POLL_TALLY_EXACT_H */
