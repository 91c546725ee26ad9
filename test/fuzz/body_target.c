/*
 * body_target.c
 *		Fuzzes the reader of a request body.
 *
 * Promises: a refusal has a reason; what is accepted has all three members, and
 * a body written of them reads as the same.
 */
#include "fuzz.h"

#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"

#include "json_text.h"

/* A member as JSON: what JSON wants escaped, and nothing else. */
static void
target_append(StringInfo out, const char *name, const char *value)
{
	appendStringInfo(out, "%s\"%s\":\"", out->len > 0 ? "," : "{", name);
	for (; *value != '\0'; value++)
	{
		if ((unsigned char) *value < 0x20)
			appendStringInfo(out, "\\u%04x", (unsigned char) *value);
		else
		{
			if (*value == '"' || *value == '\\')
				appendStringInfoChar(out, '\\');
			appendStringInfoChar(out, *value);
		}
	}
	appendStringInfoChar(out, '"');
}

static void
target_read_again(const JsonText *body)
{
	StringInfoData out;
	JsonText again;

	initStringInfo(&out);
	target_append(&out, "candidate_id", body->candidate_id);
	target_append(&out, "event_id", body->event_id);
	target_append(&out, "poll_id", body->poll_id);
	appendStringInfoChar(&out, '}');
	fuzz_check(json_text_read(out.data, out.len, PG_UTF8, &again) == NULL,
			   "a body of accepted members is accepted");
	fuzz_check(strcmp(body->event_id, again.event_id) == 0 &&
				   strcmp(body->poll_id, again.poll_id) == 0 &&
				   strcmp(body->candidate_id, again.candidate_id) == 0,
			   "a body of accepted members reads as the same");
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	JsonText body;
	char *problem = json_text_read(fuzz_bytes(data, size), (int) size, PG_UTF8,
								   &body);

	fuzz_check(problem == NULL || problem[0] != '\0', "a refusal has a reason");
	if (problem == NULL)
	{
		fuzz_check(body.event_id != NULL && body.poll_id != NULL &&
					   body.candidate_id != NULL,
				   "what is accepted is complete");
		target_read_again(&body);
	}
	fuzz_free_all();
	return 0;
}
