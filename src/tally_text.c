/*
 * tally_text.c
 *		Reading the text form of a tally, which is JSON.
 *
 * Core: compiles outside the server too.  The server's own parser reads; our
 * actions take one object of integers and refuse the first thing in it that is
 * anything else, so that no input makes the parser recurse.  Escapes in keys are
 * decoded by its lexer before they are judged.
 */
#include "core.h"

#include "compat.h"
#include "ident.h"
#include "tally_number.h"
#include "tally_text.h"

/* Room for the entries of a text to begin with. */
#define TALLY_READER_FIRST_ROOM 16

/* What the semantic actions of the parser know. */
typedef struct TallyReader
{
	JsonLexContext *lexer;
	TallyTextReport report;
	bool refused; /* a problem was reported */
	bool in_object;
	const char *separator; /* the { or , before the next key */
	const char *value;     /* where the value being read begins */
	TallyEntry *entries;   /* the last one is being read */
	int count;
	int room; /* entries allocated */
} TallyReader;

TallyProblem
tally_text_count(const char *token, TallyEntry *entry)
{
	TallyProblem problem = {TALLY_FINE, NULL};
	int64_t count;

	switch (tally_number_read(token, &count))
	{
		case TALLY_NUMBER_OK:
			entry->count = count;
			break;
		case TALLY_NUMBER_NO_INTEGER:
			problem.fault = TALLY_NO_INTEGER;
			problem.detail =
				psprintf("The count of choice \"%.*s\" is not an integer.",
						 entry->length, entry->choice);
			break;
		case TALLY_NUMBER_OUT_OF_RANGE:
			problem.fault = TALLY_COUNT_TOO_LARGE;
			problem.detail =
				psprintf(TALLY_OVERFLOW_DETAIL, entry->length, entry->choice);
			break;
	}
	return problem;
}

TallyProblem
tally_text_wrong_type(const TallyEntry *entry, const char *type)
{
	TallyProblem problem = {TALLY_WRONG_TYPE, NULL};

	if (entry == NULL)
		problem.detail = psprintf(
			"The value is of JSON type %s; it must be an object of counts.",
			type);
	else
		problem.detail =
			psprintf("The count of choice \"%.*s\" is of JSON type %s; it must "
					 "be an integer.",
					 entry->length, entry->choice, type);
	return problem;
}

/* Only the first problem counts. */
static void
tally_reader_refuse(TallyReader *reader, TallyProblem problem,
					const char *place)
{
	const char *text = reader->lexer->input;

	if (place == NULL)
		place = text + reader->lexer->input_length;
	if (!reader->refused)
		reader->report.report(reader->report.arg, problem, text, place);
	reader->refused = true;
}

static void
tally_reader_refuse_type(TallyReader *reader, const char *type)
{
	const TallyEntry *entry =
		reader->in_object ? &reader->entries[reader->count - 1] : NULL;

	tally_reader_refuse(reader, tally_text_wrong_type(entry, type),
						reader->value);
}

static CompatJsonAction
tally_reader_object_start(void *state)
{
	TallyReader *reader = (TallyReader *) state;

	if (reader->in_object)
	{
		tally_reader_refuse_type(reader, "object");
		COMPAT_JSON_STOP;
	}
	reader->in_object = true;
	reader->separator = reader->lexer->token_start;
	COMPAT_JSON_CONTINUE;
}

static CompatJsonAction
tally_reader_array_start(void *state)
{
	tally_reader_refuse_type((TallyReader *) state, "array");
	COMPAT_JSON_STOP;
}

/* Where the key begins whose value the lexer stands at. */
static const char *
tally_reader_key_place(const TallyReader *reader)
{
	const char *place = reader->separator + 1;

	while (*place != '"')
		place++; /* white space */
	return place;
}

static CompatJsonAction
tally_reader_field_start(void *state, char *name, bool isnull)
{
	TallyReader *reader = (TallyReader *) state;
	TallyProblem problem = {TALLY_MALFORMED, NULL};
	TallyEntry *entry;

	reader->value = reader->lexer->token_start;
	problem.detail = ident_problem("choice", name, strlen(name));
	if (problem.detail != NULL)
	{
		tally_reader_refuse(reader, problem, tally_reader_key_place(reader));
		COMPAT_JSON_STOP;
	}
	if (reader->count == reader->room)
	{
		TallyEntry *larger = tally_alloc_entries((int64) reader->room * 2);

		memcpy(larger, reader->entries, sizeof(TallyEntry) * reader->count);
		pfree(reader->entries);
		reader->entries = larger;
		reader->room *= 2;
	}
	entry = &reader->entries[reader->count++];
	entry->choice = name;
	entry->length = strlen(name);
	entry->count = 0;
	COMPAT_JSON_CONTINUE;
}

static CompatJsonAction
tally_reader_field_end(void *state, char *name, bool isnull)
{
	TallyReader *reader = (TallyReader *) state;

	reader->separator = reader->lexer->token_start;
	COMPAT_JSON_CONTINUE;
}

static const char *
tally_token_type(JsonTokenType token_type)
{
	switch (token_type)
	{
		case JSON_TOKEN_STRING:
			return "string";
		case JSON_TOKEN_NUMBER:
			return "number";
		case JSON_TOKEN_NULL:
			return "null";
		default:
			return "boolean";
	}
}

static CompatJsonAction
tally_reader_scalar(void *state, char *token, JsonTokenType token_type)
{
	TallyReader *reader = (TallyReader *) state;
	TallyProblem problem;

	if (!reader->in_object || token_type != JSON_TOKEN_NUMBER)
	{
		tally_reader_refuse_type(reader, tally_token_type(token_type));
		COMPAT_JSON_STOP;
	}
	problem = tally_text_count(token, &reader->entries[reader->count - 1]);
	pfree(token);
	if (problem.fault != TALLY_FINE)
	{
		tally_reader_refuse(reader, problem, reader->value);
		COMPAT_JSON_STOP;
	}
	COMPAT_JSON_CONTINUE;
}

TallyEntry *
tally_text_read(const char *text, int length, int encoding,
				TallyTextReport report, int *count)
{
	TallyReader reader = {.report = report, .value = text};
	JsonSemAction actions = {.semstate = &reader,
							 .object_start = tally_reader_object_start,
							 .array_start = tally_reader_array_start,
							 .object_field_start = tally_reader_field_start,
							 .object_field_end = tally_reader_field_end,
							 .scalar = tally_reader_scalar};
	JsonParseErrorType result;

	reader.lexer = compat_json_lexer(text, length, encoding);
	reader.room = TALLY_READER_FIRST_ROOM;
	reader.entries = tally_alloc_entries(reader.room);
	result = pg_parse_json(reader.lexer, &actions);
	if (result != JSON_SUCCESS && !reader.refused)
	{
		TallyProblem problem = {TALLY_MALFORMED, NULL};

		problem.detail = json_errdetail(result, reader.lexer);
		tally_reader_refuse(&reader, problem, reader.lexer->token_start);
	}
	*count = reader.count;
	return reader.refused ? NULL : reader.entries;
}
