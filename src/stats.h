/*
 * stats.h
 *		Statistics: what happened, counted per database in shared memory.
 */
#ifndef POLL_TALLY_STATS_H
#define POLL_TALLY_STATS_H

#include "receipt.h"

/* Counters behind those of the outcomes. */
typedef enum StatsCounter
{
	STATS_BATCHES = OUTCOME_NOTHING_TO_RETRACT + 1,
	STATS_LANE_WAITS,
	STATS_LANES_OPENED,
	STATS_PUBLICATIONS,
	STATS_NOTIFY_FAILURES,
	STATS_COUNTERS
} StatsCounter;

/* Count one.  Cheap; does nothing where the library was not preloaded. */
extern void stats_count(StatsCounter counter);
extern void stats_count_many(StatsCounter counter, uint64 count);
extern void stats_count_outcome(Outcome outcome);

#endif /* POLL_TALLY_STATS_H */
