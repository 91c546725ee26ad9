/*
 * trigger_event.h
 *		Events from the rows of a table, by the names of its columns.
 */
#ifndef POLL_TALLY_TRIGGER_EVENT_H
#define POLL_TALLY_TRIGGER_EVENT_H

#include "postgres.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "fmgr.h"

#include "event.h"

/* The fields of an event that a trigger can fill. */
typedef enum EventField
{
	FIELD_POLL,
	FIELD_EVENT_ID,
	FIELD_CHOICE,
	FIELD_PRINCIPAL,
	FIELD_VOTES,
	FIELD_PAYLOAD,
	FIELD_SOURCE,
	FIELD_SOURCE_PARTITION,
	FIELD_SOURCE_OFFSET,
	FIELD_OCCURRED_AT,
	EVENT_FIELDS
} EventField;

/* Where one field comes from: a column, a constant, or nowhere (NULL). */
typedef struct FieldSource
{
	AttrNumber attribute; /* 0: none */
	Oid type;             /* of the column */
	FmgrInfo output;      /* to text, where the column's type is another */
	bool needs_output;
	bool has_constant;
	Datum constant;
} FieldSource;

typedef struct TriggerMapping
{
	const char *trigger; /* its name, for messages */
	FieldSource fields[EVENT_FIELDS];
} TriggerMapping;

/* Map every field to the column of the same name, where there is one. */
extern void trigger_event_map_by_name(TriggerMapping *mapping,
									  const char *trigger, TupleDesc desc);

/*
 * Map the fields that the trigger's arguments name: 'poll=poll_slug' to a column,
 * 'poll=''lunch''' to a constant.  Raises 42703 for a column that is missing,
 * 42804 for one of the wrong type, 22023 for an argument of another form.
 */
extern void trigger_event_map_by_arguments(TriggerMapping *mapping,
										   const Trigger *trigger,
										   TupleDesc desc);

/* Read an event from a row, in the current context. */
extern void trigger_event_read(const TriggerMapping *mapping,
							   TupleTableSlot *row, Event *event);

#endif /* POLL_TALLY_TRIGGER_EVENT_H */
