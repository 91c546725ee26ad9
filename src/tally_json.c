/*
 * tally_json.c
 *		Tallies as JSON: reading text and jsonb, writing both.
 *
 * Invariant: a text and the jsonb of the same text are accepted or refused
 * alike, since one function reads every number and one rule judges every key.
 * (Only a choice given twice differs: jsonb has dropped one before we see it.)
 * Escapes in keys are decoded by the server's lexer before they are judged.
 *
 * The first thing inside the object that is no number stops the parser, so that
 * no input makes it recurse.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/numeric.h"

#include "compat.h"
#include "ident.h"
#include "tally_json.h"
#include "tally_number.h"

PG_FUNCTION_INFO_V1(tally_in);
PG_FUNCTION_INFO_V1(tally_out);
PG_FUNCTION_INFO_V1(tally_to_json_sql);
PG_FUNCTION_INFO_V1(tally_to_jsonb_sql);
PG_FUNCTION_INFO_V1(tally_from_jsonb_sql);

/* Room for the entries of a text to begin with. */
#define TALLY_READER_FIRST_ROOM 16

/* What the semantic actions of the parser know. */
typedef struct TallyReader
{
	JsonLexContext *lexer;
	Node *escontext; /* takes soft errors, or NULL */
	bool in_object;
	const char *separator; /* the { or , before the next key */
	const char *value;     /* where the value being read begins */
	TallyEntry *entries;   /* the last one is being read */
	int count;
	int room; /* entries allocated */
} TallyReader;

/* What is wrong with a tally in JSON; sqlstate 0 when nothing is. */
typedef struct TallyProblem
{
	int sqlstate;
	char *detail; /* a palloc'd sentence */
} TallyProblem;

/* Judge the count of a choice, given as a JSON number. */
static TallyProblem
tally_read_count(const char *token, TallyEntry *entry)
{
	TallyProblem problem = {0, NULL};
	int64_t count;

	switch (tally_number_read(token, &count))
	{
		case TALLY_NUMBER_OK:
			entry->count = count;
			break;
		case TALLY_NUMBER_NO_INTEGER:
			problem.sqlstate = ERRCODE_INVALID_TEXT_REPRESENTATION;
			problem.detail =
				psprintf("The count of choice \"%.*s\" is not an integer.",
						 entry->length, entry->choice);
			break;
		case TALLY_NUMBER_OUT_OF_RANGE:
			problem.sqlstate = ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE;
			problem.detail =
				psprintf(TALLY_OVERFLOW_DETAIL, entry->length, entry->choice);
			break;
	}
	return problem;
}

/* The value as a whole (entry is NULL), or a count, is of the wrong type. */
static char *
tally_describe_type(const TallyEntry *entry, const char *type)
{
	if (entry == NULL)
		return psprintf(
			"The value is of JSON type %s; it must be an object of counts.",
			type);
	return psprintf("The count of choice \"%.*s\" is of JSON type %s; it must "
					"be an integer.",
					entry->length, entry->choice, type);
}

/*
 * Text
 */

/* Report a problem with a text; in 15, and for hard errors, does not return. */
static void
tally_reader_report(TallyReader *reader, int sqlstate, const char *detail,
					const char *place)
{
	const char *text = reader->lexer->input;

	if (place == NULL)
		place = text + reader->lexer->input_length;
	if (sqlstate == ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE)
		compat_errsave(
			reader->escontext,
			(errcode(sqlstate), errmsg("count out of range"),
			 errdetail("%s See character %d.", detail,
					   pg_mbstrlen_with_len(text, place - text) + 1)));
	else
		compat_errsave(
			reader->escontext,
			(errcode(sqlstate),
			 errmsg("invalid input syntax for type %s", "tally"),
			 errdetail("%s See character %d.", detail,
					   pg_mbstrlen_with_len(text, place - text) + 1)));
}

static void
tally_reader_report_type(TallyReader *reader, const char *type)
{
	const TallyEntry *entry =
		reader->in_object ? &reader->entries[reader->count - 1] : NULL;

	tally_reader_report(reader, ERRCODE_INVALID_TEXT_REPRESENTATION,
						tally_describe_type(entry, type), reader->value);
}

static CompatJsonAction
tally_reader_object_start(void *state)
{
	TallyReader *reader = (TallyReader *) state;

	if (reader->in_object)
	{
		tally_reader_report_type(reader, "object");
		COMPAT_JSON_STOP;
	}
	reader->in_object = true;
	reader->separator = reader->lexer->token_start;
	COMPAT_JSON_CONTINUE;
}

static CompatJsonAction
tally_reader_array_start(void *state)
{
	tally_reader_report_type((TallyReader *) state, "array");
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
	TallyEntry *entry;
	char *problem;

	reader->value = reader->lexer->token_start;
	problem = ident_problem("choice", name, strlen(name));
	if (problem != NULL)
	{
		tally_reader_report(reader, ERRCODE_INVALID_TEXT_REPRESENTATION,
							problem, tally_reader_key_place(reader));
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
		tally_reader_report_type(reader, tally_token_type(token_type));
		COMPAT_JSON_STOP;
	}
	problem = tally_read_count(token, &reader->entries[reader->count - 1]);
	pfree(token);
	if (problem.sqlstate != 0)
	{
		tally_reader_report(reader, problem.sqlstate, problem.detail,
							reader->value);
		COMPAT_JSON_STOP;
	}
	COMPAT_JSON_CONTINUE;
}

/* Run the parser; false when a soft error was reported. */
static bool
tally_reader_parse(TallyReader *reader)
{
	JsonSemAction actions = {0};
	JsonParseErrorType result;

	actions.semstate = reader;
	actions.object_start = tally_reader_object_start;
	actions.array_start = tally_reader_array_start;
	actions.object_field_start = tally_reader_field_start;
	actions.object_field_end = tally_reader_field_end;
	actions.scalar = tally_reader_scalar;
	result = pg_parse_json(reader->lexer, &actions);
	if (result == JSON_SUCCESS)
		return true;
	if (!compat_json_stopped(result))
		tally_reader_report(reader, ERRCODE_INVALID_TEXT_REPRESENTATION,
							json_errdetail(result, reader->lexer),
							reader->lexer->token_start);
	return false;
}

Tally *
tally_from_text(const char *text, Node *escontext)
{
	TallyReader reader = {0};
	int duplicate;

	reader.lexer = compat_json_lexer(text, strlen(text));
	reader.escontext = escontext;
	reader.value = text;
	reader.room = TALLY_READER_FIRST_ROOM;
	reader.entries = tally_alloc_entries(reader.room);
	if (!tally_reader_parse(&reader))
		return NULL;
	duplicate = tally_sort(reader.entries, reader.count);
	if (duplicate >= 0)
		compat_ereturn(
			escontext, NULL,
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			 errmsg("invalid input syntax for type %s", "tally"),
			 errdetail(TALLY_DUPLICATE_DETAIL, reader.entries[duplicate].length,
					   reader.entries[duplicate].choice)));
	return tally_build(reader.entries, reader.count);
}

void
tally_append_json(StringInfo out, const Tally *tally)
{
	TallyIterator it;
	TallyEntry entry;
	const char *separator = "";

	/* No byte of an identifier needs an escape. */
	appendStringInfoChar(out, '{');
	tally_iterate(tally, &it);
	while (tally_next(&it, &entry))
	{
		appendStringInfo(out, "%s\"%.*s\": " INT64_FORMAT, separator,
						 entry.length, entry.choice, entry.count);
		separator = ", ";
	}
	appendStringInfoChar(out, '}');
}

/*
 * jsonb
 */

/* Judge one pair; the choice of the entry points into the jsonb. */
static TallyProblem
tally_read_pair(const JsonbValue *key, JsonbValue *value, TallyEntry *entry)
{
	TallyProblem problem = {0, NULL};
	char *number;

	entry->choice = key->val.string.val;
	entry->length = key->val.string.len;
	problem.detail = ident_problem("choice", entry->choice, entry->length);
	if (problem.detail != NULL)
	{
		problem.sqlstate = ERRCODE_INVALID_TEXT_REPRESENTATION;
		return problem;
	}
	if (value->type != jbvNumeric)
	{
		problem.sqlstate = ERRCODE_INVALID_PARAMETER_VALUE;
		problem.detail = tally_describe_type(entry, JsonbTypeName(value));
		return problem;
	}
	number = numeric_normalize(value->val.numeric);
	problem = tally_read_count(number, entry);
	pfree(number);
	if (problem.sqlstate == ERRCODE_INVALID_TEXT_REPRESENTATION)
		problem.sqlstate = ERRCODE_INVALID_PARAMETER_VALUE;
	return problem;
}

/* What the root of a jsonb is, when it is no object. */
static TallyProblem
tally_judge_root(Jsonb *jsonb)
{
	TallyProblem problem = {0, NULL};
	JsonbValue scalar;
	const char *type = "array";

	if (JB_ROOT_IS_OBJECT(jsonb))
		return problem;
	if (JsonbExtractScalar(&jsonb->root, &scalar))
		type = JsonbTypeName(&scalar);
	problem.sqlstate = ERRCODE_INVALID_PARAMETER_VALUE;
	problem.detail = tally_describe_type(NULL, type);
	return problem;
}

/*
 * Read a jsonb; *tally is set when there is no problem.  The entries cannot be
 * too many for memory: jsonb holds fewer pairs than that.
 */
static TallyProblem
tally_read_jsonb(Jsonb *jsonb, Tally **tally)
{
	TallyProblem problem = tally_judge_root(jsonb);
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue key, value;
	TallyEntry *entries;
	int count = 0;

	if (problem.sqlstate != 0)
		return problem;
	entries = tally_alloc_entries(JB_ROOT_COUNT(jsonb));
	it = JsonbIteratorInit(&jsonb->root);
	while ((token = JsonbIteratorNext(&it, &key, true)) != WJB_DONE)
	{
		if (token != WJB_KEY)
			continue;
		(void) JsonbIteratorNext(&it, &value, true);
		problem = tally_read_pair(&key, &value, &entries[count++]);
		if (problem.sqlstate != 0)
			return problem;
	}
	*tally = tally_build(entries, count);
	pfree(entries);
	return problem;
}

bool
tally_from_jsonb(Jsonb *jsonb, Tally **tally, char **detail)
{
	TallyProblem problem = tally_read_jsonb(jsonb, tally);

	if (problem.sqlstate != 0)
		*detail = problem.detail;
	return problem.sqlstate == 0;
}

Jsonb *
tally_to_jsonb(const Tally *tally)
{
	JsonbParseState *state = NULL;
	TallyIterator it;
	TallyEntry entry;
	JsonbValue value;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	tally_iterate(tally, &it);
	while (tally_next(&it, &entry))
	{
		value.type = jbvString;
		value.val.string.val = unconstify(char *, entry.choice);
		value.val.string.len = entry.length;
		pushJsonbValue(&state, WJB_KEY, &value);
		value.type = jbvNumeric;
		value.val.numeric = int64_to_numeric(entry.count);
		pushJsonbValue(&state, WJB_VALUE, &value);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/*
 * Called from SQL
 */

Datum
tally_in(PG_FUNCTION_ARGS)
{
	Tally *tally = tally_from_text(PG_GETARG_CSTRING(0), fcinfo->context);

	if (tally == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TALLY(tally);
}

Datum
tally_out(PG_FUNCTION_ARGS)
{
	StringInfoData out;

	initStringInfo(&out);
	tally_append_json(&out, PG_GETARG_TALLY(0));
	PG_RETURN_CSTRING(out.data);
}

Datum
tally_to_json_sql(PG_FUNCTION_ARGS)
{
	StringInfoData out;

	initStringInfo(&out);
	tally_append_json(&out, PG_GETARG_TALLY(0));
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}

Datum
tally_to_jsonb_sql(PG_FUNCTION_ARGS)
{
	PG_RETURN_JSONB_P(tally_to_jsonb(PG_GETARG_TALLY(0)));
}

Datum
tally_from_jsonb_sql(PG_FUNCTION_ARGS)
{
	Tally *tally = NULL;
	TallyProblem problem = tally_read_jsonb(PG_GETARG_JSONB_P(0), &tally);

	if (problem.sqlstate == ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE)
		ereport(ERROR, (errcode(problem.sqlstate), errmsg("count out of range"),
						errdetail_internal("%s", problem.detail)));
	if (problem.sqlstate != 0)
		ereport(ERROR,
				(errcode(problem.sqlstate), errmsg("jsonb is no valid tally"),
				 errdetail_internal("%s", problem.detail)));
	PG_RETURN_TALLY(tally);
}
