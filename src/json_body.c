/*
 * json_body.c
 *		The strict reader of a request body: its size, and its members as text.
 *
 * The bytes are read by json_text.c.
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "compat.h"
#include "json_body.h"
#include "json_text.h"
#include "settings.h"

static text *
json_body_member(const char *member)
{
	return member == NULL ? NULL : cstring_to_text(member);
}

char *
json_body_read(const text *input, JsonBody *body)
{
	JsonText read;
	int length = (int) VARSIZE_ANY_EXHDR(input);
	char *problem;

	memset(body, 0, sizeof(JsonBody));
	if (length > settings_max_body)
		return psprintf("The body has %d bytes; poll_tally.max_body allows %d.",
						length, settings_max_body);
	problem = json_text_read(VARDATA_ANY(input), length, GetDatabaseEncoding(),
							 &read);
	body->event_id = json_body_member(read.event_id);
	body->poll_id = json_body_member(read.poll_id);
	body->candidate_id = json_body_member(read.candidate_id);
	return problem;
}
