/*
 * pending.h
 *		What this transaction has counted and not yet written.
 *
 * The counts and seqs of a transaction's events are gathered in memory, one
 * level a subtransaction, and written once: before commit, before PREPARE
 * TRANSACTION, or before something reads the rows.  So n events of one
 * transaction cost n and not n squared.  Views add what is pending, so that each
 * event is visible at once to the transaction itself.
 */
#ifndef POLL_TALLY_PENDING_H
#define POLL_TALLY_PENDING_H

#include "lane.h"
#include "poll.h"

/* The seq that the next event of the lane gets. */
extern int64 pending_next_seq(LaneHold *hold);

/* How many choices this transaction made known to the poll, not yet written. */
extern int64 pending_keys(int32 poll_id);

/* The count of a choice in the lane as of now, and what of it is pending. */
extern int64 pending_lane_count(LaneHold *hold, const char *choice, int length);
extern int64 pending_of_choice(int32 poll_id, const char *choice, int length);

/*
 * Would the effect take a count of the lane below minimum, above maximum or,
 * *overflows, out of bigint?  Returns the offending choice as a palloc'd string,
 * or NULL.
 */
extern char *pending_misfit(LaneHold *hold, const Tally *effect, int64 minimum,
							int64 maximum, bool *overflows);

/*
 * Count an event that is in the ledger at seq.  Its counts were checked with
 * pending_misfit, so nothing is raised for them here.
 */
extern void pending_add(LaneHold *hold, int64 seq, const Tally *effect);

/* Give back a lane that the caller took, having counted nothing under it. */
extern void pending_release_lane(LaneHold *hold);

/* The rows of lanes that we hold were changed by other means: read them anew. */
extern void pending_forget(void);

/* Write all that is pending.  Afterwards the rows tell all. */
extern void pending_flush(void);

/* A poll was dropped: nothing is to be written of it. */
extern void pending_note_drop(void);

/* Has this transaction written any of it? */
extern bool pending_was_written(void);

/* At the end of a transaction and of a subtransaction. */
extern void pending_at_end(void);
extern void pending_at_subcommit(int nest_level);
extern void pending_at_subabort(int nest_level);

#endif /* POLL_TALLY_PENDING_H */
