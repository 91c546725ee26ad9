/*
 * publisher.c
 *		Which polls are due for a snapshot, and publishing them.
 *
 * A poll is due when its frontier has moved by at least publish_min_events since
 * the newest snapshot and publish_every has passed.  The worker and publish()
 * take the same step; the lock on the publication row keeps them apart.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "lane.h"
#include "pending.h"
#include "poll_admin.h"
#include "poll_close.h"
#include "publisher.h"
#include "snapshot.h"
#include "store.h"

/* How long a look that found nothing stands for the next ones. */
#define PUBLISHER_QUIET_MS 10000

/* A poll whose lanes are not free is tried again after this time. */
#define PUBLISHER_CLOSE_RETRY_MS 200

/*
 * Polls that have moved enough, and in how many ms each is due.  One that was
 * published in the future, by a clock that went back since, is due at once.
 */
static StoreStatement moved_polls = {
	"SELECT b.poll_id, CASE WHEN b.published_at <= clock_timestamp()"
	"  THEN ceil(extract(epoch FROM b.published_at + p.publish_every"
	"   - clock_timestamp()) * 1000)::bigint ELSE 0 END"
	" FROM poll_tally.publication b"
	" JOIN poll_tally.poll p ON p.poll_id = b.poll_id"
	" JOIN (SELECT l.poll_id, sum(l.seq) AS position FROM poll_tally.lane l"
	"       GROUP BY l.poll_id) AS l ON l.poll_id = b.poll_id"
	" WHERE NOT b.final AND NOT p.hidden_until_close"
	"  AND l.position >= b.included_position + p.publish_min_events"
	" ORDER BY b.poll_id",
	0,
	{0},
	NULL};

/* The polls past their deadline, and the next deadline, in ms. */
static StoreStatement closing_polls = {
	"SELECT poll_id, 0::bigint FROM poll_tally.poll"
	" WHERE closed_at IS NULL AND closes_at <= now()"
	" UNION ALL (SELECT poll_id,"
	"   ceil(extract(epoch FROM closes_at - clock_timestamp()) * 1000)::bigint"
	"  FROM poll_tally.poll WHERE closed_at IS NULL AND closes_at > now()"
	"  ORDER BY closes_at LIMIT 1)",
	0,
	{0},
	NULL};

/* The shortest interval of the open polls, in ms; a long one without any. */
static StoreStatement shortest_interval = {
	"SELECT coalesce(ceil(extract(epoch FROM min(publish_every)) * 1000)::bigint,"
	"  2147483647) FROM poll_tally.poll WHERE closed_at IS NULL",
	0,
	{0},
	NULL};

static bool
publisher_is_null(uint64 row, int column)
{
	bool isnull;

	(void) SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column,
						 &isnull);
	return isnull;
}

static Datum
publisher_value(uint64 row, int column)
{
	bool isnull;

	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column,
						 &isnull);
}

/* Those of the statement's polls whose time has come; the others set the pause. */
static List *
publisher_come(StoreStatement *statement, MemoryContext context, long *pause_ms)
{
	uint64 count = store_run(statement, NULL, NULL);
	MemoryContext before = MemoryContextSwitchTo(context);
	List *polls = NIL;

	for (uint64 i = 0; i < count; i++)
	{
		int64 wait =
			publisher_is_null(i, 2) ? 0 : DatumGetInt64(publisher_value(i, 2));

		if (wait <= 0)
			polls = lappend_int(polls, DatumGetInt32(publisher_value(i, 1)));
		else if (*pause_ms < 0 || wait < *pause_ms)
			*pause_ms = (long) Min(wait, INT_MAX);
	}
	MemoryContextSwitchTo(before);
	return polls;
}

/*
 * Fingerprints of where each lane stands, and of the settings by which a poll
 * comes to be due: which lane or poll it is goes into them.
 */
static StoreStatement fingerprints = {
	"SELECT (SELECT coalesce(bit_xor(hashint8extended("
	"          l.poll_id::bigint * 64 + l.lane, l.seq)), 0)"
	"        FROM poll_tally.lane l),"
	"       (SELECT coalesce(bit_xor(interval_hash_extended("
	"          p.publish_every, p.poll_id::bigint << 31"
	"          | p.publish_min_events)), 0)"
	"        FROM poll_tally.poll p)",
	0,
	{0},
	NULL};

/*
 * Has nothing changed since a look that found nothing?  Two states can have the
 * same fingerprint, if hardly ever, so the answer holds for a while only.
 */
static bool
publisher_is_quiet(PublisherQuiet *quiet)
{
	TimestampTz now = GetCurrentTimestamp();
	Oid table = store_relation_oid("lane");
	int64 lanes;
	int64 polls;
	bool same;

	(void) store_run(&fingerprints, NULL, NULL);
	lanes = DatumGetInt64(publisher_value(0, 1));
	polls = DatumGetInt64(publisher_value(0, 2));
	same = quiet->since != 0 && table == quiet->table &&
		   lanes == quiet->lanes && polls == quiet->polls &&
		   now >= quiet->since &&
		   !TimestampDifferenceExceeds(quiet->since, now, PUBLISHER_QUIET_MS);
	if (!same)
		quiet->since = now;
	quiet->table = table;
	quiet->lanes = lanes;
	quiet->polls = polls;
	return same;
}

/*
 * While a poll that is voted in waits for its time, its commits need not wake the
 * worker.  No other comes to be due within the shortest interval either.
 */
static long
publisher_rest(long pause_ms)
{
	(void) store_run(&shortest_interval, NULL, NULL);
	return (long) Min(pause_ms, DatumGetInt64(publisher_value(0, 1)));
}

void
publisher_look(PublisherWork *work, PublisherQuiet *quiet)
{
	MemoryContext context = CurrentMemoryContext;
	StoreSqlState sql;
	long pause_ms = -1;

	work->pause_ms = -1;
	store_begin_sql(&sql);
	work->overdue = publisher_come(&closing_polls, context, &work->pause_ms);
	if (!publisher_is_quiet(quiet))
		work->due = publisher_come(&moved_polls, context, &pause_ms);
	work->rest_ms = pause_ms >= 0 ? publisher_rest(pause_ms) : 0;
	store_end_sql(&sql);
	/* What has moved and is not due yet has to be looked at again. */
	if (work->due != NIL || pause_ms >= 0)
		quiet->since = 0;
	if (pause_ms >= 0 && (work->pause_ms < 0 || pause_ms < work->pause_ms))
		work->pause_ms = pause_ms;
	if (work->overdue != NIL &&
		(work->pause_ms < 0 || work->pause_ms > PUBLISHER_CLOSE_RETRY_MS))
		work->pause_ms = PUBLISHER_CLOSE_RETRY_MS;
}

static Datum
publisher_array(const List *polls)
{
	Datum *elements = palloc_array(Datum, list_length(polls) + 1);
	ListCell *cell;
	int count = 0;

	foreach (cell, polls)
		elements[count++] = Int32GetDatum(lfirst_int(cell));
	return PointerGetDatum(
		construct_array(elements, count, INT4OID, 4, true, TYPALIGN_INT));
}

/* Of the polls that are due, those whose publication row is free, locked. */
static StoreStatement lock_due = {
	"SELECT b.poll_id FROM poll_tally.publication b"
	" WHERE b.poll_id = ANY ($1) AND NOT b.final"
	" ORDER BY b.poll_id FOR UPDATE OF b SKIP LOCKED",
	1,
	{INT4ARRAYOID},
	NULL};

static void
publisher_publish_due(const List *due)
{
	Datum values[] = {publisher_array(due)};
	uint64 count = store_run(&lock_due, values, NULL);
	List *locked = NIL;

	for (uint64 i = 0; i < count; i++)
		locked = lappend_int(locked, DatumGetInt32(publisher_value(i, 1)));
	if (locked != NIL)
		(void) snapshot_publish(publisher_array(locked));
}

/*
 * An open transaction that changes the poll or its roll has the lock of its
 * changes; the row as well, and so may who writes to the table by hand.
 */
static StoreStatement try_lock_poll = {
	"SELECT FROM poll_tally.poll WHERE poll_id = $1"
	" FOR NO KEY UPDATE SKIP LOCKED",
	1,
	{INT4OID},
	NULL};

static bool
publisher_try_lock_poll(int32 poll_id)
{
	Datum values[] = {Int32GetDatum(poll_id)};

	return lane_try_changes(poll_id) &&
		   store_run(&try_lock_poll, values, NULL) == 1;
}

/* Close a poll past its deadline, if its lanes and its rows are free at once. */
static void
publisher_close(int32 poll_id)
{
	char *name = poll_name(poll_id);
	Poll poll;

	if (name == NULL || !poll_find(cstring_to_text(name), &poll) || poll.closed)
		return;
	if (!lane_try_all(poll_id, poll.max_lanes))
		return;
	/* The deadline may have been put off while we took the lanes. */
	if (!poll_find(cstring_to_text(name), &poll) || poll.closed ||
		GetCurrentTimestamp() < poll.closes_at || !snapshot_try_lock(poll_id) ||
		!publisher_try_lock_poll(poll_id))
		lane_release_all(poll_id, poll.max_lanes);
	else
		poll_close_under_lanes(poll_id);
}

void
publisher_do(const PublisherWork *work)
{
	StoreSqlState sql;
	ListCell *cell;

	store_begin_sql(&sql);
	foreach (cell, work->overdue)
		publisher_close(lfirst_int(cell));
	if (work->due != NIL)
		publisher_publish_due(work->due);
	store_end_sql(&sql);
}

bool
publisher_announce(bool lately)
{
	StoreSqlState sql;
	bool done;

	store_begin_sql(&sql);
	done = snapshot_announce_missed(lately);
	store_end_sql(&sql);
	return done;
}

/* Is a snapshot of one poll due; with force: did its frontier move? */
static StoreStatement is_due = {
	"SELECT FROM poll_tally.publication b"
	" JOIN poll_tally.poll p ON p.poll_id = b.poll_id"
	" WHERE b.poll_id = $1 AND NOT b.final AND NOT p.hidden_until_close"
	"  AND (SELECT coalesce(sum(l.seq), 0) FROM poll_tally.lane l"
	"       WHERE l.poll_id = $1) - b.included_position"
	"      >= CASE WHEN $2 THEN 1 ELSE p.publish_min_events END"
	"  AND ($2 OR clock_timestamp() >= b.published_at + p.publish_every"
	"   OR clock_timestamp() < b.published_at)",
	2,
	{INT4OID, BOOLOID},
	NULL};

/*
 * publish(poll text, force boolean) RETURNS the newest snapshot
 *
 * The step that the worker takes, for one poll.  Raises P0002 without such a
 * poll, 25001 above READ COMMITTED, 25006 in a read-only transaction.
 */
PG_FUNCTION_INFO_V1(publisher_publish);
Datum
publisher_publish(PG_FUNCTION_ARGS)
{
	text *name = PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0);
	bool force = !PG_ARGISNULL(1) && PG_GETARG_BOOL(1);
	StoreSqlState sql;
	Datum values[2];
	Datum row;
	Poll poll;

	PreventCommandIfReadOnly("publish()");
	poll_admin_require_read_committed("publish()");
	poll_admin_require(name, &poll);
	pending_flush();

	store_begin_sql(&sql);
	lane_note_publication(poll.poll_id);
	snapshot_lock(poll.poll_id);
	values[0] = Int32GetDatum(poll.poll_id);
	values[1] = BoolGetDatum(force);
	if (store_run(&is_due, values, NULL) == 1)
		(void) snapshot_publish(publisher_array(list_make1_int(poll.poll_id)));
	row = snapshot_row(poll.poll_id);
	store_end_sql(&sql);
	PG_RETURN_DATUM(row);
}
