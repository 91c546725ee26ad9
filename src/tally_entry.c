/*
 * tally_entry.c
 *		One choice and its count, and the order of choices.
 *
 * Core: compiles outside the server too.
 */
#include "core.h"

#include "tally_entry.h"

int
tally_compare_choice(const char *a, int alen, const char *b, int blen)
{
	int order = memcmp(a, b, Min(alen, blen));

	return order != 0 ? order : alen - blen;
}

int
tally_compare_entries(const void *a, const void *b)
{
	const TallyEntry *left = (const TallyEntry *) a;
	const TallyEntry *right = (const TallyEntry *) b;

	return tally_compare_choice(left->choice, left->length, right->choice,
								right->length);
}

int
tally_sort(TallyEntry *entries, int count)
{
	qsort(entries, count, sizeof(TallyEntry), tally_compare_entries);
	for (int i = 1; i < count; i++)
	{
		if (tally_compare_entries(&entries[i - 1], &entries[i]) == 0)
			return i;
	}
	return -1;
}
