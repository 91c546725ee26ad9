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

/* Bounds of the worker's pause between two passes. */
#define PUBLISHER_MIN_PAUSE_MS 50
#define PUBLISHER_MAX_PAUSE_MS 1000

/* The polls that are due; locked in ascending order, those of others skipped. */
static StoreStatement lock_due = {
	"SELECT b.poll_id FROM poll_tally.publication b"
	" JOIN poll_tally.poll p ON p.poll_id = b.poll_id"
	" JOIN (SELECT l.poll_id, sum(l.seq) AS position FROM poll_tally.lane l"
	"       GROUP BY l.poll_id) AS l ON l.poll_id = b.poll_id"
	" WHERE NOT b.final AND NOT p.hidden_until_close"
	"  AND l.position >= b.included_position + p.publish_min_events"
	"  AND clock_timestamp() >= b.published_at + p.publish_every"
	" ORDER BY b.poll_id FOR UPDATE OF b SKIP LOCKED",
	0,
	{0},
	NULL};

static StoreStatement overdue = {
	"SELECT poll_id, max_lanes FROM poll_tally.poll"
	" WHERE closed_at IS NULL AND closes_at <= clock_timestamp()"
	" ORDER BY poll_id",
	0,
	{0},
	NULL};

static StoreStatement shortest_interval = {
	"SELECT ceil(extract(epoch FROM min(publish_every)) * 1000)::bigint"
	" FROM poll_tally.poll WHERE closed_at IS NULL",
	0,
	{0},
	NULL};

static int32
publisher_int4(uint64 row, int column)
{
	bool isnull;

	return DatumGetInt32(SPI_getbinval(SPI_tuptable->vals[row],
									   SPI_tuptable->tupdesc, column, &isnull));
}

static void
publisher_publish_due(void)
{
	uint64 count = store_run(&lock_due, NULL, NULL);
	Datum *polls;

	if (count == 0)
		return;
	polls = palloc_array(Datum, count);
	for (uint64 i = 0; i < count; i++)
		polls[i] = Int32GetDatum(publisher_int4(i, 1));
	(void) snapshot_publish(PointerGetDatum(
		construct_array(polls, (int) count, INT4OID, 4, true, TYPALIGN_INT)));
}

/* Close each poll past its deadline whose lanes are all free at once. */
static void
publisher_close_overdue(void)
{
	uint64 count = store_run(&overdue, NULL, NULL);
	int32 *polls = palloc_array(int32, count + 1);
	int32 *lanes = palloc_array(int32, count + 1);

	for (uint64 i = 0; i < count; i++)
	{
		polls[i] = publisher_int4(i, 1);
		lanes[i] = publisher_int4(i, 2);
	}
	for (uint64 i = 0; i < count; i++)
		if (lane_try_all(polls[i], lanes[i]))
			poll_close_under_lanes(polls[i]);
}

void
publisher_pass(void)
{
	StoreSqlState sql;

	store_begin_sql(&sql);
	publisher_close_overdue();
	publisher_publish_due();
	store_end_sql(&sql);
}

long
publisher_pause_ms(void)
{
	StoreSqlState sql;
	bool isnull;
	int64 pause;

	store_begin_sql(&sql);
	(void) store_run_read_only(&shortest_interval, NULL, NULL);
	pause = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
										SPI_tuptable->tupdesc, 1, &isnull));
	store_end_sql(&sql);
	if (isnull || pause > PUBLISHER_MAX_PAUSE_MS)
		return PUBLISHER_MAX_PAUSE_MS;
	return Max(pause, PUBLISHER_MIN_PAUSE_MS);
}

/* Is a snapshot of one poll due; with force: did its frontier move? */
static StoreStatement is_due = {
	"SELECT FROM poll_tally.publication b"
	" JOIN poll_tally.poll p ON p.poll_id = b.poll_id"
	" WHERE b.poll_id = $1 AND NOT b.final AND NOT p.hidden_until_close"
	"  AND (SELECT coalesce(sum(l.seq), 0) FROM poll_tally.lane l"
	"       WHERE l.poll_id = $1) - b.included_position"
	"      >= CASE WHEN $2 THEN 1 ELSE p.publish_min_events END"
	"  AND ($2 OR clock_timestamp() >= b.published_at + p.publish_every)",
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
	snapshot_lock(poll.poll_id);
	values[0] = Int32GetDatum(poll.poll_id);
	values[1] = BoolGetDatum(force);
	if (store_run(&is_due, values, NULL) == 1)
		(void) snapshot_publish(PointerGetDatum(
			construct_array(&values[0], 1, INT4OID, 4, true, TYPALIGN_INT)));
	row = snapshot_row(poll.poll_id);
	store_end_sql(&sql);
	PG_RETURN_DATUM(row);
}
