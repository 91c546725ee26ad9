/*
 * snapshot.c
 *		Snapshots: complete counts of a poll at a frontier, with a revision.
 *
 * Invariant: a revision's counts are those of exactly the entries up to its
 * frontier, since one statement reads both under one MVCC snapshot; revisions
 * grow by one, since the publication row is locked from before they are read
 * until the commit.  The row of the snapshot and its NOTIFY commit together.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/memutils.h"

#include "fault.h"
#include "settings.h"
#include "snapshot.h"
#include "stats.h"
#include "store.h"

/*
 * Shares of the NOTIFY queue: above the first, nothing is announced; after a
 * commit failed for lack of room, not until it is below the second.
 */
#define SNAPSHOT_QUEUE_HIGH 0.9
#define SNAPSHOT_QUEUE_LOW 0.5

static StoreStatement begin_publication = {
	"INSERT INTO poll_tally.publication (poll_id, revision, included_position,"
	" frontier, published_at, final, announced)"
	" VALUES ($1, CASE WHEN $2 THEN 0 ELSE 1 END, 0, '{}', clock_timestamp(),"
	" false, CASE WHEN $2 THEN 0 ELSE 1 END)",
	2,
	{INT4OID, BOOLOID},
	NULL};

static StoreStatement begin_snapshot = {
	"INSERT INTO poll_tally.snapshot (poll_id, revision, included_position,"
	" frontier, counts, total, published_at, final)"
	" SELECT b.poll_id, b.revision, 0, '{}', '{}', 0, b.published_at, false"
	" FROM poll_tally.publication b WHERE b.poll_id = $1 AND NOT $2",
	2,
	{INT4OID, BOOLOID},
	NULL};

void
snapshot_begin(int32 poll_id, bool hidden)
{
	Datum values[] = {Int32GetDatum(poll_id), BoolGetDatum(hidden)};

	(void) store_run(&begin_publication, values, NULL);
	(void) store_run(&begin_snapshot, values, NULL);
}

static StoreStatement lock_publication = {
	"SELECT FROM poll_tally.publication WHERE poll_id = $1 FOR UPDATE",
	1,
	{INT4OID},
	NULL};

void
snapshot_lock(int32 poll_id)
{
	Datum values[] = {Int32GetDatum(poll_id)};

	if (store_run(&lock_publication, values, NULL) != 1)
		ereport(ERROR, (errcode(ERRCODE_NO_DATA_FOUND),
						errmsg("poll number %d has no publication", poll_id)));
}

static StoreStatement try_lock_publication = {
	"SELECT FROM poll_tally.publication WHERE poll_id = $1"
	" FOR UPDATE SKIP LOCKED",
	1,
	{INT4OID},
	NULL};

bool
snapshot_try_lock(int32 poll_id)
{
	Datum values[] = {Int32GetDatum(poll_id)};

	return store_run(&try_lock_publication, values, NULL) == 1;
}

/*
 * $2: the final snapshot.  $3: publish whether or not the frontier moved.
 * $4: it will be announced.
 *
 * Set-based, since a pass may publish thousands of polls.  The functions are
 * called for the few that have gaps among their lanes, or may have counts in
 * rows of their own; once for each, so the counts are worked out before they are
 * used.
 */
static StoreStatement publish_snapshots = {
	"WITH lanes AS ("
	" SELECT l.poll_id, count(*) AS lanes, max(l.lane) AS last,"
	"  sum(l.seq)::bigint AS position, array_agg(l.seq ORDER BY l.lane) AS seqs,"
	"  poll_tally.sum(l.counts) AS counts"
	" FROM poll_tally.lane l WHERE l.poll_id = ANY ($1) GROUP BY l.poll_id),"
	" counted AS MATERIALIZED ("
	" SELECT b.poll_id, b.revision + 1 AS revision,"
	"  coalesce(l.position, 0) AS position,"
	"  CASE WHEN l.lanes = l.last + 1 THEN l.seqs"
	"   ELSE poll_tally.frontier_of(b.poll_id) END AS frontier,"
	"  CASE WHEN NOT p.open_choices AND NOT EXISTS (SELECT"
	"     FROM poll_tally.choice c WHERE c.poll_id = b.poll_id AND NOT c.narrow)"
	"   THEN coalesce(l.counts, '{}')"
	"   WHEN NOT poll_tally.is_wide(b.poll_id)"
	"   THEN poll_tally.counts_of(b.poll_id) END AS counts"
	" FROM poll_tally.publication b JOIN poll_tally.poll p ON p.poll_id = b.poll_id"
	" LEFT JOIN lanes l ON l.poll_id = b.poll_id"
	" WHERE b.poll_id = ANY ($1)"
	"  AND ($3 OR coalesce(l.position, 0) > b.included_position)),"
	" inserted AS ("
	" INSERT INTO poll_tally.snapshot (poll_id, revision, included_position,"
	"  frontier, counts, total, published_at, final)"
	" SELECT c.poll_id, c.revision, c.position, c.frontier, c.counts,"
	"  poll_tally.total_if_fits(c.counts), clock_timestamp(), $2"
	" FROM counted c"
	" RETURNING poll_id, revision, included_position, frontier, published_at,"
	"  final)"
	" UPDATE poll_tally.publication AS b SET revision = i.revision,"
	"  included_position = i.included_position, frontier = i.frontier,"
	"  published_at = i.published_at, final = i.final,"
	"  announced = CASE WHEN $4 THEN i.revision ELSE b.announced END"
	" FROM inserted i WHERE b.poll_id = i.poll_id"
	" RETURNING b.poll_id, b.revision, b.included_position",
	4,
	{INT4ARRAYOID, BOOLOID, BOOLOID, BOOLOID},
	NULL};

/* A message on the channel of each poll and on the one of all polls. */
static StoreStatement announce = {
	"SELECT pg_notify('poll_tally', m.message::text),"
	" pg_notify(poll_tally.channel(m.poll), m.message::text)"
	" FROM poll_tally.message m WHERE m.poll_id = ANY ($1)"
	" ORDER BY m.poll_id",
	1,
	{INT4ARRAYOID},
	NULL};

/* The newest ones and the final one are kept. */
static StoreStatement forget_old = {
	"DELETE FROM poll_tally.snapshot s USING poll_tally.publication b"
	" WHERE b.poll_id = ANY ($1) AND s.poll_id = b.poll_id"
	" AND s.revision <= b.revision - $2 AND NOT s.final",
	2,
	{INT4ARRAYOID, INT4OID},
	NULL};

/* The poll_ids that a statement returned, as integer[]. */
static Datum
snapshot_returned_polls(uint64 count)
{
	Datum *polls = palloc_array(Datum, Max(count, 1));
	bool isnull;

	for (uint64 i = 0; i < count; i++)
		polls[i] = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc,
								 1, &isnull);
	return PointerGetDatum(
		construct_array(polls, (int) count, INT4OID, 4, true, TYPALIGN_INT));
}

/* Set when a commit failed for lack of room in the NOTIFY queue. */
static bool snapshot_notify_held = false;

void
snapshot_hold_notify(void)
{
	snapshot_notify_held = true;
}

static StoreStatement queue_usage = {
	"SELECT pg_notification_queue_usage()", 0, {0}, NULL};

/* Is there room in the NOTIFY queue?  A full one would fail the commit. */
static bool
snapshot_may_notify(void)
{
	double usage;
	bool isnull;

	(void) store_run(&queue_usage, NULL, NULL);
	usage = DatumGetFloat8(SPI_getbinval(SPI_tuptable->vals[0],
										 SPI_tuptable->tupdesc, 1, &isnull));
	if (usage < SNAPSHOT_QUEUE_LOW)
		snapshot_notify_held = false;
	return !snapshot_notify_held && usage < SNAPSHOT_QUEUE_HIGH;
}

/*
 * Lines to be logged once the transaction has committed, newest first; NIL when
 * it ends.
 */
typedef struct SnapshotLogLine
{
	int nest_level; /* of the subtransaction that has published */
	char *line;
} SnapshotLogLine;

static List *snapshot_log_lines = NIL;

static void
snapshot_log_at_commit(char *line)
{
	MemoryContext before = MemoryContextSwitchTo(TopTransactionContext);
	SnapshotLogLine *entry;

	entry = palloc(sizeof(SnapshotLogLine));
	entry->nest_level = GetCurrentTransactionNestLevel();
	entry->line = pstrdup(line);
	snapshot_log_lines = lcons(entry, snapshot_log_lines);
	MemoryContextSwitchTo(before);
}

/* One structured line for each row that the publication returned. */
static void
snapshot_log(uint64 count, bool final)
{
	for (uint64 i = 0; settings_log_publications && i < count; i++)
	{
		HeapTuple row = SPI_tuptable->vals[i];
		TupleDesc desc = SPI_tuptable->tupdesc;
		char *what =
			psprintf("poll_number=%s revision=%s position=%s final=%s",
					 SPI_getvalue(row, desc, 1), SPI_getvalue(row, desc, 2),
					 SPI_getvalue(row, desc, 3), final ? "true" : "false");

		ereport(LOG,
				(errmsg("poll_tally: event=publication_attempted %s", what)));
		snapshot_log_at_commit(
			psprintf("poll_tally: event=snapshot_committed %s", what));
		if (final)
			snapshot_log_at_commit(
				psprintf("poll_tally: event=poll_closed %s", what));
	}
}

void
snapshot_at_commit(void)
{
	for (int i = list_length(snapshot_log_lines) - 1; i >= 0; i--)
	{
		SnapshotLogLine *entry = list_nth(snapshot_log_lines, i);

		ereport(LOG, (errmsg_internal("%s", entry->line)));
	}
	snapshot_at_end();
}

void
snapshot_at_subcommit(int nest_level)
{
	ListCell *cell;

	foreach (cell, snapshot_log_lines)
	{
		SnapshotLogLine *entry = lfirst(cell);

		if (entry->nest_level < nest_level)
			break;
		entry->nest_level = nest_level - 1;
	}
}

void
snapshot_at_subabort(int nest_level)
{
	while (snapshot_log_lines != NIL &&
		   ((SnapshotLogLine *) linitial(snapshot_log_lines))->nest_level >=
			   nest_level)
		snapshot_log_lines = list_delete_first(snapshot_log_lines);
}

void
snapshot_at_end(void)
{
	/* The list goes with the transaction's context. */
	snapshot_log_lines = NIL;
}

static uint64
snapshot_insert(Datum poll_ids, bool final, bool always)
{
	bool notify = snapshot_may_notify();
	Datum values[] = {poll_ids, BoolGetDatum(final), BoolGetDatum(always),
					  BoolGetDatum(notify)};
	uint64 count = store_run(&publish_snapshots, values, NULL);
	Datum published[2];

	FAULT_POINT("publish-inserted");
	snapshot_log(count, final);
	stats_count_many(STATS_PUBLICATIONS, count);
	published[0] = snapshot_returned_polls(count);
	published[1] = Int32GetDatum(settings_keep_snapshots);
	if (notify)
		(void) store_run(&announce, published, NULL);
	else
		stats_count_many(STATS_NOTIFY_FAILURES, count);
	FAULT_POINT("publish-announced");
	(void) store_run(&forget_old, published, NULL);
	FAULT_POINT("publish-pruned");
	/* An announced revision must not vanish and return with other content. */
	ForceSyncCommit();
	return count;
}

/* Newest revisions to announce: missed ones, and $1: those of the last hour. */
static StoreStatement missed = {
	"SELECT b.poll_id FROM poll_tally.publication b"
	" WHERE b.revision > 0 AND (b.announced < b.revision"
	"  OR $1 AND b.published_at > clock_timestamp() - interval '1 hour')"
	" ORDER BY b.poll_id FOR UPDATE SKIP LOCKED",
	1,
	{BOOLOID},
	NULL};

static StoreStatement mark_announced = {
	"UPDATE poll_tally.publication SET announced = revision"
	" WHERE poll_id = ANY ($1) AND announced < revision",
	1,
	{INT4ARRAYOID},
	NULL};

bool
snapshot_announce_missed(bool lately)
{
	Datum values[] = {BoolGetDatum(lately)};
	uint64 count;
	Datum polls[1];

	if (!snapshot_may_notify())
		return false;
	count = store_run(&missed, values, NULL);
	if (count == 0)
		return true;
	polls[0] = snapshot_returned_polls(count);
	(void) store_run(&announce, polls, NULL);
	(void) store_run(&mark_announced, polls, NULL);
	return true;
}

uint64
snapshot_publish(Datum poll_ids)
{
	return snapshot_insert(poll_ids, false, false);
}

static Datum
snapshot_one_poll(int32 poll_id)
{
	Datum poll = Int32GetDatum(poll_id);

	return PointerGetDatum(
		construct_array(&poll, 1, INT4OID, 4, true, TYPALIGN_INT));
}

void
snapshot_finish(int32 poll_id)
{
	(void) snapshot_insert(snapshot_one_poll(poll_id), true, true);
}

void
snapshot_repair(int32 poll_id)
{
	(void) snapshot_insert(snapshot_one_poll(poll_id), false, true);
}

/* By the poll's number: the view would be read as a whole. */
static StoreStatement newest_row = {
	"SELECT CAST(ROW(p.poll::text, poll_tally.epoch_of(s.poll_id), s.revision,"
	" s.included_position, s.frontier, s.counts, s.total, s.published_at,"
	" s.final) AS poll_tally.snapshots)"
	" FROM poll_tally.publication b"
	" JOIN poll_tally.snapshot s"
	"  ON s.poll_id = b.poll_id AND s.revision = b.revision"
	" JOIN poll_tally.poll p ON p.poll_id = b.poll_id"
	" WHERE b.poll_id = $1",
	1,
	{INT4OID},
	NULL};

/* What the view gives for a poll without a snapshot. */
static StoreStatement empty_row = {
	"SELECT CAST(ROW(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
	" AS poll_tally.snapshots)",
	0,
	{0},
	NULL};

Datum
snapshot_row(int32 poll_id)
{
	Datum values[] = {Int32GetDatum(poll_id)};
	bool isnull;
	Datum row;

	if (store_run(&newest_row, values, NULL) == 0)
		(void) store_run(&empty_row, NULL, NULL);
	row =
		SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	return SPI_datumTransfer(row, false, -1);
}
