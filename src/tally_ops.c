/*
 * tally_ops.c
 *		The type tally as SQL sees it: operators, comparison, hashing, binary
 *		form, and the functions that take it apart and put it together.
 *
 * Invariant: whatever builds a tally here from parts checks each part first, so
 * that no tally breaks the canonical form.  The order of tallies is that of
 * their lists of (choice, count), compared in turn; it has no deeper meaning.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "libpq/pqformat.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "compat.h"
#include "ident.h"
#include "tally_type.h"
#include "tally_wire.h"

PG_FUNCTION_INFO_V1(tally_recv);
PG_FUNCTION_INFO_V1(tally_send);
PG_FUNCTION_INFO_V1(tally_add_sql);
PG_FUNCTION_INFO_V1(tally_subtract_sql);
PG_FUNCTION_INFO_V1(tally_negate_sql);
PG_FUNCTION_INFO_V1(tally_equal_sql);
PG_FUNCTION_INFO_V1(tally_not_equal_sql);
PG_FUNCTION_INFO_V1(tally_get_sql);
PG_FUNCTION_INFO_V1(tally_compare_sql);
PG_FUNCTION_INFO_V1(tally_lt);
PG_FUNCTION_INFO_V1(tally_le);
PG_FUNCTION_INFO_V1(tally_ge);
PG_FUNCTION_INFO_V1(tally_gt);
PG_FUNCTION_INFO_V1(tally_hash);
PG_FUNCTION_INFO_V1(tally_hash_extended);
PG_FUNCTION_INFO_V1(tally_total);
PG_FUNCTION_INFO_V1(tally_total_if_fits);
PG_FUNCTION_INFO_V1(tally_each);
PG_FUNCTION_INFO_V1(tally_make);

/*
 * Arithmetic and look-up
 */

Datum
tally_add_sql(PG_FUNCTION_ARGS)
{
	PG_RETURN_TALLY(tally_add(PG_GETARG_TALLY(0), PG_GETARG_TALLY(1)));
}

Datum
tally_subtract_sql(PG_FUNCTION_ARGS)
{
	PG_RETURN_TALLY(tally_subtract(PG_GETARG_TALLY(0), PG_GETARG_TALLY(1)));
}

Datum
tally_negate_sql(PG_FUNCTION_ARGS)
{
	PG_RETURN_TALLY(tally_negate(PG_GETARG_TALLY(0)));
}

Datum
tally_get_sql(PG_FUNCTION_ARGS)
{
	text *choice = PG_GETARG_TEXT_PP(1);

	PG_RETURN_INT64(tally_get(PG_GETARG_TALLY(0), VARDATA_ANY(choice),
							  VARSIZE_ANY_EXHDR(choice)));
}

/* The sum of all counts; false when it does not fit into bigint. */
static bool
tally_sum_counts(const Tally *tally, int64 *sum)
{
	TallyTotal total = tally_total_of(0);
	TallyIterator it;
	TallyEntry entry;

	tally_iterate(tally, &it);
	while (tally_next(&it, &entry))
		tally_total_add(&total, tally_total_of(entry.count));
	return tally_total_fits(total, sum);
}

Datum
tally_total(PG_FUNCTION_ARGS)
{
	int64 result;

	if (!tally_sum_counts(PG_GETARG_TALLY(0), &result))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("total out of range"),
				 errdetail("The sum of all counts does not fit into bigint.")));
	PG_RETURN_INT64(result);
}

Datum
tally_total_if_fits(PG_FUNCTION_ARGS)
{
	int64 result;

	if (!tally_sum_counts(PG_GETARG_TALLY(0), &result))
		PG_RETURN_NULL();
	PG_RETURN_INT64(result);
}

/*
 * Comparison and hashing
 */

static int
tally_compare(const Tally *a, const Tally *b)
{
	TallyIterator ait, bit;
	TallyEntry left, right;

	tally_iterate(a, &ait);
	tally_iterate(b, &bit);
	for (;;)
	{
		bool more_left = tally_next(&ait, &left);
		bool more_right = tally_next(&bit, &right);
		int order;

		if (!more_left || !more_right)
			return (int) more_left - (int) more_right;
		order = tally_compare_choice(left.choice, left.length, right.choice,
									 right.length);
		if (order != 0)
			return order;
		if (left.count != right.count)
			return left.count < right.count ? -1 : 1;
	}
}

/* tally_compare of the two arguments, whose detoasted copies are freed. */
static int
tally_compare_arguments(FunctionCallInfo fcinfo)
{
	Tally *a = PG_GETARG_TALLY(0);
	Tally *b = PG_GETARG_TALLY(1);
	int order = tally_compare(a, b);

	PG_FREE_IF_COPY(a, 0);
	PG_FREE_IF_COPY(b, 1);
	return order;
}

static bool
tally_equal_arguments(FunctionCallInfo fcinfo)
{
	Tally *a = PG_GETARG_TALLY(0);
	Tally *b = PG_GETARG_TALLY(1);
	bool equal = tally_equal(a, b);

	PG_FREE_IF_COPY(a, 0);
	PG_FREE_IF_COPY(b, 1);
	return equal;
}

Datum
tally_equal_sql(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(tally_equal_arguments(fcinfo));
}

Datum
tally_not_equal_sql(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(!tally_equal_arguments(fcinfo));
}

Datum
tally_compare_sql(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(tally_compare_arguments(fcinfo));
}

Datum
tally_lt(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(tally_compare_arguments(fcinfo) < 0);
}

Datum
tally_le(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(tally_compare_arguments(fcinfo) <= 0);
}

Datum
tally_ge(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(tally_compare_arguments(fcinfo) >= 0);
}

Datum
tally_gt(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(tally_compare_arguments(fcinfo) > 0);
}

Datum
tally_hash(PG_FUNCTION_ARGS)
{
	Tally *tally = PG_GETARG_TALLY(0);
	Datum hash = hash_any((unsigned char *) VARDATA_ANY(tally),
						  VARSIZE_ANY_EXHDR(tally));

	PG_FREE_IF_COPY(tally, 0);
	return hash;
}

Datum
tally_hash_extended(PG_FUNCTION_ARGS)
{
	Tally *tally = PG_GETARG_TALLY(0);
	Datum hash = hash_any_extended((unsigned char *) VARDATA_ANY(tally),
								   VARSIZE_ANY_EXHDR(tally),
								   (uint64) PG_GETARG_INT64(1));

	PG_FREE_IF_COPY(tally, 0);
	return hash;
}

/*
 * Binary form: int32 number of entries; for each, in order, int8 length of the
 * choice, its bytes, int64 count.  All in network byte order.
 */
Datum
tally_send(PG_FUNCTION_ARGS)
{
	Tally *tally = PG_GETARG_TALLY(0);
	StringInfoData message;
	TallyIterator it;
	TallyEntry entry;

	pq_begintypsend(&message);
	pq_sendint32(&message, tally_count_entries(tally));
	tally_iterate(tally, &it);
	while (tally_next(&it, &entry))
	{
		pq_sendint8(&message, entry.length);
		pq_sendbytes(&message, entry.choice, entry.length);
		pq_sendint64(&message, entry.count);
	}
	PG_RETURN_BYTEA_P(pq_endtypsend(&message));
}

/* Refuse a binary form; the detail is a sentence. */
static void
tally_refuse_binary(const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
					errmsg("invalid binary form of type %s", "tally"),
					errdetail_internal("%s", detail)));
}

/* Only the canonical form is taken. */
Datum
tally_recv(PG_FUNCTION_ARGS)
{
	StringInfo message = (StringInfo) PG_GETARG_POINTER(0);
	TallyWire wire = {message->data + message->cursor,
					  message->data + message->len};
	TallyEntry *entries;
	char *problem;
	int count;

	entries = tally_wire_read(&wire, &count, &problem);
	if (entries == NULL)
		tally_refuse_binary(problem);
	message->cursor = wire.next - message->data;
	PG_RETURN_TALLY(tally_build(entries, count));
}

/*
 * Apart and together
 */

/* each(tally): a row per choice, in order. */
Datum
tally_each(PG_FUNCTION_ARGS)
{
	Tally *tally = PG_GETARG_TALLY(0);
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	TallyIterator it;
	TallyEntry entry;

	InitMaterializedSRF(fcinfo, 0);
	tally_iterate(tally, &it);
	while (tally_next(&it, &entry))
	{
		text *choice = cstring_to_text_with_len(entry.choice, entry.length);
		Datum values[2] = {PointerGetDatum(choice), Int64GetDatum(entry.count)};
		bool nulls[2] = {false, false};

		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
		pfree(choice);
	}
	return (Datum) 0;
}

/* The elements of a one-dimensional array without NULLs, and how many. */
static Datum *
tally_take_elements(ArrayType *array, const char *name, int16 typlen,
					bool typbyval, char typalign, int *count)
{
	Datum *elements;

	if (ARR_NDIM(array) > 1)
		ereport(
			ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("argument \"%s\" must be a one-dimensional array", name)));
	if (array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" must not contain nulls", name)));
	deconstruct_array(array, ARR_ELEMTYPE(array), typlen, typbyval, typalign,
					  &elements, NULL, count);
	return elements;
}

static void
tally_refuse_choice(const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
					errmsg("invalid choice for type %s", "tally"),
					errdetail_internal("%s", detail)));
}

/* make_tally(choices text[], counts bigint[]) */
Datum
tally_make(PG_FUNCTION_ARGS)
{
	int nchoices, ncounts, duplicate;
	Datum *choices = tally_take_elements(PG_GETARG_ARRAYTYPE_P(0), "choices",
										 -1, false, TYPALIGN_INT, &nchoices);
	Datum *counts =
		tally_take_elements(PG_GETARG_ARRAYTYPE_P(1), "counts", sizeof(int64),
							FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &ncounts);
	TallyEntry *entries;

	if (nchoices != ncounts)
		ereport(ERROR, (errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
						errmsg("choices and counts must have the same length"),
						errdetail("There are %d choices and %d counts.",
								  nchoices, ncounts)));
	entries = tally_alloc_entries(nchoices);
	for (int i = 0; i < nchoices; i++)
	{
		text *choice = (text *) DatumGetPointer(choices[i]);
		char *problem;

		entries[i].choice = VARDATA_ANY(choice);
		entries[i].length = VARSIZE_ANY_EXHDR(choice);
		entries[i].count = DatumGetInt64(counts[i]);
		problem = ident_problem("choice", entries[i].choice, entries[i].length);
		if (problem != NULL)
			tally_refuse_choice(psprintf("%s See element %d.", problem, i + 1));
	}
	duplicate = tally_sort(entries, nchoices);
	if (duplicate >= 0)
		tally_refuse_choice(psprintf(TALLY_DUPLICATE_DETAIL,
									 entries[duplicate].length,
									 entries[duplicate].choice));
	PG_RETURN_TALLY(tally_build(entries, nchoices));
}
