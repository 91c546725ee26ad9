/*
 * json_body.c
 *		The strict reader of a request body.
 *
 * The server's own parser reads it, and our actions say no to whatever is not
 * the one object we want.  What would make that parser raise instead of report
 * is looked for first: nesting, which recurses, and escapes beyond ASCII, which
 * it may be unable to convert, and which no identifier can hold.
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "compat.h"
#include "json_body.h"
#include "settings.h"

typedef struct JsonBodyState
{
	JsonBody *body;
	text **member; /* where the value of the field at hand goes */
	bool in_object;
	char *problem; /* the first one */
} JsonBodyState;

static void
json_body_note(JsonBodyState *state, const char *problem)
{
	if (state->problem == NULL)
		state->problem = pstrdup(problem);
}

static CompatJsonAction
json_body_object_start(void *arg)
{
	((JsonBodyState *) arg)->in_object = true;
	COMPAT_JSON_CONTINUE;
}

static CompatJsonAction
json_body_array_start(void *arg)
{
	json_body_note(arg, "The body is no object.");
	COMPAT_JSON_CONTINUE;
}

static CompatJsonAction
json_body_field_start(void *arg, char *name, bool isnull)
{
	JsonBodyState *state = arg;

	state->member = NULL;
	if (strcmp(name, "event_id") == 0)
		state->member = &state->body->event_id;
	else if (strcmp(name, "poll_id") == 0)
		state->member = &state->body->poll_id;
	else if (strcmp(name, "candidate_id") == 0)
		state->member = &state->body->candidate_id;
	else
		json_body_note(state, "The body has a member that is none of event_id, "
							  "poll_id and candidate_id.");
	if (state->member != NULL && *state->member != NULL)
		json_body_note(state, psprintf("The body has member %s twice.", name));
	COMPAT_JSON_CONTINUE;
}

static CompatJsonAction
json_body_scalar(void *arg, char *token, JsonTokenType type)
{
	JsonBodyState *state = arg;

	if (!state->in_object)
		json_body_note(state, "The body is no object.");
	else if (type != JSON_TOKEN_STRING)
		json_body_note(state, "A member of the body is no string.");
	else if (state->member != NULL)
		*state->member = cstring_to_text(token);
	COMPAT_JSON_CONTINUE;
}

/* How deep the bytes nest at most, and whether a string escapes beyond ASCII. */
static int
json_body_depth(const char *bytes, int length, bool *beyond_ascii)
{
	bool in_string = false;
	int deepest = 0;
	int depth = 0;

	*beyond_ascii = false;
	for (int i = 0; i < length; i++)
	{
		char byte = bytes[i];

		if (byte == '"')
			in_string = !in_string;
		else if (in_string && byte == '\\')
		{
			i++;
			if (i + 4 < length && bytes[i] == 'u' &&
				(strncmp(bytes + i + 1, "00", 2) != 0 || bytes[i + 3] > '7'))
				*beyond_ascii = true;
		}
		else if (!in_string && (byte == '[' || byte == '{'))
		{
			depth++;
			deepest = Max(deepest, depth);
		}
		else if (!in_string && (byte == ']' || byte == '}'))
			depth--;
	}
	return deepest;
}

/* What the parser would raise for, found without it. */
static char *
json_body_prescan(const char *bytes, int length)
{
	bool beyond_ascii;

	if (json_body_depth(bytes, length, &beyond_ascii) > 1)
		return pstrdup("The body nests; its members are strings.");
	if (beyond_ascii)
		return pstrdup("A string of the body has an escape beyond ASCII.");
	return NULL;
}

static char *
json_body_parse(const char *bytes, int length, JsonBodyState *state)
{
	JsonLexContext *lexer = compat_json_lexer(bytes, length);
	JsonSemAction actions = {.semstate = state,
							 .object_start = json_body_object_start,
							 .array_start = json_body_array_start,
							 .object_field_start = json_body_field_start,
							 .scalar = json_body_scalar};
	JsonParseErrorType result = pg_parse_json(lexer, &actions);

	if (result != JSON_SUCCESS)
		return psprintf("The body is no JSON: %s",
						json_errdetail(result, lexer));
	return state->problem;
}

char *
json_body_read(const text *input, JsonBody *body)
{
	JsonBodyState state = {.body = body};
	const char *bytes = VARDATA_ANY(input);
	int length = (int) VARSIZE_ANY_EXHDR(input);
	char *problem;

	memset(body, 0, sizeof(JsonBody));
	if (length > settings_max_body)
		return psprintf("The body has %d bytes; poll_tally.max_body allows %d.",
						length, settings_max_body);
	problem = json_body_prescan(bytes, length);
	if (problem == NULL)
		problem = json_body_parse(bytes, length, &state);
	if (problem != NULL)
		return problem;
	if (body->event_id == NULL || body->poll_id == NULL ||
		body->candidate_id == NULL)
		return psprintf("The body has no member %s.",
						body->event_id == NULL  ? "event_id"
						: body->poll_id == NULL ? "poll_id"
												: "candidate_id");
	return NULL;
}
