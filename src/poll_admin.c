/*
 * poll_admin.c
 *		Making a poll, adding choices to it, closing and dropping it.
 *
 * Each happens once in a poll's life, so it goes through SQL.  Closing changes
 * the poll under all of its lanes: nobody is judging then, and whoever takes a
 * lane afterwards reads the poll anew.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "lane.h"
#include "ledger.h"
#include "pending.h"
#include "poll_admin.h"
#include "snapshot.h"
#include "store.h"
#include "validate.h"

/* Most choices an event may name, whatever the poll. */
#define POLL_MAX_CHOICES_LIMIT 1000

/*
 * Choices whose counts are kept in the lane's own row: the first ones, as long
 * as keys and counts together stay below this many bytes, so that the row stays
 * small enough to be updated in place many times a page.
 */
#define POLL_NARROW_BYTES 1000

/* Positions of create_poll's arguments. */
enum CreatePollArgument
{
	CREATE_POLL,
	CREATE_CHOICES,
	CREATE_TITLE,
	CREATE_COUNTING,
	CREATE_MAX_ATTEMPTS,
	CREATE_MAX_CHOICES,
	CREATE_MIN_WEIGHT,
	CREATE_MAX_WEIGHT,
	CREATE_OPEN_CHOICES,
	CREATE_RESTRICTED,
	CREATE_MIN_COUNT,
	CREATE_MAX_COUNT,
	CREATE_OPENS_AT,
	CREATE_CLOSES_AT,
	CREATE_HIDDEN_UNTIL_CLOSE,
	CREATE_PUBLISH_EVERY,
	CREATE_PUBLISH_MIN_EVENTS,
	CREATE_NOTIFY,
	CREATE_MAX_LANES,
	CREATE_ARGUMENTS
};

static const char *const create_poll_names[] = {"poll",
												"choices",
												"title",
												"counting",
												"max_attempts",
												"max_choices",
												"min_weight",
												"max_weight",
												"open_choices",
												"restricted",
												"min_count",
												"max_count",
												"opens_at",
												"closes_at",
												"hidden_until_close",
												"publish_every",
												"publish_min_events",
												"notify",
												"max_lanes"};

static void
poll_admin_refuse(const char *argument, const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("invalid value for argument \"%s\"", argument),
					errdetail_internal("%s", detail)));
}

static void
poll_admin_require_ident(const char *argument, const text *value)
{
	char *problem = validate_ident(argument, value);

	if (problem != NULL)
		poll_admin_refuse(argument, problem);
}

/* Arguments that have a default other than NULL may not be NULL. */
static void
create_poll_check_nulls(FunctionCallInfo fcinfo)
{
	static const int nullable[] = {CREATE_TITLE,     CREATE_MAX_ATTEMPTS,
								   CREATE_MIN_COUNT, CREATE_MAX_COUNT,
								   CREATE_OPENS_AT,  CREATE_CLOSES_AT,
								   CREATE_MAX_LANES};

	for (int i = 0; i < CREATE_ARGUMENTS; i++)
	{
		bool may_be_null = false;

		for (int j = 0; j < lengthof(nullable); j++)
			may_be_null |= nullable[j] == i;
		if (PG_ARGISNULL(i) && !may_be_null)
			poll_admin_refuse(create_poll_names[i], "It must not be NULL.");
	}
}

static void
create_poll_check_counting(FunctionCallInfo fcinfo)
{
	char *counting = text_to_cstring(PG_GETARG_TEXT_PP(CREATE_COUNTING));
	char *notify = text_to_cstring(PG_GETARG_TEXT_PP(CREATE_NOTIFY));

	if (strcmp(counting, "once") != 0 && strcmp(counting, "latest") != 0 &&
		strcmp(counting, "every") != 0)
		poll_admin_refuse("counting", "It must be once, latest or every.");
	if (!PG_ARGISNULL(CREATE_MAX_ATTEMPTS))
	{
		int attempts = PG_GETARG_INT32(CREATE_MAX_ATTEMPTS);

		if (attempts < 1)
			poll_admin_refuse("max_attempts",
							  "It must be at least 1, or NULL for no bound.");
		if (strcmp(counting, "once") == 0 && attempts != 1)
			poll_admin_refuse("max_attempts",
							  "A poll that counts once allows 1 attempt.");
	}
	if (strcmp(notify, "snapshot") != 0 && strcmp(notify, "pointer") != 0)
		poll_admin_refuse("notify", "It must be snapshot or pointer.");
}

static void
create_poll_check_weights(FunctionCallInfo fcinfo)
{
	int max_choices = PG_GETARG_INT32(CREATE_MAX_CHOICES);
	int64 min_weight = PG_GETARG_INT64(CREATE_MIN_WEIGHT);
	int64 max_weight = PG_GETARG_INT64(CREATE_MAX_WEIGHT);

	if (max_choices < 1 || max_choices > POLL_MAX_CHOICES_LIMIT)
		poll_admin_refuse("max_choices", psprintf("It must be 1 to %d.",
												  POLL_MAX_CHOICES_LIMIT));
	if (min_weight > max_weight)
		poll_admin_refuse("min_weight", "It must not be above max_weight.");
	if (min_weight == 0 && max_weight == 0)
		poll_admin_refuse("max_weight", "No event could count with 0 to 0.");
}

static void
create_poll_check_limits(FunctionCallInfo fcinfo)
{
	bool limited =
		!PG_ARGISNULL(CREATE_MIN_COUNT) || !PG_ARGISNULL(CREATE_MAX_COUNT);

	if (!PG_ARGISNULL(CREATE_MIN_COUNT) &&
		PG_GETARG_INT64(CREATE_MIN_COUNT) > 0)
		poll_admin_refuse("min_count",
						  "It must not be above 0, where every count begins.");
	if (!PG_ARGISNULL(CREATE_MAX_COUNT) &&
		PG_GETARG_INT64(CREATE_MAX_COUNT) < 0)
		poll_admin_refuse("max_count",
						  "It must not be below 0, where every count begins.");
	if (!PG_ARGISNULL(CREATE_MAX_LANES))
	{
		int lanes = PG_GETARG_INT32(CREATE_MAX_LANES);

		if (lanes < 1 || lanes > LANE_MAX)
			poll_admin_refuse("max_lanes",
							  psprintf("It must be 1 to %d.", LANE_MAX));
		if (limited && lanes > 1)
			poll_admin_refuse(
				"max_lanes",
				"A poll with min_count or max_count has one lane, so that the limit is exact.");
	}
	if (PG_GETARG_INT32(CREATE_PUBLISH_MIN_EVENTS) < 1)
		poll_admin_refuse("publish_min_events", "It must be at least 1.");
}

static void
create_poll_check_times(FunctionCallInfo fcinfo)
{
	Interval *every = PG_GETARG_INTERVAL_P(CREATE_PUBLISH_EVERY);
	TimestampTz opens_at = PG_ARGISNULL(CREATE_OPENS_AT)
							   ? DT_NOBEGIN
							   : PG_GETARG_TIMESTAMPTZ(CREATE_OPENS_AT);
	TimestampTz closes_at = PG_ARGISNULL(CREATE_CLOSES_AT)
								? DT_NOEND
								: PG_GETARG_TIMESTAMPTZ(CREATE_CLOSES_AT);

	poll_admin_check_interval(every);
	if (TIMESTAMP_IS_NOEND(opens_at))
		poll_admin_refuse("opens_at", "A poll that never opens is none.");
	if (TIMESTAMP_IS_NOBEGIN(closes_at))
		poll_admin_refuse("closes_at",
						  "A poll that was closed since ever is none.");
	if (opens_at >= closes_at)
		poll_admin_refuse("opens_at", "It must be before closes_at.");
}

void
poll_admin_check_interval(const Interval *every)
{
	if (every->month < 0 || every->day < 0 || every->time < 0 ||
		(every->month == 0 && every->day == 0 && every->time == 0))
		poll_admin_refuse("publish_every",
						  "It must be above 0, with no negative part.");
}

/* What is accepted in the arguments and not built yet: refused, not ignored. */
static void
create_poll_check_supported(FunctionCallInfo fcinfo)
{
	if (PG_GETARG_BOOL(CREATE_OPEN_CHOICES))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("open_choices is not supported yet")));
}

/* Each choice is an identifier and stands once. */
static void
create_poll_check_choices(ArrayType *array)
{
	Datum *choices;
	bool *nulls;
	TallyEntry *sorted;
	int count;
	int twice;

	if (ARR_NDIM(array) > 1)
		poll_admin_refuse("choices", "It must be an array of one dimension.");
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &choices, &nulls,
					  &count);
	sorted = palloc_array(TallyEntry, count + 1);
	for (int i = 0; i < count; i++)
	{
		text *choice = nulls[i] ? NULL : DatumGetTextPP(choices[i]);

		poll_admin_require_ident("choices", choice);
		sorted[i].choice = VARDATA_ANY(choice);
		sorted[i].length = (int) VARSIZE_ANY_EXHDR(choice);
		sorted[i].count = 1;
	}
	twice = tally_sort(sorted, count);
	if (twice >= 0)
		poll_admin_refuse("choices",
						  psprintf("Choice \"%.*s\" stands twice.",
								   sorted[twice].length, sorted[twice].choice));
}

/* The choices that create_poll was given, in their order. */
static StoreStatement insert_choices = {
	"INSERT INTO poll_tally.choice (poll_id, ord, narrow, choice)"
	" SELECT $1, u.ord, sum(length(u.choice) + 9) OVER (ORDER BY u.ord) <= $3,"
	"        u.choice"
	" FROM unnest($2) WITH ORDINALITY AS u (choice, ord)",
	3,
	{INT4OID, TEXTARRAYOID, INT8OID},
	NULL};

static StoreStatement insert_poll = {
	"INSERT INTO poll_tally.poll (poll, title, counting, max_attempts,"
	" max_choices, min_weight, max_weight, open_choices, restricted, min_count,"
	" max_count, opens_at, closes_at, hidden_until_close, publish_every,"
	" publish_min_events, notify, max_lanes)"
	" VALUES ($1, $3, $4, CASE WHEN $4 = 'once' THEN 1 ELSE $5 END, $6, $7, $8,"
	" $9, $10, $11, $12, nullif($13, '-infinity'), nullif($14, 'infinity'), $15,"
	" $16, $17, $18, coalesce($19, CASE WHEN $11 IS NULL AND $12 IS NULL"
	"                              THEN $20 ELSE 1 END))"
	" ON CONFLICT (poll) DO NOTHING RETURNING poll_id",
	CREATE_ARGUMENTS + 1,
	{TEXTOID,     TEXTARRAYOID, TEXTOID,        TEXTOID,        INT4OID,
	 INT4OID,     INT8OID,      INT8OID,        BOOLOID,        BOOLOID,
	 INT8OID,     INT8OID,      TIMESTAMPTZOID, TIMESTAMPTZOID, BOOLOID,
	 INTERVALOID, INT4OID,      TEXTOID,        INT4OID,        INT4OID},
	NULL};

/* Insert the poll's own row from the arguments, and return its number. */
static int32
create_poll_insert(FunctionCallInfo fcinfo)
{
	Datum values[CREATE_ARGUMENTS + 1];
	char nulls[CREATE_ARGUMENTS + 1];
	bool isnull;

	for (int i = 0; i < CREATE_ARGUMENTS; i++)
	{
		values[i] = PG_GETARG_DATUM(i);
		nulls[i] = PG_ARGISNULL(i) ? 'n' : ' ';
	}
	values[CREATE_ARGUMENTS] = Int32GetDatum(LANE_DEFAULT);
	nulls[CREATE_ARGUMENTS] = ' ';
	if (store_run(&insert_poll, values, nulls) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("poll \"%s\" already exists",
						text_to_cstring(PG_GETARG_TEXT_PP(CREATE_POLL)))));
	return DatumGetInt32(SPI_getbinval(SPI_tuptable->vals[0],
									   SPI_tuptable->tupdesc, 1, &isnull));
}

/*
 * create_poll(poll text, choices text[], …, max_lanes int) RETURNS void
 *
 * Raises 42710 when there is a poll of this name, 22023 for a bad argument or
 * combination of arguments.
 */
PG_FUNCTION_INFO_V1(create_poll);
Datum
create_poll(PG_FUNCTION_ARGS)
{
	StoreSqlState sql;
	Datum choices[3];
	int32 poll_id;

	PreventCommandIfReadOnly("create_poll()");
	create_poll_check_nulls(fcinfo);
	poll_admin_require_ident("poll", PG_GETARG_TEXT_PP(CREATE_POLL));
	create_poll_check_counting(fcinfo);
	create_poll_check_weights(fcinfo);
	create_poll_check_limits(fcinfo);
	create_poll_check_times(fcinfo);
	create_poll_check_choices(PG_GETARG_ARRAYTYPE_P(CREATE_CHOICES));
	create_poll_check_supported(fcinfo);

	store_begin_sql(&sql);
	poll_id = create_poll_insert(fcinfo);
	choices[0] = Int32GetDatum(poll_id);
	choices[1] = PG_GETARG_DATUM(CREATE_CHOICES);
	choices[2] = Int64GetDatum(POLL_NARROW_BYTES);
	(void) store_run(&insert_choices, choices, NULL);
	snapshot_begin(poll_id, PG_GETARG_BOOL(CREATE_HIDDEN_UNTIL_CLOSE));
	store_end_sql(&sql);
	PG_RETURN_VOID();
}

/* The poll that an argument names; P0002 when there is none. */
void
poll_admin_require(const text *name, Poll *poll)
{
	if (name == NULL || !poll_find(name, poll))
		ereport(ERROR, (errcode(ERRCODE_NO_DATA_FOUND),
						name == NULL ? errmsg("poll is NULL")
									 : errmsg("poll \"%s\" does not exist",
											  text_to_cstring(name))));
}

/* 55000 for a poll that is closed, or whose deadline has passed. */
static void
poll_admin_require_open(const text *name, const Poll *poll)
{
	if (poll->closed)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("poll \"%s\" is closed", text_to_cstring(name))));
	if (GetCurrentTimestamp() >= poll->closes_at)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the deadline of poll \"%s\" has passed",
						text_to_cstring(name)),
				 errdetail("It was %s.", timestamptz_to_str(poll->closes_at))));
}

void
poll_admin_require_read_committed(const char *function)
{
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s must run at READ COMMITTED", function),
				 errdetail("It has to see what others commit while it waits "
						   "for them.")));
}

/* One more choice of a poll, with the next number. */
static StoreStatement insert_choice = {
	"INSERT INTO poll_tally.choice (poll_id, ord, narrow, choice, label)"
	" SELECT $1, coalesce(max(c.ord), 0) + 1,"
	"        coalesce(sum(length(c.choice) + 9), 0) + length($2) + 9 <= $4,"
	"        $2, $3"
	" FROM poll_tally.choice c WHERE c.poll_id = $1"
	" ON CONFLICT (poll_id, choice) DO NOTHING",
	4,
	{INT4OID, TEXTOID, TEXTOID, INT8OID},
	NULL};

static StoreStatement lock_poll = {
	"SELECT FROM poll_tally.poll WHERE poll_id = $1 FOR NO KEY UPDATE",
	1,
	{INT4OID},
	NULL};

/*
 * add_choice(poll text, choice text, label text) RETURNS void
 *
 * Raises P0002 without such a poll, 55000 when it is closed or its deadline has
 * passed, 22023 for a malformed choice, 42710 when the poll has it already.
 */
PG_FUNCTION_INFO_V1(add_choice);
Datum
add_choice(PG_FUNCTION_ARGS)
{
	text *name = PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0);
	text *choice = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);
	char nulls[] = {' ', ' ', PG_ARGISNULL(2) ? 'n' : ' ', ' '};
	Datum values[4];
	StoreSqlState sql;
	Poll poll;

	PreventCommandIfReadOnly("add_choice()");
	poll_admin_require(name, &poll);
	poll_admin_require_ident("choice", choice);
	store_begin_sql(&sql);
	values[0] = Int32GetDatum(poll.poll_id);
	/* One at a time, so that numbers stay apart, and not while it closes. */
	(void) store_run(&lock_poll, values, NULL);
	poll_admin_require(name, &poll);
	poll_admin_require_open(name, &poll);
	values[1] = PointerGetDatum(choice);
	values[2] = PG_GETARG_DATUM(2);
	values[3] = Int64GetDatum(POLL_NARROW_BYTES);
	if (store_run(&insert_choice, values, nulls) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("poll \"%s\" already has the choice \"%s\"",
						text_to_cstring(name), text_to_cstring(choice))));
	store_end_sql(&sql);
	PG_RETURN_VOID();
}

static StoreStatement mark_closed = {
	"UPDATE poll_tally.poll SET closed_at = clock_timestamp() WHERE poll_id = $1",
	1,
	{INT4OID},
	NULL};

/* Under all lanes: mark the poll closed and publish its final snapshot. */
void
poll_admin_close_under_lanes(int32 poll_id)
{
	Datum values[] = {Int32GetDatum(poll_id)};

	snapshot_lock(poll_id);
	(void) store_run(&mark_closed, values, NULL);
	snapshot_finish(poll_id);
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
		lane_acquire_all(poll.poll_id, poll.max_lanes);
		poll_admin_require(name, &poll);
	}
	store_begin_sql(&sql);
	if (!poll.closed)
		poll_admin_close_under_lanes(poll.poll_id);
	row = snapshot_row(poll.poll_id);
	store_end_sql(&sql);
	PG_RETURN_DATUM(row);
}

/* Delete what all the tables have of a poll. */
static void
drop_poll_rows(int32 poll_id)
{
	static StoreStatement statements[] = {
		{"DELETE FROM poll_tally.ledger WHERE poll_id = $1",
		 1,
		 {INT4OID},
		 NULL},
		{"DELETE FROM poll_tally.snapshot WHERE poll_id = $1",
		 1,
		 {INT4OID},
		 NULL},
		{"DELETE FROM poll_tally.publication WHERE poll_id = $1",
		 1,
		 {INT4OID},
		 NULL},
		{"DELETE FROM poll_tally.lane_count WHERE poll_id = $1",
		 1,
		 {INT4OID},
		 NULL},
		{"DELETE FROM poll_tally.lane WHERE poll_id = $1", 1, {INT4OID}, NULL},
		{"DELETE FROM poll_tally.roll WHERE poll_id = $1", 1, {INT4OID}, NULL},
		{"DELETE FROM poll_tally.choice WHERE poll_id = $1",
		 1,
		 {INT4OID},
		 NULL},
		{"DELETE FROM poll_tally.poll WHERE poll_id = $1", 1, {INT4OID}, NULL},
	};
	Datum values[] = {Int32GetDatum(poll_id)};

	for (int i = 0; i < lengthof(statements); i++)
		(void) store_run(&statements[i], values, NULL);
}

/*
 * drop_poll(poll text) RETURNS void
 *
 * Removes a closed poll and its events; their ids are free again.  Raises P0002
 * without such a poll, 55000 when it is open.
 */
PG_FUNCTION_INFO_V1(drop_poll);
Datum
drop_poll(PG_FUNCTION_ARGS)
{
	text *name = PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0);
	StoreSqlState sql;
	Datum values[1];
	Poll poll;

	PreventCommandIfReadOnly("drop_poll()");
	poll_admin_require(name, &poll);
	store_begin_sql(&sql);
	values[0] = Int32GetDatum(poll.poll_id);
	(void) store_run(&lock_poll, values, NULL);
	poll_admin_require(name, &poll);
	if (!poll.closed)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("poll \"%s\" is open", text_to_cstring(name)),
				 errhint("Close it first, with poll_tally.close_poll().")));
	ledger_unguarded(drop_poll_rows, poll.poll_id);
	store_end_sql(&sql);
	PG_RETURN_VOID();
}
