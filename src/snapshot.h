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
 * The newest snapshot as a composite of the view snapshots, in the caller's
 * context above SPI; a row of NULLs when the poll has none.
 */
extern Datum snapshot_row(int32 poll_id);

#endif /* POLL_TALLY_SNAPSHOT_H */
