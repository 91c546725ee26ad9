/*
 * observe.c
 *		What viewers were seen to have: observe_revision.
 *
 * A gateway's sampled word, for the view lag.  Nothing is decided by it.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"

#include "lane.h"
#include "poll_admin.h"
#include "store.h"

/* Audiences a poll. */
#define OBSERVE_AUDIENCES 100

/* Is the revision published? */
static StoreStatement published = {
	"SELECT FROM poll_tally.publication b"
	" WHERE b.poll_id = $1 AND b.revision >= $3 AND $3 > 0",
	3,
	{INT4OID, TEXTOID, INT8OID},
	NULL};

/* How many other audiences are there, and is this one among them? */
static StoreStatement audiences = {
	"SELECT count(*) FILTER (WHERE a.audience <> $2),"
	" count(*) FILTER (WHERE a.audience = $2)"
	" FROM poll_tally.audience a WHERE a.poll_id = $1",
	2,
	{INT4OID, TEXTOID},
	NULL};

static StoreStatement add_audience = {
	"INSERT INTO poll_tally.audience (poll_id, audience, revision, observed_at)"
	" VALUES ($1, $2, $3, clock_timestamp())",
	3,
	{INT4OID, TEXTOID, INT8OID},
	NULL};

static StoreStatement move_audience = {
	"UPDATE poll_tally.audience SET revision = $3,"
	" observed_at = clock_timestamp()"
	" WHERE poll_id = $1 AND audience = $2 AND revision < $3",
	3,
	{INT4OID, TEXTOID, INT8OID},
	NULL};

static int64
observe_count(Datum *values, int column)
{
	bool isnull;

	(void) store_run_latest(&audiences, values, NULL);
	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
									   SPI_tuptable->tupdesc, column, &isnull));
}

static void
observe_require_published(Datum *values)
{
	if (store_run_latest(&published, values, NULL) == 0)
		poll_admin_refuse("revision",
						  "The poll has published no such revision.");
}

/*
 * One new audience of a poll at a time, so that there are not too many, and none
 * while the poll is dropped.
 */
static void
observe_add(int32 poll_id, Datum *values)
{
	lane_lock_audiences(poll_id);
	observe_require_published(values);
	if (observe_count(values, 2) > 0)
		return;
	if (observe_count(values, 1) >= OBSERVE_AUDIENCES)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("too many audiences of one poll"),
						errdetail("At most %d are kept.", OBSERVE_AUDIENCES)));
	(void) store_run(&add_audience, values, NULL);
}

/*
 * observe_revision(poll text, audience text, revision bigint) RETURNS void
 *
 * Raises P0002 without such a poll, 22023 for a malformed audience or a revision
 * that is not published, 54000 beyond OBSERVE_AUDIENCES audiences.
 */
PG_FUNCTION_INFO_V1(observe_revision);
Datum
observe_revision(PG_FUNCTION_ARGS)
{
	text *name = PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0);
	StoreSqlState sql;
	Datum values[3];
	Poll poll;

	PreventCommandIfReadOnly("observe_revision()");
	poll_admin_require(name, &poll);
	poll_admin_require_ident("audience", "audience",
							 PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1));
	if (PG_ARGISNULL(2))
		poll_admin_refuse("revision", "It must not be NULL.");
	values[0] = Int32GetDatum(poll.poll_id);
	values[1] = PG_GETARG_DATUM(1);
	values[2] = PG_GETARG_DATUM(2);
	store_begin_sql(&sql);
	observe_require_published(values);
	if (observe_count(values, 2) == 0)
		observe_add(poll.poll_id, values);
	(void) store_run_latest(&move_audience, values, NULL);
	store_end_sql(&sql);
	PG_RETURN_VOID();
}
