/*
 * triggers.c
 *		accept_event_or_raise as triggers: on the view inbox, and on tables.
 *
 * The view's trigger takes row by row, so that INSERT and COPY into it run in
 * the memory of one event.  The statement trigger takes the new rows of a table
 * as batches of at most poll_tally.max_batch events.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/tuplestore.h"

#include "accept.h"
#include "batch.h"
#include "settings.h"
#include "trigger_event.h"

static void
triggers_wrong_kind(const char *trigger, const char *wanted)
{
	ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
					errmsg("trigger \"%s\" is of the wrong kind", trigger),
					errhint("Create it %s.", wanted)));
}

static TriggerData *
triggers_data(FunctionCallInfo fcinfo, const char *function)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by trigger manager",
						function)));
	return (TriggerData *) fcinfo->context;
}

/*
 * inbox_insert(): INSTEAD OF INSERT ON poll_tally.inbox FOR EACH ROW.
 *
 * Raises what accept_event_or_raise raises.
 */
PG_FUNCTION_INFO_V1(inbox_insert);
Datum
inbox_insert(PG_FUNCTION_ARGS)
{
	TriggerData *data = triggers_data(fcinfo, "inbox_insert");
	TupleDesc desc = RelationGetDescr(data->tg_relation);
	TupleTableSlot *row;
	TriggerMapping mapping;
	Receipt receipt;
	Event event;

	if (!TRIGGER_FIRED_INSTEAD(data->tg_event) ||
		!TRIGGER_FIRED_BY_INSERT(data->tg_event))
		triggers_wrong_kind(data->tg_trigger->tgname, "INSTEAD OF INSERT");
	trigger_event_map_by_name(&mapping, data->tg_trigger->tgname, desc);
	row = MakeSingleTupleTableSlot(desc, &TTSOpsHeapTuple);
	ExecStoreHeapTuple(data->tg_trigtuple, row, false);
	trigger_event_read(&mapping, row, &event);
	ExecDropSingleTupleTableSlot(row);

	accept_judge(&event, &receipt);
	receipt_raise_refusal(&receipt);
	/* The server frees the row that it made only when another one comes back. */
	return PointerGetDatum(heap_copytuple(data->tg_trigtuple));
}

/* The next rows as events, max_batch at the most; returns how many. */
static int
accept_rows_read(const TriggerMapping *mapping, Tuplestorestate *rows,
				 TupleTableSlot *row, Event *events, int limit)
{
	int count = 0;

	while (count < limit && tuplestore_gettupleslot(rows, true, false, row))
	{
		CHECK_FOR_INTERRUPTS();
		trigger_event_read(mapping, row, &events[count++]);
	}
	ExecClearTuple(row);
	return count;
}

/* Accept all rows, in batches; each is freed before the next is read. */
static void
accept_rows_in_batches(const TriggerMapping *mapping, Tuplestorestate *rows,
					   TupleDesc desc)
{
	TupleTableSlot *row = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
	MemoryContext context = AllocSetContextCreate(
		CurrentMemoryContext, "poll_tally accept_rows", ALLOCSET_DEFAULT_SIZES);
	int limit = (int) Min(tuplestore_tuple_count(rows) + 1, settings_max_batch);
	int count;

	/* All triggers of the statement share the rows: read from the first one. */
	tuplestore_select_read_pointer(
		rows, tuplestore_alloc_read_pointer(rows, EXEC_FLAG_REWIND));
	tuplestore_rescan(rows);
	do
	{
		MemoryContext before = MemoryContextSwitchTo(context);
		Event *events = MemoryContextAllocHuge(context, limit * sizeof(Event));
		Receipt *receipts;

		count = accept_rows_read(mapping, rows, row, events, limit);
		receipts =
			MemoryContextAllocHuge(context, Max(count, 1) * sizeof(Receipt));
		if (count > 0)
			batch_accept(events, count, BATCH_OR_RAISE, receipts);
		MemoryContextSwitchTo(before);
		MemoryContextReset(context);
	} while (count == limit);
	MemoryContextDelete(context);
	ExecDropSingleTupleTableSlot(row);
}

/*
 * accept_rows('field=column', …): AFTER INSERT, REFERENCING NEW TABLE,
 * FOR EACH STATEMENT.
 *
 * Raises what accept_event_or_raise raises; 39P01, 42703, 42804 and 22023 for a
 * trigger that is set up wrongly.
 */
PG_FUNCTION_INFO_V1(accept_rows);
Datum
accept_rows(PG_FUNCTION_ARGS)
{
	TriggerData *data = triggers_data(fcinfo, "accept_rows");
	TupleDesc desc = RelationGetDescr(data->tg_relation);
	const char *name = data->tg_trigger->tgname;
	TriggerMapping mapping;

	if (!TRIGGER_FIRED_AFTER(data->tg_event) ||
		!TRIGGER_FIRED_BY_INSERT(data->tg_event) ||
		!TRIGGER_FIRED_FOR_STATEMENT(data->tg_event) ||
		data->tg_newtable == NULL)
		triggers_wrong_kind(
			name,
			"AFTER INSERT ... REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT");
	PreventCommandIfReadOnly("accept_rows()");
	trigger_event_map_by_arguments(&mapping, data->tg_trigger, desc);
	accept_rows_in_batches(&mapping, data->tg_newtable, desc);
	return PointerGetDatum(NULL);
}
