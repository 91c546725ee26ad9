/*
 * poll_create.c
 *		Making a poll: create_poll and create_counter.
 *
 * Every argument is checked here, before anything is written; what a poll's
 * rules mean is for poll.c.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "lane.h"
#include "poll_admin.h"
#include "snapshot.h"
#include "store.h"

/* Most choices an event may name, whatever the poll. */
#define POLL_MAX_CHOICES_LIMIT 1000

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
	poll_admin_check_notify(PG_GETARG_TEXT_PP(CREATE_NOTIFY));
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

		poll_admin_require_ident("choices", "choice", choice);
		/* NULL was refused.  NOLINTNEXTLINE(clang-analyzer-core.*) */
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
	poll_admin_require_ident("poll", "poll name",
							 PG_GETARG_TEXT_PP(CREATE_POLL));
	create_poll_check_counting(fcinfo);
	create_poll_check_weights(fcinfo);
	create_poll_check_limits(fcinfo);
	create_poll_check_times(fcinfo);
	create_poll_check_choices(PG_GETARG_ARRAYTYPE_P(CREATE_CHOICES));

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
