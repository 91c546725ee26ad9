/*
 * status.c
 *		What became of an event: event_status.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "ledger.h"
#include "poll.h"
#include "validate.h"

enum StatusColumn
{
	STATUS_STATUS,
	STATUS_OUTCOME,
	STATUS_POLL,
	STATUS_POSITION,
	STATUS_ACCEPTED_AT,
	STATUS_ATTEMPTS,
	STATUS_DETAIL,
	STATUS_COLUMNS
};

static void
status_set(Datum *values, bool *nulls, int column, Datum value)
{
	values[column] = value;
	nulls[column] = false;
}

/* The columns of an entry that the ledger has. */
static void
status_of_entry(const LedgerEntry *entry, Oid outcome_type, Datum *values,
				bool *nulls)
{
	char *poll = poll_visible_name(entry->poll_id);
	char *detail = NULL;
	text *retraction_id;

	status_set(values, nulls, STATUS_STATUS, CStringGetTextDatum("accepted"));
	status_set(values, nulls, STATUS_OUTCOME,
			   outcome_datum(OUTCOME_ACCEPTED, outcome_type));
	if (poll != NULL)
		status_set(values, nulls, STATUS_POLL, CStringGetTextDatum(poll));
	status_set(values, nulls, STATUS_POSITION,
			   EventPositionGetDatum(entry->position));
	status_set(values, nulls, STATUS_ACCEPTED_AT,
			   TimestampTzGetDatum(entry->accepted_at));
	retraction_id = ledger_visible_retraction(entry->event_id);
	if (entry->retracts != NULL)
		detail = psprintf("Retraction of event \"%s\".",
						  text_to_cstring(entry->retracts));
	else if (retraction_id != NULL)
		detail = psprintf("The event was retracted by \"%s\".",
						  text_to_cstring(retraction_id));
	if (detail != NULL)
		status_set(values, nulls, STATUS_DETAIL, CStringGetTextDatum(detail));
}

/*
 * event_status(event_id text) RETURNS (status, outcome, poll, position,
 *										accepted_at, attempts, detail)
 *
 * One row, as the statement's snapshot sees it; an id in flight is unknown.
 * attempts counts the tries of the intake queue, so it is 0.
 */
PG_FUNCTION_INFO_V1(event_status);
Datum
event_status(PG_FUNCTION_ARGS)
{
	text *event_id = PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0);
	char *problem = validate_ident("event id", event_id);
	Datum values[STATUS_COLUMNS] = {0};
	bool nulls[STATUS_COLUMNS];
	LedgerEntry entry;
	TupleDesc desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "event_status must return a row");
	desc = BlessTupleDesc(desc);
	memset(nulls, true, sizeof(nulls));
	status_set(values, nulls, STATUS_ATTEMPTS, Int32GetDatum(0));
	if (problem == NULL && ledger_find_visible(event_id, &entry))
		status_of_entry(&entry, TupleDescAttr(desc, STATUS_OUTCOME)->atttypid,
						values, nulls);
	else
	{
		status_set(values, nulls, STATUS_STATUS,
				   CStringGetTextDatum("unknown"));
		if (problem != NULL)
			status_set(values, nulls, STATUS_DETAIL,
					   CStringGetTextDatum(problem));
	}
	return HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
}
