/*
 * receipt.c
 *		The outcome of an event, as a row and as an error.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "compat.h"
#include "ident.h"
#include "receipt.h"

typedef struct OutcomeRule
{
	const char *name;
	bool retryable;
	int sqlstate;           /* 0: a success, nothing is raised */
	const char *constraint; /* error field that names the kind of uniqueness */
} OutcomeRule;

static const OutcomeRule outcome_rules[] = {
	[OUTCOME_INVALID] = {"invalid", false, ERRCODE_INVALID_PARAMETER_VALUE,
						 NULL},
	[OUTCOME_DUPLICATE] = {"duplicate", false, 0, NULL},
	[OUTCOME_CONFLICT] = {"conflict", false, ERRCODE_UNIQUE_VIOLATION,
						  "event_id"},
	[OUTCOME_SOURCE_CONFLICT] = {"source_conflict", false,
								 ERRCODE_UNIQUE_VIOLATION, "source"},
	[OUTCOME_EXPIRED] = {"expired", false,
						 ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, NULL},
	[OUTCOME_UNKNOWN_POLL] = {"unknown_poll", true, ERRCODE_NO_DATA_FOUND,
							  NULL},
	[OUTCOME_CLOSED] = {"closed", false,
						ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, NULL},
	[OUTCOME_NOT_OPEN] = {"not_open", true,
						  ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, NULL},
	[OUTCOME_NOT_ELIGIBLE] = {"not_eligible", false,
							  ERRCODE_INSUFFICIENT_PRIVILEGE, NULL},
	[OUTCOME_UNKNOWN_CHOICE] = {"unknown_choice", false, ERRCODE_NO_DATA_FOUND,
								NULL},
	[OUTCOME_ALREADY_RESPONDED] = {"already_responded", false,
								   ERRCODE_UNIQUE_VIOLATION, "principal"},
	[OUTCOME_LIMIT_REACHED] = {"limit_reached", false, ERRCODE_CHECK_VIOLATION,
							   NULL},
	[OUTCOME_ACCEPTED] = {"accepted", false, 0, NULL},
	[OUTCOME_UNKNOWN_EVENT] = {"unknown_event", false, ERRCODE_NO_DATA_FOUND,
							   NULL},
	[OUTCOME_NOTHING_TO_RETRACT] = {"nothing_to_retract", false,
									ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
									NULL},
};

/* Names of the bits of Receipt.differs. */
static const char *const differs_names[] = {
	"poll", "votes",    "principal", "payload",           "occurred_at",
	"kind", "event_id", "reason",    "may_respond_again",
};

void
receipt_init(Receipt *receipt, const text *event_id)
{
	memset(receipt, 0, sizeof(Receipt));
	if (event_id != NULL && ident_is_valid(VARDATA_ANY(event_id),
										   (int) VARSIZE_ANY_EXHDR(event_id)))
		receipt->event_id = event_id;
}

const char *
outcome_name(Outcome outcome)
{
	return outcome_rules[outcome].name;
}

Datum
outcome_datum(Outcome outcome, Oid type)
{
	/* A label's oid stays as long as its type's does. */
	static Oid labels_type = InvalidOid;
	static Oid labels[lengthof(outcome_rules)];
	Oid label;

	if (labels_type != type)
		memset(labels, 0, sizeof(labels));
	labels_type = type;
	if (OidIsValid(labels[outcome]))
		return ObjectIdGetDatum(labels[outcome]);
	label = GetSysCacheOid2(ENUMTYPOIDNAME, Anum_pg_enum_oid,
							ObjectIdGetDatum(type),
							CStringGetDatum(outcome_name(outcome)));

	if (!OidIsValid(label))
		elog(ERROR, "type %s has no label \"%s\"", format_type_be(type),
			 outcome_name(outcome));
	labels[outcome] = label;
	return ObjectIdGetDatum(label);
}

/* The fields that differ, as text[]. */
static Datum
receipt_differs(int differs)
{
	Datum names[lengthof(differs_names)];
	int count = 0;

	for (int i = 0; i < lengthof(differs_names); i++)
		if (differs & (1 << i))
			names[count++] = CStringGetTextDatum(differs_names[i]);
	return PointerGetDatum(
		construct_array(names, count, TEXTOID, -1, false, TYPALIGN_INT));
}

void
receipt_deform(const Receipt *receipt, Oid type, Datum *values, bool *nulls)
{
	const OutcomeRule *rule = &outcome_rules[receipt->outcome];

	memset(nulls, false, RECEIPT_COLUMNS * sizeof(bool));
	values[0] = outcome_datum(receipt->outcome, type);
	values[1] = PointerGetDatum(receipt->event_id);
	nulls[1] = receipt->event_id == NULL;
	values[2] = EventPositionGetDatum(receipt->position);
	nulls[2] = !receipt->stored;
	values[3] = Int32GetDatum(receipt->attempt);
	nulls[3] = !receipt->stored || receipt->attempt == 0;
	values[4] = TimestampTzGetDatum(receipt->accepted_at);
	nulls[4] = !receipt->stored;
	values[5] = BoolGetDatum(rule->retryable);
	nulls[6] = receipt->differs == 0;
	values[6] = nulls[6] ? (Datum) 0 : receipt_differs(receipt->differs);
	nulls[7] = receipt->detail == NULL;
	values[7] = nulls[7] ? (Datum) 0 : CStringGetTextDatum(receipt->detail);
}

Datum
receipt_datum(const Receipt *receipt, FunctionCallInfo fcinfo)
{
	Oid type = get_func_rettype(fcinfo->flinfo->fn_oid);
	TupleDesc desc = lookup_rowtype_tupdesc(type, -1);
	Datum values[RECEIPT_COLUMNS];
	bool nulls[RECEIPT_COLUMNS];
	Datum result;

	if (desc->natts != RECEIPT_COLUMNS)
		elog(ERROR, "type %s has %d columns, not %d", format_type_be(type),
			 desc->natts, RECEIPT_COLUMNS);
	receipt_deform(receipt, TupleDescAttr(desc, 0)->atttypid, values, nulls);
	result = HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
	ReleaseTupleDesc(desc);
	return result;
}

/* The names of the fields that differ, for a message. */
static char *
receipt_differs_list(int differs)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < lengthof(differs_names); i++)
		if (differs & (1 << i))
			appendStringInfo(&list, "%s%s", list.len > 0 ? ", " : "",
							 differs_names[i]);
	return list.data;
}

char *
receipt_sentence(const Receipt *receipt)
{
	if (receipt->detail == NULL && receipt->differs != 0)
		return psprintf("The stored event differs in: %s.",
						receipt_differs_list(receipt->differs));
	return receipt->detail;
}

/* The outcome's name first, so that clients need not parse messages. */
static char *
receipt_error_detail(const Receipt *receipt)
{
	char *sentence = receipt_sentence(receipt);

	return sentence == NULL
			   ? pstrdup(outcome_name(receipt->outcome))
			   : psprintf("%s: %s", outcome_name(receipt->outcome), sentence);
}

void
receipt_raise_refusal(const Receipt *receipt)
{
	const OutcomeRule *rule = &outcome_rules[receipt->outcome];
	char *event_id;

	if (rule->sqlstate == 0)
		return;
	event_id =
		receipt->event_id != NULL ? text_to_cstring(receipt->event_id) : NULL;
	ereport(
		ERROR,
		(errcode(rule->sqlstate),
		 event_id != NULL
			 ? errmsg("event \"%s\" was not accepted: %s", event_id, rule->name)
			 : errmsg("event was not accepted: %s", rule->name),
		 errdetail_internal("%s", receipt_error_detail(receipt)),
		 rule->retryable ? errhint("The same event can be sent again later.")
						 : 0,
		 rule->constraint != NULL
			 ? err_generic_string(PG_DIAG_CONSTRAINT_NAME, rule->constraint)
			 : 0));
}
