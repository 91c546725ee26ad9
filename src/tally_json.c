/*
 * tally_json.c
 *		Tallies as JSON: reading text and jsonb, writing both.
 *
 * Invariant: a text and the jsonb of the same text are accepted or refused
 * alike, since one function reads every number and one rule judges every key.
 * (Only a choice given twice differs: jsonb has dropped one before we see it.)
 * The text's reader is tally_text.c.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/numeric.h"

#include "compat.h"
#include "ident.h"
#include "tally_json.h"
#include "tally_text.h"

PG_FUNCTION_INFO_V1(tally_in);
PG_FUNCTION_INFO_V1(tally_out);
PG_FUNCTION_INFO_V1(tally_to_json_sql);
PG_FUNCTION_INFO_V1(tally_to_jsonb_sql);
PG_FUNCTION_INFO_V1(tally_from_jsonb_sql);

/* The SQLSTATE of what is wrong with a text. */
static int
tally_text_sqlstate(TallyFault fault)
{
	return fault == TALLY_COUNT_TOO_LARGE ? ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE
										  : ERRCODE_INVALID_TEXT_REPRESENTATION;
}

/* Of a jsonb: no problem of syntax but that of a key. */
static int
tally_jsonb_sqlstate(TallyFault fault)
{
	return fault == TALLY_NO_INTEGER || fault == TALLY_WRONG_TYPE
			   ? ERRCODE_INVALID_PARAMETER_VALUE
			   : tally_text_sqlstate(fault);
}

/*
 * Text
 */

/* Report a problem with a text; in 15, and for hard errors, does not return. */
static void
tally_report(void *escontext, TallyProblem problem, const char *text,
			 const char *place)
{
	int sqlstate = tally_text_sqlstate(problem.fault);

	if (problem.fault == TALLY_COUNT_TOO_LARGE)
		compat_errsave(
			(Node *) escontext,
			(errcode(sqlstate), errmsg("count out of range"),
			 errdetail("%s See character %d.", problem.detail,
					   pg_mbstrlen_with_len(text, place - text) + 1)));
	else
		compat_errsave(
			(Node *) escontext,
			(errcode(sqlstate),
			 errmsg("invalid input syntax for type %s", "tally"),
			 errdetail("%s See character %d.", problem.detail,
					   pg_mbstrlen_with_len(text, place - text) + 1)));
}

Tally *
tally_from_text(const char *text, Node *escontext)
{
	TallyTextReport report = {tally_report, escontext};
	TallyEntry *entries;
	int count;
	int duplicate;

	entries = tally_text_read(text, strlen(text), GetDatabaseEncoding(), report,
							  &count);
	if (entries == NULL)
		return NULL;
	duplicate = tally_sort(entries, count);
	if (duplicate >= 0)
		compat_ereturn(
			escontext, NULL,
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			 errmsg("invalid input syntax for type %s", "tally"),
			 errdetail(TALLY_DUPLICATE_DETAIL, entries[duplicate].length,
					   entries[duplicate].choice)));
	return tally_build(entries, count);
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
	TallyProblem problem = {TALLY_FINE, NULL};
	char *number;

	entry->choice = key->val.string.val;
	entry->length = key->val.string.len;
	problem.detail = ident_problem("choice", entry->choice, entry->length);
	if (problem.detail != NULL)
	{
		problem.fault = TALLY_MALFORMED;
		return problem;
	}
	if (value->type != jbvNumeric)
		return tally_text_wrong_type(entry, JsonbTypeName(value));
	number = numeric_normalize(value->val.numeric);
	problem = tally_text_count(number, entry);
	pfree(number);
	return problem;
}

/* What the root of a jsonb is, when it is no object. */
static TallyProblem
tally_judge_root(Jsonb *jsonb)
{
	TallyProblem fine = {TALLY_FINE, NULL};
	JsonbValue scalar;
	const char *type = "array";

	if (JB_ROOT_IS_OBJECT(jsonb))
		return fine;
	if (JsonbExtractScalar(&jsonb->root, &scalar))
		type = JsonbTypeName(&scalar);
	return tally_text_wrong_type(NULL, type);
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

	if (problem.fault != TALLY_FINE)
		return problem;
	entries = tally_alloc_entries(JB_ROOT_COUNT(jsonb));
	it = JsonbIteratorInit(&jsonb->root);
	while ((token = JsonbIteratorNext(&it, &key, true)) != WJB_DONE)
	{
		if (token != WJB_KEY)
			continue;
		(void) JsonbIteratorNext(&it, &value, true);
		problem = tally_read_pair(&key, &value, &entries[count++]);
		if (problem.fault != TALLY_FINE)
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

	if (problem.fault != TALLY_FINE)
		*detail = problem.detail;
	return problem.fault == TALLY_FINE;
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

	int sqlstate = tally_jsonb_sqlstate(problem.fault);

	if (problem.fault == TALLY_COUNT_TOO_LARGE)
		ereport(ERROR, (errcode(sqlstate), errmsg("count out of range"),
						errdetail_internal("%s", problem.detail)));
	if (problem.fault != TALLY_FINE)
		ereport(ERROR, (errcode(sqlstate), errmsg("jsonb is no valid tally"),
						errdetail_internal("%s", problem.detail)));
	PG_RETURN_TALLY(tally);
}
