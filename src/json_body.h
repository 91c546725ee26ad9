/*
 * json_body.h
 *		The strict reader of a request body.
 */
#ifndef POLL_TALLY_JSON_BODY_H
#define POLL_TALLY_JSON_BODY_H

#include "postgres.h"

typedef struct JsonBody
{
	text *event_id;
	text *poll_id;
	text *candidate_id;
} JsonBody;

/*
 * Read one JSON object with exactly the three string members event_id, poll_id
 * and candidate_id, and nothing after it.  Returns NULL, or a palloc'd sentence
 * that says what is wrong.  Escapes are decoded; the identifier rules are for
 * validate_event.
 */
extern char *json_body_read(const text *input, JsonBody *body);

#endif /* POLL_TALLY_JSON_BODY_H */
