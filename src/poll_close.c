/*
 * poll_close.c
 *		Closing a poll.
 *
 * Under all of its lanes, in ascending order, and then its publication row, the
 * poll is marked closed and its final snapshot published, in one transaction.
 * So those judged in time are counted, and nobody is judged later.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"

#include "fault.h"
#include "lane.h"
#include "pending.h"
#include "plant.h"
#include "poll_admin.h"
#include "poll_close.h"
#include "snapshot.h"
#include "store.h"

static StoreStatement mark_closed = {
	"UPDATE poll_tally.poll SET closed_at = clock_timestamp() WHERE poll_id = $1",
	1,
	{INT4OID},
	NULL};

/* Under all lanes: mark the poll closed and publish its final snapshot. */
void
poll_close_under_lanes(int32 poll_id)
{
	Datum values[] = {Int32GetDatum(poll_id)};

	FAULT_POINT("close-lanes-taken");
	snapshot_lock(poll_id);
	lane_lock_changes(poll_id);
	(void) store_run(&mark_closed, values, NULL);
	FAULT_POINT("close-marked");
	snapshot_finish(poll_id);
	FAULT_POINT("close-published");
}

/*
 * A prepared transaction keeps its session's virtual id in pg_locks until a
 * restart, so that it is found by the lock on its own transaction id.
 */
static StoreStatement lane_holders = {
	"SELECT string_agg(h.holder, ', ' ORDER BY h.gid, h.pid) FROM (SELECT"
	"  DISTINCT coalesce('prepared transaction \"' || x.gid || '\"',"
	"   'process ' || l.pid, 'a prepared transaction') AS holder, x.gid, l.pid"
	" FROM pg_locks l"
	" LEFT JOIN (pg_prepared_xacts x JOIN pg_locks t"
	"  ON t.locktype = 'transactionid' AND t.pid IS NULL"
	"  AND t.transactionid::text = x.transaction::text)"
	"  ON l.pid IS NULL AND t.virtualtransaction = l.virtualtransaction"
	" WHERE l.locktype = 'advisory' AND l.granted"
	"  AND l.database = (SELECT d.oid FROM pg_database d"
	"                    WHERE d.datname = current_database())"
	"  AND l.classid = $1 AND l.objsubid = $2 AND l.objid < $3"
	"  AND l.pid IS DISTINCT FROM pg_backend_pid()) AS h",
	3,
	{OIDOID, INT2OID, OIDOID},
	NULL};

/* Who holds a lane of the poll, for an error's detail; NULL for nobody. */
static char *
poll_close_holders(int32 poll_id)
{
	Datum values[] = {ObjectIdGetDatum((Oid) poll_id),
					  Int16GetDatum(LANE_LOCK_CLASS),
					  ObjectIdGetDatum(LANE_MAX)};
	MemoryContext context = CurrentMemoryContext;
	StoreSqlState sql;
	char *holders;

	store_begin_sql(&sql);
	(void) store_run(&lane_holders, values, NULL);
	holders = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (holders != NULL)
		holders = MemoryContextStrdup(context, holders);
	store_end_sql(&sql);
	return holders;
}

/* Tell in the error that ends the wait whom it was for. */
static void
poll_close_wait_failed(void *holders)
{
	int code = geterrcode();

	if (holders != NULL &&
		(code == ERRCODE_LOCK_NOT_AVAILABLE || code == ERRCODE_QUERY_CANCELED))
		errdetail("The poll stays open. Its lanes were held by %s.",
				  (char *) holders);
}

/* Take all lanes of the poll, once those who hold them are done. */
static void
poll_close_await_lanes(const text *name, Poll *poll)
{
	ErrorContextCallback callback;

	if (PLANT(CLOSE_WITHOUT_WAITING))
		return;
	callback.callback = poll_close_wait_failed;
	callback.arg = lane_try_all(poll->poll_id, poll->max_lanes)
					   ? NULL
					   : poll_close_holders(poll->poll_id);
	callback.previous = error_context_stack;
	error_context_stack = &callback;
	poll_admin_require_lanes(name, poll);
	error_context_stack = callback.previous;
}

/*
 * close_poll(poll text) RETURNS the final snapshot
 *
 * Waits for the transactions that were judged in time; then nothing is accepted
 * any more.  Of a closed poll, returns the final snapshot again.  Raises P0002
 * without such a poll, 25001 above READ COMMITTED; lock_timeout and a cancel
 * leave the poll open.
 */
PG_FUNCTION_INFO_V1(close_poll);
Datum
close_poll(PG_FUNCTION_ARGS)
{
	text *name = PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0);
	StoreSqlState sql;
	Datum row;
	Poll poll;

	poll_admin_require_read_committed("close_poll()");
	poll_admin_require(name, &poll);
	if (!poll.closed)
	{
		PreventCommandIfReadOnly("close_poll()");
		pending_flush();
		poll_close_await_lanes(name, &poll);
	}
	store_begin_sql(&sql);
	if (!poll.closed)
		poll_close_under_lanes(poll.poll_id);
	row = snapshot_row(poll.poll_id);
	store_end_sql(&sql);
	PG_RETURN_DATUM(row);
}
