/*
 * json_text.h
 *		Reading the bytes of a request body.
 */
#ifndef POLL_TALLY_JSON_TEXT_H
#define POLL_TALLY_JSON_TEXT_H

#include "core.h"

/* The members, palloc'd; NULL for one that was not read. */
typedef struct JsonText
{
	char *event_id;
	char *poll_id;
	char *candidate_id;
} JsonText;

/*
 * Read one JSON object with exactly the three string members, and nothing after
 * it.  The bytes need not be NUL-terminated.  Returns NULL, or a palloc'd
 * sentence that says what is wrong; members read before that are set.
 */
extern char *json_text_read(const char *bytes, int length, int encoding,
							JsonText *body);

#endif /* POLL_TALLY_JSON_TEXT_H */
