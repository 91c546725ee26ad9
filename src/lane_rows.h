/*
 * lane_rows.h
 *		Counts as the rows have them: those of a lane that this transaction holds.
 *
 * Counts of narrow choices live in the lane's own row, those of the others in
 * rows of their own (table lane_count).  All are guarded by the lane's lock.
 */
#ifndef POLL_TALLY_LANE_ROWS_H
#define POLL_TALLY_LANE_ROWS_H

#include "count_map.h"
#include "lane.h"

/* What the rows know of a choice; read once, until lane_rows_forget. */
extern CountEntry *lane_rows_find(LaneHold *hold, CountKey key);

/* The sum over all lanes' rows; the caller holds all lanes of the poll. */
extern TallyTotal lane_rows_total(int32 poll_id, const char *choice,
								  int length);

/* Give a choice that is not narrow a row of its own in the lane, at 0. */
extern void lane_rows_open(LaneHold *hold, CountEntry *entry);

/*
 * Write the changes of one poll, sorted by choice, and its lane's seq and number
 * of keys.  Nothing is written when nothing changes.
 */
extern void lane_rows_write(LaneHold *hold, int64 seq, int64 keys,
							const CountEntry *changes, int count);

/* The rows are no longer as read. */
extern void lane_rows_forget(void);

/* At the end of a transaction. */
extern void lane_rows_at_end(void);

#endif /* POLL_TALLY_LANE_ROWS_H */
