/*
 * tally_entry.h
 *		One choice and its count, and the order of choices.
 */
#ifndef POLL_TALLY_TALLY_ENTRY_H
#define POLL_TALLY_TALLY_ENTRY_H

#include "core.h"

typedef struct TallyEntry
{
	const char *choice; /* not NUL-terminated */
	int length;         /* bytes of choice, 1 to 64 */
	int64 count;
} TallyEntry;

/* Room for entries, palloc'd; 54000 when there are too many for that. */
extern TallyEntry *tally_alloc_entries(int64 count);

/*
 * Sort entries bytewise by choice, in place.  Returns the index of an entry
 * whose choice also stands before it, or -1 when no choice stands twice.
 */
extern int tally_sort(TallyEntry *entries, int count);

/* Bytewise order of choices: below, at or above 0, as memcmp. */
extern int tally_compare_choice(const char *a, int alen, const char *b,
								int blen);
extern int tally_compare_entries(const void *a, const void *b);

/* The DETAIL of a choice that stands twice. */
#define TALLY_DUPLICATE_DETAIL "Choice \"%.*s\" is given more than once."

/* The DETAIL of a count that does not fit into bigint. */
#define TALLY_OVERFLOW_DETAIL \
	"The count of choice \"%.*s\" does not fit into bigint."

#endif /* POLL_TALLY_TALLY_ENTRY_H */
