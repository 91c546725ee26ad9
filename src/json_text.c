/*
 * json_text.c
 *		Reading the bytes of a request body.
 *
 * Core: compiles outside the server too.  The server's own parser reads, and our
 * actions say no to whatever is not the one object we want.  What would make that parser raise instead of report
 * is looked for first: nesting, which recurses, and escapes beyond ASCII, which
 * it may be unable to convert, and which no identifier can hold.
 */
#include "core.h"

#include "compat.h"
#include "json_text.h"

typedef struct JsonTextState
{
	JsonText *body;
	char **member; /* where the value of the field at hand goes */
	bool in_object;
	char *problem; /* the first one */
} JsonTextState;

static void
json_text_note(JsonTextState *state, const char *problem)
{
	if (state->problem == NULL)
		state->problem = pstrdup(problem);
}

static CompatJsonAction
json_text_object_start(void *arg)
{
	((JsonTextState *) arg)->in_object = true;
	COMPAT_JSON_CONTINUE;
}

static CompatJsonAction
json_text_array_start(void *arg)
{
	json_text_note(arg, "The body is no object.");
	COMPAT_JSON_CONTINUE;
}

static CompatJsonAction
json_text_field_start(void *arg, char *name, bool isnull)
{
	JsonTextState *state = arg;

	state->member = NULL;
	if (strcmp(name, "event_id") == 0)
		state->member = &state->body->event_id;
	else if (strcmp(name, "poll_id") == 0)
		state->member = &state->body->poll_id;
	else if (strcmp(name, "candidate_id") == 0)
		state->member = &state->body->candidate_id;
	else
		json_text_note(state, "The body has a member that is none of event_id, "
							  "poll_id and candidate_id.");
	if (state->member != NULL && *state->member != NULL)
		json_text_note(state, psprintf("The body has member %s twice.", name));
	COMPAT_JSON_CONTINUE;
}

static CompatJsonAction
json_text_scalar(void *arg, char *token, JsonTokenType type)
{
	JsonTextState *state = arg;

	if (!state->in_object)
		json_text_note(state, "The body is no object.");
	else if (type != JSON_TOKEN_STRING)
		json_text_note(state, "A member of the body is no string.");
	else if (state->member != NULL)
		*state->member = token;
	COMPAT_JSON_CONTINUE;
}

/* How deep the bytes nest at most, and whether a string escapes beyond ASCII. */
static int
json_text_depth(const char *bytes, int length, bool *beyond_ascii)
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
json_text_prescan(const char *bytes, int length)
{
	bool beyond_ascii;

	if (json_text_depth(bytes, length, &beyond_ascii) > 1)
		return pstrdup("The body nests; its members are strings.");
	if (beyond_ascii)
		return pstrdup("A string of the body has an escape beyond ASCII.");
	return NULL;
}

static char *
json_text_parse(const char *bytes, int length, int encoding,
				JsonTextState *state)
{
	JsonLexContext *lexer = compat_json_lexer(bytes, length, encoding);
	JsonSemAction actions = {.semstate = state,
							 .object_start = json_text_object_start,
							 .array_start = json_text_array_start,
							 .object_field_start = json_text_field_start,
							 .scalar = json_text_scalar};
	JsonParseErrorType result = pg_parse_json(lexer, &actions);

	if (result != JSON_SUCCESS)
		return psprintf("The body is no JSON: %s",
						json_errdetail(result, lexer));
	return state->problem;
}

char *
json_text_read(const char *bytes, int length, int encoding, JsonText *body)
{
	JsonTextState state = {.body = body};
	char *problem = json_text_prescan(bytes, length);

	memset(body, 0, sizeof(JsonText));
	if (problem == NULL)
		problem = json_text_parse(bytes, length, encoding, &state);
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
