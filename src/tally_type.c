/*
 * tally_type.c
 *		The data type tally: layout, look-up and arithmetic.
 *
 * Invariant: every tally is canonical (choices ascend bytewise, none twice, no
 * count of 0).  All of them are written by tally_append below, in order, into
 * memory of the final size or a bound of it; so equality is memcmp.
 */
#include "postgres.h"

#include "common/int.h"
#include "utils/memutils.h"

#include "compat.h"
#include "ident.h"
#include "plant.h"
#include "tally_type.h"

/* Bytes of an entry besides those of its choice. */
#define TALLY_ENTRY_OVERHEAD (sizeof(uint8) + sizeof(int64))

/*
 * Begin a tally that holds at most "size" bytes of entries; *end is where the
 * first one goes.
 */
static Tally *
tally_begin(Size size, char **end)
{
	Tally *tally;

	if (size > MaxAllocSize - VARHDRSZ)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("tally is too large"),
				 errdetail("It would need %zu bytes; at most %zu are allowed.",
						   size, (Size) MaxAllocSize - VARHDRSZ)));
	tally = (Tally *) palloc(VARHDRSZ + size);
	*end = VARDATA(tally);
	return tally;
}

/* Write one entry and return where the next one goes; a zero is left out. */
static char *
tally_append(char *end, const char *choice, int length, int64 count)
{
	Assert(ident_is_valid(choice, length));

	if (count == 0)
		return end;
	*end++ = (char) length;
	memcpy(end, choice, length);
	end += length;
	memcpy(end, &count, sizeof(count));
	return end + sizeof(count);
}

static Tally *
tally_finish(Tally *tally, const char *end)
{
	SET_VARSIZE(tally, end - (char *) tally);
	return tally;
}

TallyEntry *
tally_alloc_entries(int64 count)
{
	int64 most = MaxAllocSize / sizeof(TallyEntry);

	if (count > most)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("tally has too many choices"),
				 errdetail("At most " INT64_FORMAT " can be read at a time.",
						   most)));
	return (TallyEntry *) palloc(sizeof(TallyEntry) * count);
}

Tally *
tally_build(TallyEntry *entries, int count)
{
	Size size = 0;
	Tally *tally;
	char *end;
	int duplicate PG_USED_FOR_ASSERTS_ONLY = tally_sort(entries, count);

	Assert(duplicate < 0);
	for (int i = 0; i < count; i++)
	{
		if (entries[i].count != 0)
			size += entries[i].length + TALLY_ENTRY_OVERHEAD;
	}
	tally = tally_begin(size, &end);
	for (int i = 0; i < count; i++)
		end = tally_append(end, entries[i].choice, entries[i].length,
						   entries[i].count);
	Assert(end == VARDATA(tally) + size);
	return tally_finish(tally, end);
}

void
tally_iterate(const Tally *tally, TallyIterator *it)
{
	it->next = VARDATA_ANY(tally);
	it->end = it->next + VARSIZE_ANY_EXHDR(tally);
}

bool
tally_next(TallyIterator *it, TallyEntry *entry)
{
	const char *at = it->next;

	if (at == it->end)
		return false;
	Assert(it->end - at > (ptrdiff_t) TALLY_ENTRY_OVERHEAD);
	entry->length = (uint8) *at++;
	entry->choice = at;
	at += entry->length;
	memcpy(&entry->count, at, sizeof(int64));
	it->next = at + sizeof(int64);
	Assert(it->next <= it->end && entry->count != 0);
	return true;
}

int64
tally_get(const Tally *tally, const char *choice, int length)
{
	TallyIterator it;
	TallyEntry entry;

	tally_iterate(tally, &it);
	while (tally_next(&it, &entry))
	{
		int order =
			tally_compare_choice(entry.choice, entry.length, choice, length);

		if (order == 0)
			return entry.count;
		if (order > 0)
			break;
	}
	return 0;
}

bool
tally_equal(const Tally *a, const Tally *b)
{
	Size size = VARSIZE_ANY_EXHDR(a);

	return size == VARSIZE_ANY_EXHDR(b) &&
		   memcmp(VARDATA_ANY(a), VARDATA_ANY(b), size) == 0;
}

bool
tally_is_empty(const Tally *tally)
{
	return VARSIZE_ANY_EXHDR(tally) == 0;
}

int
tally_count_entries(const Tally *tally)
{
	TallyIterator it;
	TallyEntry entry;
	int count = 0;

	tally_iterate(tally, &it);
	while (tally_next(&it, &entry))
		count++;
	return count;
}

/*
 * One step of a merge: which of the two entries, NULL at a side's end, comes
 * first?  Below 0 the left one, above 0 the right one, 0 both.
 */
static int
tally_merge_order(const TallyEntry *left, const TallyEntry *right)
{
	if (left == NULL)
		return 1;
	if (right == NULL)
		return -1;
	return tally_compare_entries(left, right);
}

/*
 * The operation "combine", which returns true on overflow, for each choice of
 * a or b.  NULL, with the choice in *misfit, for a count that does not fit.
 */
static Tally *
tally_merge_if_fits(const Tally *a, const Tally *b,
					bool (*combine)(int64 left, int64 right, int64 *result),
					TallyEntry *misfit)
{
	TallyIterator ait, bit;
	TallyEntry left, right;
	bool more_left, more_right;
	char *end;
	Tally *tally =
		tally_begin((Size) VARSIZE_ANY_EXHDR(a) + VARSIZE_ANY_EXHDR(b), &end);

	tally_iterate(a, &ait);
	tally_iterate(b, &bit);
	more_left = tally_next(&ait, &left);
	more_right = tally_next(&bit, &right);
	while (more_left || more_right)
	{
		int order = tally_merge_order(more_left ? &left : NULL,
									  more_right ? &right : NULL);
		const TallyEntry *entry = order <= 0 ? &left : &right;
		int64 count;

		if (combine(order <= 0 ? left.count : 0, order >= 0 ? right.count : 0,
					&count) &&
			!PLANT(OVERFLOW_WRAPS))
		{
			*misfit = *entry;
			return NULL;
		}
		end = tally_append(end, entry->choice, entry->length, count);
		if (order <= 0)
			more_left = tally_next(&ait, &left);
		if (order >= 0)
			more_right = tally_next(&bit, &right);
	}
	return tally_finish(tally, end);
}

static Tally *
tally_merge(const Tally *a, const Tally *b,
			bool (*combine)(int64 left, int64 right, int64 *result))
{
	TallyEntry misfit;
	Tally *tally = tally_merge_if_fits(a, b, combine, &misfit);

	if (tally == NULL)
		tally_raise_overflow(misfit.choice, misfit.length);
	return tally;
}

Tally *
tally_subtract_if_fits(const Tally *a, const Tally *b, TallyEntry *misfit)
{
	return tally_merge_if_fits(a, b, pg_sub_s64_overflow, misfit);
}

Tally *
tally_add(const Tally *a, const Tally *b)
{
	return tally_merge(a, b, pg_add_s64_overflow);
}

Tally *
tally_subtract(const Tally *a, const Tally *b)
{
	return tally_merge(a, b, pg_sub_s64_overflow);
}

Tally *
tally_negate(const Tally *a)
{
	Tally *nothing = tally_build(NULL, 0);

	return tally_subtract(nothing, a);
}

void
tally_raise_overflow(const char *choice, int length)
{
	ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					errmsg("count out of range"),
					errdetail(TALLY_OVERFLOW_DETAIL, length, choice)));
}
