/*
 * trigger_event.c
 *		Events from the rows of a table, by the names of its columns.
 *
 * A misconfigured trigger is told apart from a bad event: the former raises, with
 * the trigger's name, before any row is read.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/string.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "trigger_event.h"

static const char *const field_names[] = {
	"poll",    "event_id", "choice",           "principal",     "votes",
	"payload", "source",   "source_partition", "source_offset", "occurred_at"};

/* Is the field text, so that any type will do through its output function? */
static bool
field_is_text(EventField field)
{
	return field <= FIELD_PRINCIPAL || field == FIELD_SOURCE;
}

static bool
field_allows_type(EventField field, Oid type)
{
	switch (field)
	{
		case FIELD_VOTES:
		case FIELD_PAYLOAD:
			return type == JSONBOID;
		case FIELD_SOURCE_PARTITION:
			return type == INT4OID || type == INT2OID;
		case FIELD_SOURCE_OFFSET:
			return type == INT8OID || type == INT4OID || type == INT2OID;
		case FIELD_OCCURRED_AT:
			return type == TIMESTAMPTZOID;
		default:
			return true;
	}
}

static const char *
field_type_names(EventField field)
{
	switch (field)
	{
		case FIELD_VOTES:
		case FIELD_PAYLOAD:
			return "jsonb";
		case FIELD_SOURCE_PARTITION:
			return "integer";
		case FIELD_SOURCE_OFFSET:
			return "bigint";
		default:
			return "timestamp with time zone";
	}
}

/* Take a field from a column. */
static void
trigger_event_map_column(TriggerMapping *mapping, EventField field,
						 TupleDesc desc, int index)
{
	FieldSource *source = &mapping->fields[field];
	Form_pg_attribute column = TupleDescAttr(desc, index);
	Oid type = getBaseType(column->atttypid);

	if (!field_allows_type(field, type))
		ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
						errmsg("trigger \"%s\": column \"%s\" is of type %s",
							   mapping->trigger, NameStr(column->attname),
							   format_type_be(column->atttypid)),
						errhint("\"%s\" has to be of type %s.",
								field_names[field], field_type_names(field))));
	source->attribute = (AttrNumber) (index + 1);
	source->type = type;
	source->needs_output =
		field_is_text(field) && type != TEXTOID && type != VARCHAROID;
	if (source->needs_output)
	{
		Oid function;
		bool is_varlena;

		getTypeOutputInfo(column->atttypid, &function, &is_varlena);
		fmgr_info(function, &source->output);
	}
}

/* The index of a live column, or -1. */
static int
trigger_event_find_column(TupleDesc desc, const char *name)
{
	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped &&
			strcmp(NameStr(TupleDescAttr(desc, i)->attname), name) == 0)
			return i;
	return -1;
}

void
trigger_event_map_by_name(TriggerMapping *mapping, const char *trigger,
						  TupleDesc desc)
{
	memset(mapping, 0, sizeof(TriggerMapping));
	mapping->trigger = trigger;
	for (int field = 0; field < EVENT_FIELDS; field++)
	{
		int index = trigger_event_find_column(desc, field_names[field]);

		if (index >= 0)
			trigger_event_map_column(mapping, (EventField) field, desc, index);
	}
}

static int
trigger_event_hint(void)
{
	return errhint(
		"Write 'field=column' or 'field=''constant''', where field is "
		"one of poll, event_id, choice, principal, votes, payload, "
		"source, source_partition, source_offset and occurred_at.");
}

static void
trigger_event_bad_argument(const TriggerMapping *mapping, const char *argument,
						   const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("trigger \"%s\": argument \"%s\" is not understood",
						   mapping->trigger, argument),
					errdetail_internal("%s", detail), trigger_event_hint()));
}

static bool
trigger_event_is_given(const TriggerMapping *mapping, EventField field)
{
	return mapping->fields[field].attribute != 0 ||
		   mapping->fields[field].has_constant;
}

/* No event is valid without the field, or the one that may stand for it. */
static void
trigger_event_require(const TriggerMapping *mapping, EventField field,
					  EventField otherwise)
{
	if (trigger_event_is_given(mapping, field) ||
		trigger_event_is_given(mapping, otherwise))
		return;
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("trigger \"%s\": no argument gives the field \"%s\"",
						   mapping->trigger, field_names[field]),
					trigger_event_hint()));
}

/* The text between quotes, with doubled quotes undone; NULL when malformed. */
static char *
trigger_event_unquote(const char *quoted)
{
	size_t length = strlen(quoted);
	char *value = palloc(length + 1);
	char *out = value;

	if (length < 2 || quoted[length - 1] != '\'')
		return NULL;
	for (const char *in = quoted + 1; in < quoted + length - 1; in++)
	{
		if (*in == '\'' && *++in != '\'')
			return NULL;
		if (in == quoted + length - 1)
			return NULL;
		*out++ = *in;
	}
	*out = '\0';
	return value;
}

static Datum
trigger_event_integer_constant(const TriggerMapping *mapping,
							   const char *argument, const char *value)
{
	char *end;
	int integer;

	errno = 0;
	integer = strtoint(value, &end, 10);
	if (end == value || *end != '\0' || errno != 0)
		trigger_event_bad_argument(mapping, argument,
								   "The constant is no integer.");
	return Int32GetDatum(integer);
}

static void
trigger_event_map_constant(TriggerMapping *mapping, EventField field,
						   const char *argument, const char *quoted)
{
	FieldSource *source = &mapping->fields[field];
	char *value = trigger_event_unquote(quoted);

	if (value == NULL)
		trigger_event_bad_argument(mapping, argument,
								   "The constant does not end in a quote.");
	source->has_constant = true;
	if (field_is_text(field))
		source->constant = CStringGetTextDatum(value);
	else if (field == FIELD_SOURCE_PARTITION)
		source->constant =
			trigger_event_integer_constant(mapping, argument, value);
	else
		trigger_event_bad_argument(mapping, argument,
								   "This field cannot be a constant.");
}

/* The field that an argument begins with; *value points behind the "=". */
static EventField
trigger_event_parse_field(const TriggerMapping *mapping, const char *argument,
						  const char **value)
{
	const char *equals = strchr(argument, '=');

	if (equals == NULL)
		trigger_event_bad_argument(mapping, argument, "It has no \"=\".");
	*value = equals + 1;
	for (int field = 0; field < EVENT_FIELDS; field++)
		if (strlen(field_names[field]) == (size_t) (equals - argument) &&
			strncmp(field_names[field], argument, equals - argument) == 0)
			return (EventField) field;
	trigger_event_bad_argument(mapping, argument, "There is no such field.");
	return EVENT_FIELDS; /* not reached */
}

void
trigger_event_map_by_arguments(TriggerMapping *mapping, const Trigger *trigger,
							   TupleDesc desc)
{
	memset(mapping, 0, sizeof(TriggerMapping));
	mapping->trigger = trigger->tgname;
	for (int i = 0; i < trigger->tgnargs; i++)
	{
		const char *argument = trigger->tgargs[i];
		const char *value;
		EventField field = trigger_event_parse_field(mapping, argument, &value);
		int index;

		if (trigger_event_is_given(mapping, field))
			trigger_event_bad_argument(mapping, argument,
									   "The field is given twice.");
		if (*value == '\'')
		{
			trigger_event_map_constant(mapping, field, argument, value);
			continue;
		}
		index = trigger_event_find_column(desc, value);
		if (index < 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("trigger \"%s\": column \"%s\" does not exist",
							mapping->trigger, value),
					 errhint("A constant is written in quotes: '%s=''%s'''.",
							 field_names[field], value)));
		trigger_event_map_column(mapping, field, desc, index);
	}
	trigger_event_require(mapping, FIELD_POLL, FIELD_POLL);
	trigger_event_require(mapping, FIELD_EVENT_ID, FIELD_EVENT_ID);
	trigger_event_require(mapping, FIELD_CHOICE, FIELD_VOTES);
}

/* The value of a field in a row; false for NULL. */
static bool
trigger_event_value(const TriggerMapping *mapping, EventField field,
					TupleTableSlot *row, Datum *value)
{
	const FieldSource *source = &mapping->fields[field];
	bool isnull;

	*value = source->constant;
	if (source->has_constant)
		return true;
	if (source->attribute == 0)
		return false;
	*value = slot_getattr(row, source->attribute, &isnull);
	return !isnull;
}

static const text *
trigger_event_text(const TriggerMapping *mapping, EventField field,
				   TupleTableSlot *row)
{
	FieldSource *source = unconstify(FieldSource *, &mapping->fields[field]);
	Datum value;

	if (!trigger_event_value(mapping, field, row, &value))
		return NULL;
	if (source->needs_output)
		return cstring_to_text(OutputFunctionCall(&source->output, value));
	return DatumGetTextPCopy(value);
}

/* An integer of any width that the field allows. */
static bool
trigger_event_integer(const TriggerMapping *mapping, EventField field,
					  TupleTableSlot *row, int64 *integer)
{
	Oid type = mapping->fields[field].has_constant
				   ? INT4OID
				   : mapping->fields[field].type;
	Datum value;

	*integer = 0;
	if (!trigger_event_value(mapping, field, row, &value))
		return false;
	*integer = type == INT8OID   ? DatumGetInt64(value)
			   : type == INT4OID ? DatumGetInt32(value)
								 : DatumGetInt16(value);
	return true;
}

void
trigger_event_read(const TriggerMapping *mapping, TupleTableSlot *row,
				   Event *event)
{
	Datum value;
	int64 integer;

	memset(event, 0, sizeof(Event));
	event->poll = trigger_event_text(mapping, FIELD_POLL, row);
	event->event_id = trigger_event_text(mapping, FIELD_EVENT_ID, row);
	event->choice = trigger_event_text(mapping, FIELD_CHOICE, row);
	event->principal = trigger_event_text(mapping, FIELD_PRINCIPAL, row);
	event->source = trigger_event_text(mapping, FIELD_SOURCE, row);
	if (trigger_event_value(mapping, FIELD_VOTES, row, &value))
		event->votes_json = DatumGetJsonbPCopy(value);
	event->has_payload =
		trigger_event_value(mapping, FIELD_PAYLOAD, row, &value);
	if (event->has_payload)
		event->payload = JsonbPGetDatum(DatumGetJsonbPCopy(value));
	event->has_source_partition =
		trigger_event_integer(mapping, FIELD_SOURCE_PARTITION, row, &integer);
	event->source_partition = (int32) integer;
	event->has_source_offset =
		trigger_event_integer(mapping, FIELD_SOURCE_OFFSET, row, &integer);
	event->source_offset = integer;
	event->has_occurred_at =
		trigger_event_value(mapping, FIELD_OCCURRED_AT, row, &value);
	event->occurred_at =
		event->has_occurred_at ? DatumGetTimestampTz(value) : 0;
}
