/*
 * lane.h
 *		Lanes: the parallel, gapless sequences of a poll's events.
 *
 * A lane is a transaction-level lock, taken by a transaction that writes to the
 * poll and kept to its end.  The lock guards the lane's row and the counts that
 * are kept for the lane.
 */
#ifndef POLL_TALLY_LANE_H
#define POLL_TALLY_LANE_H

#include "postgres.h"
#include "lib/ilist.h"
#include "nodes/pg_list.h"

#include "tally_type.h"

#define LANE_MAX 64       /* lanes a poll */
#define LANE_LOCK_CLASS 7 /* locktag_field4; pg_advisory_lock has 1 and 2 */
#define LANE_DEFAULT 32   /* max_lanes where the poll does not say */

/* Columns of the table lane. */
enum LaneColumn
{
	LANE_POLL_ID = 1,
	LANE_LANE,
	LANE_KEYS,
	LANE_SEQ,
	LANE_COUNTS
};

/* A lane that this transaction holds. */
typedef struct LaneHold
{
	dlist_node node; /* newest first */
	int32 poll_id;
	int lane;
	int nest_level; /* of the subtransaction that took it */
	uint64 serial;  /* no other hold of the session has it */
	uint64 loaded;  /* the generation in which the fields below were read */
	int64 seq;      /* of the lane's row: highest seq written */
	int64 keys;     /* of the lane's row: choices that it made known */
	Tally *counts;  /* of the lane's row, in the context of the holds */
} LaneHold;

/*
 * Take a lane of the poll, or return the one held already.  Lanes are tried in
 * turn without waiting, then one is waited for; so what was judged before has to
 * be judged anew.  *fresh: this call took it.
 */
extern LaneHold *lane_acquire(int32 poll_id, int max_lanes, bool *fresh);

/*
 * Lock and unlock the gate of batches: shared, or exclusively to be alone with
 * single events.
 */
extern void lane_lock_gate(bool exclusively);
extern void lane_unlock_gate(bool exclusively);

/* Append the polls of which lanes are held to a list of integers, once each. */
extern List *lane_list_held(List *polls);

/* Give back a lane that this call took and under which nothing was written. */
extern void lane_release_unused(LaneHold *hold);

/*
 * Are the lanes that are held those of the extension as it is now?  It can have
 * been dropped and created anew by this very transaction.
 */
extern bool lane_holds_are_current(void);

/*
 * Have the tables been dropped since?  Raises 55000 when they are there and only
 * not found by their names: what was counted may not be lost silently.
 */
extern bool lane_holds_are_dropped(void);

/* The lane held of a poll, or NULL. */
extern LaneHold *lane_held(int32 poll_id);

/*
 * Take every lane of the poll, in ascending order, waiting for each.  With them
 * all, nobody is writing to the poll.
 */
extern void lane_acquire_all(int32 poll_id, int max_lanes);

/* Has this transaction taken all lanes of the poll so? */
extern bool lane_holds_all(int32 poll_id);

/* The same without waiting; false, with none taken, when one is not free. */
extern bool lane_try_all(int32 poll_id, int max_lanes);

/*
 * Lock the poll's deadline until the transaction ends: it is being changed, by
 * who holds all lanes.
 */
extern void lane_lock_deadline(int32 poll_id);

/* Wait for whoever is changing the deadline; false when nobody is. */
extern bool lane_await_deadline(int32 poll_id);

/* Lock the poll's list of audiences until the transaction ends: it grows. */
extern void lane_lock_audiences(int32 poll_id);

/*
 * Lock the poll against other changes until the transaction ends: whoever locks or
 * changes its row does this right before.  Row locks do not show, this one does.
 */
extern void lane_lock_changes(int32 poll_id);

/* The same without waiting; false when somebody else has it. */
extern bool lane_try_changes(int32 poll_id);

/* Show that the poll is being published by hand, which locks its publication row. */
extern void lane_note_publication(int32 poll_id);

/* Give back what lane_try_all took. */
extern void lane_release_all(int32 poll_id, int max_lanes);

/* Fill seq and counts from the lane's row (0 and empty when it has none). */
extern void lane_load(LaneHold *hold);

/* Write the lane's row. */
extern void lane_write(LaneHold *hold, int64 seq, int64 keys,
					   const Tally *counts);

/* The rows are no longer as loaded. */
extern void lane_forget_loaded(void);

/* At a commit, once it is visible; at the end of a transaction, and of a
 * subtransaction. */
extern void lane_at_commit(void);
extern void lane_at_end(void);
extern void lane_at_subcommit(int nest_level);
extern void lane_at_subabort(int nest_level);

#endif /* POLL_TALLY_LANE_H */
