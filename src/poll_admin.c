/*
 * poll_admin.c
 *		Changing a poll: choices, roll and settings, and dropping it.
 *
 * Each happens seldom in a poll's life, so it goes through SQL.  What a judge
 * reads under a lane (closed_at, closes_at) changes under all lanes: nobody is
 * judging then, and whoever takes a lane afterwards reads the poll anew.
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
#include "store.h"
#include "validate.h"

void
poll_admin_refuse(const char *argument, const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("invalid value for argument \"%s\"", argument),
					errdetail_internal("%s", detail)));
}

void
poll_admin_require_ident(const char *argument, const char *noun,
						 const text *value)
{
	char *problem = validate_ident(noun, value);

	if (problem != NULL)
		poll_admin_refuse(argument, problem);
}

#define POLL_MAX_PUBLISH_YEARS 1000

void
poll_admin_check_interval(const Interval *every)
{
	if (every->month < 0 || every->day < 0 || every->time < 0 ||
		(every->month == 0 && every->day == 0 && every->time == 0))
		poll_admin_refuse("publish_every",
						  "It must be above 0, with no negative part.");
	/* Far from where adding it to a time fails, for all polls of a look. */
	if (every->month > POLL_MAX_PUBLISH_YEARS * MONTHS_PER_YEAR ||
		every->day > POLL_MAX_PUBLISH_YEARS * 366 ||
		every->time > POLL_MAX_PUBLISH_YEARS * 366 * USECS_PER_DAY)
		poll_admin_refuse(
			"publish_every",
			psprintf("It must not be above %d years.", POLL_MAX_PUBLISH_YEARS));
}

void
poll_admin_check_notify(const text *notify)
{
	char *value = text_to_cstring(notify);

	if (strcmp(value, "snapshot") != 0 && strcmp(value, "pointer") != 0)
		poll_admin_refuse("notify", "It must be snapshot or pointer.");
}

void
poll_admin_require(const text *name, Poll *poll)
{
	if (name == NULL || !poll_find(name, poll))
		ereport(ERROR, (errcode(ERRCODE_NO_DATA_FOUND),
						name == NULL ? errmsg("poll is NULL")
									 : errmsg("poll \"%s\" does not exist",
											  text_to_cstring(name))));
}

void
poll_admin_require_lanes(const text *name, Poll *poll)
{
	int32 held = 0;

	poll_admin_require(name, poll);
	while (poll->poll_id != held)
	{
		held = poll->poll_id;
		lane_acquire_all(held, poll->max_lanes);
		poll_admin_require(name, poll);
	}
}

void
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
	/* Lanes may have counted a key in rows of its own, or be about to. */
	"        NOT (SELECT p.open_choices FROM poll_tally.poll p"
	"             WHERE p.poll_id = $1)"
	"        AND coalesce(sum(length(c.choice) + 9), 0) + length($2) + 9 <= $4,"
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

/* Locks the row, and fails at REPEATABLE READ when another has touched it. */
static StoreStatement touch_poll = {
	"UPDATE poll_tally.poll SET max_lanes = max_lanes WHERE poll_id = $1",
	1,
	{INT4OID},
	NULL};

/* A statement found no row of a poll that is there, or was just now. */
static void
poll_admin_require_seen(const text *name)
{
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access to poll \"%s\"",
						text_to_cstring(name)),
				 errdetail("It was created after the transaction's snapshot "
						   "was taken."),
				 errhint("The transaction might succeed if retried.")));
}

/*
 * The poll of the name, its row locked by the statement; as above, it can have
 * been replaced while we waited.  Between store_begin_sql and store_end_sql.
 */
static void
poll_admin_lock(StoreStatement *lock, const text *name, Poll *poll)
{
	int32 locked = 0;

	poll_admin_require(name, poll);
	while (poll->poll_id != locked)
	{
		Datum values[] = {Int32GetDatum(poll->poll_id)};

		/* Unlike the row's lock, this one shows. */
		lane_lock_changes(poll->poll_id);
		if (store_run(lock, values, NULL) == 1)
			locked = poll->poll_id;
		else
			poll_admin_require_seen(name);
		CHECK_FOR_INTERRUPTS();
		poll_admin_require(name, poll);
	}
}

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
	poll_admin_require_ident("choice", "choice", choice);
	store_begin_sql(&sql);
	/* One at a time, so that numbers stay apart, and not while it closes. */
	poll_admin_lock(&touch_poll, name, &poll);
	poll_admin_require_open(name, &poll);
	values[0] = Int32GetDatum(poll.poll_id);
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

static StoreStatement enroll = {
	"INSERT INTO poll_tally.roll (poll_id, principal)"
	" SELECT DISTINCT $1, u.principal FROM unnest($2) AS u (principal)"
	" ON CONFLICT DO NOTHING",
	2,
	{INT4OID, TEXTARRAYOID},
	NULL};

static StoreStatement strike_off = {
	"DELETE FROM poll_tally.roll WHERE poll_id = $1 AND principal = ANY ($2)",
	2,
	{INT4OID, TEXTARRAYOID},
	NULL};

/* Each element is an identifier. */
static void
set_eligible_check(ArrayType *principals)
{
	Datum *elements;
	bool *nulls;
	int count;

	deconstruct_array(principals, TEXTOID, -1, false, TYPALIGN_INT, &elements,
					  &nulls, &count);
	for (int i = 0; i < count; i++)
		poll_admin_require_ident("principals", "principal",
								 nulls[i] ? NULL : DatumGetTextPP(elements[i]));
}

static void
set_eligible_require_roll(const Poll *poll)
{
	if (!poll->restricted)
		poll_admin_refuse("poll",
						  "The poll is not restricted: it has no roll.");
}

/*
 * set_eligible(poll text, principals text[], eligible boolean) RETURNS bigint
 *
 * Put principals on the roll of a restricted poll, or take them off; returns how
 * many changed.  Raises P0002 without such a poll, 22023 when it is not
 * restricted or a principal is malformed, 55000 when it is closed or its deadline
 * has passed.
 */
PG_FUNCTION_INFO_V1(set_eligible);
Datum
set_eligible(PG_FUNCTION_ARGS)
{
	text *name = PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0);
	bool eligible = !PG_ARGISNULL(2) && PG_GETARG_BOOL(2);
	StoreSqlState sql;
	Datum values[2];
	uint64 changed;
	Poll poll;

	PreventCommandIfReadOnly("set_eligible()");
	poll_admin_require(name, &poll);
	set_eligible_require_roll(&poll);
	if (PG_ARGISNULL(1))
		poll_admin_refuse("principals", "It must not be NULL.");
	if (PG_ARGISNULL(2))
		poll_admin_refuse("eligible", "It must not be NULL.");
	set_eligible_check(PG_GETARG_ARRAYTYPE_P(1));
	store_begin_sql(&sql);
	/* Not while it is closed or dropped. */
	poll_admin_lock(&lock_poll, name, &poll);
	poll_admin_require_open(name, &poll);
	set_eligible_require_roll(&poll);
	values[0] = Int32GetDatum(poll.poll_id);
	values[1] = PG_GETARG_DATUM(1);
	changed = store_run(eligible ? &enroll : &strike_off, values, NULL);
	store_end_sql(&sql);
	PG_RETURN_INT64((int64) changed);
}

/* Positions of alter_poll's arguments. */
enum AlterPollArgument
{
	ALTER_POLL,
	ALTER_TITLE,
	ALTER_CLOSES_AT,
	ALTER_OPENS_AT,
	ALTER_PUBLISH_EVERY,
	ALTER_PUBLISH_MIN_EVENTS,
	ALTER_NOTIFY,
	ALTER_MAX_ATTEMPTS,
	ALTER_ARGUMENTS
};

/* NULL leaves a setting; 'infinity' clears a time. */
static StoreStatement update_poll = {
	"UPDATE poll_tally.poll SET title = coalesce($2, title),"
	" closes_at = CASE WHEN $3 IS NULL THEN closes_at"
	"             ELSE nullif($3, 'infinity') END,"
	" opens_at = CASE WHEN $4 IS NULL THEN opens_at"
	"            ELSE nullif(nullif($4, 'infinity'), '-infinity') END,"
	" publish_every = coalesce($5, publish_every),"
	" publish_min_events = coalesce($6, publish_min_events),"
	" notify = coalesce($7, notify),"
	" max_attempts = coalesce($8, max_attempts) WHERE poll_id = $1",
	ALTER_ARGUMENTS,
	{INT4OID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INTERVALOID, INT4OID,
	 TEXTOID, INT4OID},
	NULL};

/* The times after the change have to be in order, the deadline ahead of us. */
static void
alter_poll_check_times(FunctionCallInfo fcinfo, const Poll *poll)
{
	TimestampTz closes_at = PG_ARGISNULL(ALTER_CLOSES_AT)
								? poll->closes_at
								: PG_GETARG_TIMESTAMPTZ(ALTER_CLOSES_AT);
	TimestampTz opens_at = PG_ARGISNULL(ALTER_OPENS_AT)
							   ? poll->opens_at
							   : PG_GETARG_TIMESTAMPTZ(ALTER_OPENS_AT);

	if (!PG_ARGISNULL(ALTER_CLOSES_AT) && closes_at <= GetCurrentTimestamp())
		poll_admin_refuse(
			"closes_at",
			"It must lie in the future; use close_poll() to close now.");
	if (TIMESTAMP_IS_NOEND(opens_at))
		opens_at = DT_NOBEGIN;
	if (opens_at >= closes_at)
		poll_admin_refuse("opens_at", "It must be before closes_at.");
}

static void
alter_poll_check(FunctionCallInfo fcinfo, const Poll *poll)
{
	alter_poll_check_times(fcinfo, poll);
	if (!PG_ARGISNULL(ALTER_PUBLISH_EVERY))
		poll_admin_check_interval(PG_GETARG_INTERVAL_P(ALTER_PUBLISH_EVERY));
	if (!PG_ARGISNULL(ALTER_PUBLISH_MIN_EVENTS) &&
		PG_GETARG_INT32(ALTER_PUBLISH_MIN_EVENTS) < 1)
		poll_admin_refuse("publish_min_events", "It must be at least 1.");
	if (!PG_ARGISNULL(ALTER_NOTIFY))
		poll_admin_check_notify(PG_GETARG_TEXT_PP(ALTER_NOTIFY));
	if (PG_ARGISNULL(ALTER_MAX_ATTEMPTS))
		return;
	if (poll->counting == COUNTING_ONCE)
		poll_admin_refuse("max_attempts",
						  "A poll that counts once allows 1 attempt.");
	if (poll->max_attempts == 0 ||
		PG_GETARG_INT32(ALTER_MAX_ATTEMPTS) < poll->max_attempts)
		poll_admin_refuse(
			"max_attempts",
			"It can only go up: lowering it would change what was counted.");
}

/*
 * alter_poll(poll text, title text, closes_at timestamptz, opens_at timestamptz,
 *			  publish_every interval, publish_min_events int, notify text,
 *			  max_attempts int) RETURNS void
 *
 * Raises P0002 without such a poll, 55000 when it is closed or its deadline has
 * passed, 22023 for a bad value or a change that is never allowed.  closes_at
 * changes under all lanes, so it waits for the events being judged.
 */
PG_FUNCTION_INFO_V1(alter_poll);
Datum
alter_poll(PG_FUNCTION_ARGS)
{
	text *name = PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0);
	Datum values[ALTER_ARGUMENTS];
	char nulls[ALTER_ARGUMENTS];
	StoreSqlState sql;
	Poll poll;

	PreventCommandIfReadOnly("alter_poll()");
	poll_admin_require(name, &poll);
	if (!PG_ARGISNULL(ALTER_CLOSES_AT))
	{
		poll_admin_require_lanes(name, &poll);
		lane_lock_deadline(poll.poll_id);
		/* An open poll stays as long as its lanes are held. */
		poll_admin_require_open(name, &poll);
	}
	store_begin_sql(&sql);
	poll_admin_lock(&lock_poll, name, &poll);
	poll_admin_require_open(name, &poll);
	alter_poll_check(fcinfo, &poll);
	for (int i = 0; i < ALTER_ARGUMENTS; i++)
	{
		values[i] = PG_GETARG_DATUM(i);
		nulls[i] = PG_ARGISNULL(i) ? 'n' : ' ';
	}
	values[ALTER_POLL] = Int32GetDatum(poll.poll_id);
	(void) store_run(&update_poll, values, nulls);
	store_end_sql(&sql);
	PG_RETURN_VOID();
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
		{"DELETE FROM poll_tally.audience WHERE poll_id = $1",
		 1,
		 {INT4OID},
		 NULL},
		{"DELETE FROM poll_tally.roll WHERE poll_id = $1", 1, {INT4OID}, NULL},
		{"DELETE FROM poll_tally.choice WHERE poll_id = $1",
		 1,
		 {INT4OID},
		 NULL},
		{"DELETE FROM poll_tally.poll WHERE poll_id = $1", 1, {INT4OID}, NULL},
	};
	Datum values[] = {Int32GetDatum(poll_id)};

	/* An audience can have come since a transaction's snapshot. */
	for (int i = 0; i < lengthof(statements); i++)
		(void) store_run_latest(&statements[i], values, NULL);
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
	Poll poll;

	PreventCommandIfReadOnly("drop_poll()");
	poll_admin_require(name, &poll);
	store_begin_sql(&sql);
	poll_admin_lock(&lock_poll, name, &poll);
	if (!poll.closed)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("poll \"%s\" is open", text_to_cstring(name)),
				 errhint("Close it first, with poll_tally.close_poll().")));
	lane_lock_audiences(poll.poll_id);
	ledger_unguarded(drop_poll_rows, poll.poll_id);
	pending_note_drop();
	store_end_sql(&sql);
	PG_RETURN_VOID();
}
