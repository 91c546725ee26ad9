/*
 * batch_sql.c
 *		accept_events: a batch from arrays.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "batch.h"
#include "compat.h"
#include "settings.h"

/* Positions of the arguments of accept_events. */
enum AcceptEventsArgument
{
	BATCH_POLL,
	BATCH_EVENT_IDS,
	BATCH_CHOICES,
	BATCH_PRINCIPALS,
	BATCH_VOTES,
	BATCH_PAYLOADS,
	BATCH_SOURCE,
	BATCH_SOURCE_PARTITION,
	BATCH_SOURCE_OFFSETS,
	BATCH_OCCURRED_ATS,
	BATCH_POLLS,
	BATCH_ALL_OR_NOTHING_FLAG
};

static const char *const batch_argument_names[] = {
	"poll",           "event_ids",    "choices", "principals",
	"votes",          "payloads",     "source",  "source_partition",
	"source_offsets", "occurred_ats", "polls",   "all_or_nothing"};

/* The elements of an array argument; values is NULL for a NULL argument. */
typedef struct BatchColumn
{
	Datum *values;
	bool *nulls;
} BatchColumn;

/* Its length, checked before any element is read; -1 for NULL. */
static int
batch_array_length(FunctionCallInfo fcinfo, int argument)
{
	ArrayType *array;

	if (PG_ARGISNULL(argument))
		return -1;
	array = PG_GETARG_ARRAYTYPE_P(argument);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR, (errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
						errmsg("array \"%s\" must have one dimension",
							   batch_argument_names[argument])));
	return ARR_NDIM(array) == 0 ? 0 : ARR_DIMS(array)[0];
}

/* How many events the arrays describe; all have to agree. */
static int
batch_check_lengths(FunctionCallInfo fcinfo)
{
	static const int arrays[] = {
		BATCH_CHOICES,        BATCH_PRINCIPALS,   BATCH_VOTES, BATCH_PAYLOADS,
		BATCH_SOURCE_OFFSETS, BATCH_OCCURRED_ATS, BATCH_POLLS};
	int count = batch_array_length(fcinfo, BATCH_EVENT_IDS);

	if (count < 0)
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("array \"event_ids\" must not be NULL")));
	for (int i = 0; i < lengthof(arrays); i++)
	{
		int length = batch_array_length(fcinfo, arrays[i]);

		if (length >= 0 && length != count)
			ereport(
				ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("arrays of a batch must have equal lengths"),
				 errdetail("\"event_ids\" has %d elements, and \"%s\" has %d.",
						   count, batch_argument_names[arrays[i]], length)));
	}
	if (count > settings_max_batch)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("batch of %d events is too large", count),
						errdetail("poll_tally.max_batch allows %d.",
								  settings_max_batch),
						errhint("Send it in several parts.")));
	if (PG_ARGISNULL(BATCH_POLL) == PG_ARGISNULL(BATCH_POLLS))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("give either poll or polls"),
				 errdetail("%s of them is NULL.",
						   PG_ARGISNULL(BATCH_POLL) ? "Each" : "Neither")));
	return count;
}

static BatchColumn
batch_column(FunctionCallInfo fcinfo, int argument, Oid type)
{
	BatchColumn column = {NULL, NULL};
	int16 length;
	bool byval;
	char align;
	int count;

	if (PG_ARGISNULL(argument))
		return column;
	get_typlenbyvalalign(type, &length, &byval, &align);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(argument), type, length, byval,
					  align, &column.values, &column.nulls, &count);
	return column;
}

static bool
batch_has(const BatchColumn *column, int index)
{
	return column->values != NULL && !column->nulls[index];
}

static const text *
batch_text(const BatchColumn *column, int index)
{
	return batch_has(column, index) ? DatumGetTextPP(column->values[index])
									: NULL;
}

/* The events that the arrays describe. */
static Event *
batch_events(FunctionCallInfo fcinfo, int count)
{
	BatchColumn ids = batch_column(fcinfo, BATCH_EVENT_IDS, TEXTOID);
	BatchColumn choices = batch_column(fcinfo, BATCH_CHOICES, TEXTOID);
	BatchColumn principals = batch_column(fcinfo, BATCH_PRINCIPALS, TEXTOID);
	BatchColumn votes = batch_column(fcinfo, BATCH_VOTES, JSONBOID);
	BatchColumn payloads = batch_column(fcinfo, BATCH_PAYLOADS, JSONBOID);
	BatchColumn offsets = batch_column(fcinfo, BATCH_SOURCE_OFFSETS, INT8OID);
	BatchColumn times =
		batch_column(fcinfo, BATCH_OCCURRED_ATS, TIMESTAMPTZOID);
	BatchColumn polls = batch_column(fcinfo, BATCH_POLLS, TEXTOID);
	const text *poll =
		PG_ARGISNULL(BATCH_POLL) ? NULL : PG_GETARG_TEXT_PP(BATCH_POLL);
	const text *source =
		PG_ARGISNULL(BATCH_SOURCE) ? NULL : PG_GETARG_TEXT_PP(BATCH_SOURCE);
	Event *events = MemoryContextAllocExtended(
		CurrentMemoryContext, Max(count, 1) * sizeof(Event),
		MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	for (int i = 0; i < count; i++)
	{
		Event *event = &events[i];

		event->poll = poll != NULL ? poll : batch_text(&polls, i);
		event->event_id = batch_text(&ids, i);
		event->choice = batch_text(&choices, i);
		event->principal = batch_text(&principals, i);
		if (batch_has(&votes, i))
			event->votes_json = DatumGetJsonbP(votes.values[i]);
		event->has_payload = batch_has(&payloads, i);
		event->payload = event->has_payload ? payloads.values[i] : (Datum) 0;
		event->source = source;
		event->has_source_partition = !PG_ARGISNULL(BATCH_SOURCE_PARTITION);
		if (event->has_source_partition)
			event->source_partition = PG_GETARG_INT32(BATCH_SOURCE_PARTITION);
		event->has_source_offset = batch_has(&offsets, i);
		if (event->has_source_offset)
			event->source_offset = DatumGetInt64(offsets.values[i]);
		event->has_occurred_at = batch_has(&times, i);
		if (event->has_occurred_at)
			event->occurred_at = DatumGetTimestampTz(times.values[i]);
	}
	return events;
}

/*
 * accept_events(poll text, event_ids text[], choices text[], principals text[],
 *				 votes jsonb[], payloads jsonb[], source text,
 *				 source_partition int, source_offsets bigint[],
 *				 occurred_ats timestamptz[], polls text[],
 *				 all_or_nothing boolean)
 * RETURNS SETOF (ord int, and the columns of a receipt)
 *
 * Raises 2202E for arrays of unequal lengths, 54000 above poll_tally.max_batch,
 * 22023 for both or neither of poll and polls; otherwise what accept_event
 * raises.
 */
PG_FUNCTION_INFO_V1(accept_events);
Datum
accept_events(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	bool all_or_nothing = !PG_ARGISNULL(BATCH_ALL_OR_NOTHING_FLAG) &&
						  PG_GETARG_BOOL(BATCH_ALL_OR_NOTHING_FLAG);
	Receipt *receipts;
	int count;

	PreventCommandIfReadOnly("accept_events()");
	PreventCommandIfParallelMode("accept_events()");
	count = batch_check_lengths(fcinfo);
	InitMaterializedSRF(fcinfo, 0);
	receipts = MemoryContextAllocExtended(CurrentMemoryContext,
										  Max(count, 1) * sizeof(Receipt),
										  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	batch_accept(batch_events(fcinfo, count), count,
				 all_or_nothing ? BATCH_ALL_OR_NOTHING : BATCH_EACH, receipts);
	for (int i = 0; i < count; i++)
	{
		Oid type = TupleDescAttr(result->setDesc, 1)->atttypid;
		Datum values[1 + RECEIPT_COLUMNS];
		bool nulls[1 + RECEIPT_COLUMNS];

		values[0] = Int32GetDatum(i + 1);
		nulls[0] = false;
		receipt_deform(&receipts[i], type, values + 1, nulls + 1);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
