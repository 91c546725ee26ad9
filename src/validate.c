/*
 * validate.c
 *		Pure checks of an event: row 1 of DESIGN section 4.
 *
 * No table is read here, and no rule of a poll is known.
 */
#include "postgres.h"

#include "ident.h"
#include "tally_json.h"
#include "validate.h"

char *
validate_ident(const char *noun, const text *value)
{
	if (value == NULL)
		return psprintf("The %s is NULL.", noun);
	return ident_problem(noun, EVENT_TEXT_BYTES(value),
						 EVENT_TEXT_LENGTH(value));
}

/* Source coordinates come as all three or not at all. */
static char *
validate_source(const Event *event)
{
	int given = (event->source != NULL) + event->has_source_partition +
				event->has_source_offset;

	if (given == 0)
		return NULL;
	if (given != 3)
		return pstrdup(
			"Of source, source_partition and source_offset, some are "
			"given and some are NULL: give all three or none.");
	return validate_ident("source", event->source);
}

/* One choice at 1. */
static char *
validate_choice(Event *event)
{
	char *problem = validate_ident("choice", event->choice);
	TallyEntry entry;

	if (problem != NULL)
		return problem;
	entry.choice = EVENT_TEXT_BYTES(event->choice);
	entry.length = EVENT_TEXT_LENGTH(event->choice);
	entry.count = 1;
	event->votes = tally_build(&entry, 1);
	return NULL;
}

static char *
validate_votes(Event *event)
{
	char *problem;

	if (event->choice != NULL && event->votes_json != NULL)
		return pstrdup("Both choice and votes are given: give one of them.");
	if (event->choice == NULL && event->votes_json == NULL)
		return pstrdup("Neither choice nor votes is given.");
	if (event->choice != NULL)
		return validate_choice(event);
	if (!tally_from_jsonb(event->votes_json, &event->votes, &problem))
		return problem;
	if (tally_is_empty(event->votes))
		return pstrdup("The votes are empty or all zero.");
	return NULL;
}

char *
validate_event(Event *event)
{
	char *problem = validate_ident("event id", event->event_id);

	if (problem == NULL)
		problem = validate_ident("poll name", event->poll);
	if (problem == NULL && event->principal != NULL)
		problem = validate_ident("principal", event->principal);
	if (problem == NULL)
		problem = validate_source(event);
	if (problem == NULL)
		problem = validate_votes(event);
	return problem;
}
