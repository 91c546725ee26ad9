/*
 * snapshot.h
 *		Snapshots: complete counts of a poll at a frontier, with a revision.
 *
 * All functions run between store_begin_sql and store_end_sql.
 */
#ifndef POLL_TALLY_SNAPSHOT_H
#define POLL_TALLY_SNAPSHOT_H

#include "postgres.h"

/* Start a new poll's history: revision 1 at position 0; a hidden poll has none. */
extern void snapshot_begin(int32 poll_id, bool hidden);

/* Lock the poll's publication row: whoever has it publishes. */
extern void snapshot_lock(int32 poll_id);

/* The same without waiting; false when another has it. */
extern bool snapshot_try_lock(int32 poll_id);

/* Publish the final snapshot.  The caller has the row's lock and all lanes. */
extern void snapshot_finish(int32 poll_id);

/*
 * Publish a snapshot whether or not the frontier moved: the counts were repaired.
 * The caller has the row's lock and all lanes.
 */
extern void snapshot_repair(int32 poll_id);

/*
 * Publish a snapshot of each of the polls in the integer[]; the caller has
 * locked their publication rows.  One whose frontier did not move is left out.
 * Returns how many were published.
 */
extern uint64 snapshot_publish(Datum poll_ids);

/*
 * Announce the newest revisions that were committed without, for lack of room in
 * the NOTIFY queue; with lately, those of the last hour too.  false when there
 * still is no room.
 */
extern bool snapshot_announce_missed(bool lately);

/* A commit failed for lack of room in the queue: announce nothing for now. */
extern void snapshot_hold_notify(void);

/* Log what was published, at commit; and forget it, at any end. */
extern void snapshot_at_commit(void);
extern void snapshot_at_end(void);
extern void snapshot_at_subcommit(int nest_level);
extern void snapshot_at_subabort(int nest_level);

/*
 * The newest snapshot as a composite of the view snapshots, in the caller's
 * context above SPI; a row of NULLs when the poll has none.
 */
extern Datum snapshot_row(int32 poll_id);

#endif /* POLL_TALLY_SNAPSHOT_H */
