/*
 * event.h
 *		One submission, as its sender put it.
 */
#ifndef POLL_TALLY_EVENT_H
#define POLL_TALLY_EVENT_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "utils/jsonb.h"

#include "tally_type.h"

typedef struct Event
{
	const text *poll;
	const text *event_id;
	const text *choice;
	const text *principal;
	Jsonb *votes_json;
	const text *source;
	int32 source_partition;
	int64 source_offset;
	Datum payload; /* a jsonb, perhaps toasted */
	TimestampTz occurred_at;
	bool has_source_partition;
	bool has_source_offset;
	bool has_payload;
	bool has_occurred_at;

	Tally *votes; /* of choice or votes_json; set by validate_event */
} Event;

#define EVENT_TEXT_BYTES(value) VARDATA_ANY(value)
#define EVENT_TEXT_LENGTH(value) ((int) VARSIZE_ANY_EXHDR(value))

/* Are two texts, or NULLs, equal byte by byte? */
static inline bool
event_text_equal(const text *a, const text *b)
{
	if (a == NULL || b == NULL)
		return a == b;
	return EVENT_TEXT_LENGTH(a) == EVENT_TEXT_LENGTH(b) &&
		   memcmp(EVENT_TEXT_BYTES(a), EVENT_TEXT_BYTES(b),
				  EVENT_TEXT_LENGTH(a)) == 0;
}

#endif /* POLL_TALLY_EVENT_H */
