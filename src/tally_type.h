/*
 * tally_type.h
 *		The data type tally: a map from choice to bigint.
 *
 * A choice that is absent counts 0.  A value is canonical: choices ascend
 * bytewise, each stands once, none counts 0, so that equal tallies are equal
 * byte by byte.  Nothing here knows a table.
 */
#ifndef POLL_TALLY_TALLY_TYPE_H
#define POLL_TALLY_TALLY_TYPE_H

#include "postgres.h"
#include "fmgr.h"

#include "tally_entry.h"

/*
 * Behind the varlena header stand packed entries: uint8 length of the choice,
 * its bytes, int64 count (unaligned, native byte order).  The header may be a
 * short one, so read through the functions below only.
 */
typedef struct varlena Tally;

typedef struct TallyIterator
{
	const char *next; /* the entry to be read next */
	const char *end;  /* where the last entry ends */
} TallyIterator;

#define DatumGetTally(datum) ((Tally *) PG_DETOAST_DATUM_PACKED(datum))
#define TallyGetDatum(tally) PointerGetDatum(tally)
#define PG_GETARG_TALLY(n) DatumGetTally(PG_GETARG_DATUM(n))
#define PG_RETURN_TALLY(tally) return TallyGetDatum(tally)

/* Walk the entries in order.  A choice points into the tally. */
extern void tally_iterate(const Tally *tally, TallyIterator *it);
extern bool tally_next(TallyIterator *it, TallyEntry *entry);

/*
 * Build a palloc'd tally.  Sorts the entries in place and drops zeros.  The
 * caller has made sure that each choice is an identifier and stands once.
 */
extern Tally *tally_build(TallyEntry *entries, int count);

/* The count of a choice, 0 when absent. */
extern int64 tally_get(const Tally *tally, const char *choice, int length);

extern bool tally_equal(const Tally *a, const Tally *b);
extern bool tally_is_empty(const Tally *tally);
extern int tally_count_entries(const Tally *tally);

/* Arithmetic per choice; palloc'd.  A count outside bigint raises 22003. */
extern Tally *tally_add(const Tally *a, const Tally *b);
extern Tally *tally_subtract(const Tally *a, const Tally *b);
extern Tally *tally_negate(const Tally *a);

/* The same; NULL, with the choice that does not fit, instead of raising. */
extern Tally *tally_subtract_if_fits(const Tally *a, const Tally *b,
									 TallyEntry *misfit);

/* A count does not fit into bigint: 22003. */
extern void tally_raise_overflow(const char *choice, int length);

/*
 * A sum of counts in 128 bits, as two words: no number of additions that can
 * happen overflows it, so only a final result is ever out of range.
 */
typedef struct TallyTotal
{
	uint64 low; /* the sum modulo 2^64 */
	int64 high; /* and what was carried out of it */
} TallyTotal;

static inline void
tally_total_add(TallyTotal *total, TallyTotal addend)
{
	total->low += addend.low;
	total->high += addend.high + (total->low < addend.low ? 1 : 0);
}

static inline TallyTotal
tally_total_of(int64 count)
{
	TallyTotal total = {(uint64) count, count < 0 ? -1 : 0};

	return total;
}

/* Does the total fit into bigint?  Stores it there if so. */
static inline bool
tally_total_fits(TallyTotal total, int64 *count)
{
	*count = (int64) total.low;
	return total.high == (*count < 0 ? -1 : 0);
}

#endif /* POLL_TALLY_TALLY_TYPE_H */
