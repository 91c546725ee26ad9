/*
 * tally_sum.c
 *		The aggregate sum(tally).
 *
 * The state is a hash table from choice to a total in 128 bits.  It lives, with
 * the choices, in the aggregate's memory context.  Invariant: a total is the
 * exact sum of what was added, so that only a result that does not fit into
 * bigint fails, in whatever order, and by however many workers, it was added.
 * The state is NULL until the first tally: no rows sum to NULL.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "libpq/pqformat.h"

#include "compat.h"
#include "tally_type.h"

typedef struct TallySumKey
{
	const char *choice;
	int length;
} TallySumKey;

typedef struct TallySumEntry
{
	TallySumKey key;
	TallyTotal total;
	uint32 hash;
	char status; /* owned by simplehash */
} TallySumEntry;

static inline uint32
tally_sum_hash_key(TallySumKey key)
{
	return hash_bytes((const unsigned char *) key.choice, key.length);
}

static inline bool
tally_sum_same_key(TallySumKey a, TallySumKey b)
{
	return a.length == b.length && memcmp(a.choice, b.choice, a.length) == 0;
}

#define SH_PREFIX tally_sum
#define SH_ELEMENT_TYPE TallySumEntry
#define SH_KEY_TYPE TallySumKey
#define SH_KEY key
#define SH_HASH_KEY(table, key) tally_sum_hash_key(key)
#define SH_EQUAL(table, a, b) tally_sum_same_key(a, b)
#define SH_STORE_HASH
#define SH_GET_HASH(table, entry) (entry)->hash
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

#define TALLY_SUM_FIRST_SIZE 32

PG_FUNCTION_INFO_V1(tally_sum_transition);
PG_FUNCTION_INFO_V1(tally_sum_combine);
PG_FUNCTION_INFO_V1(tally_sum_serialize);
PG_FUNCTION_INFO_V1(tally_sum_deserialize);
PG_FUNCTION_INFO_V1(tally_sum_add_part);
PG_FUNCTION_INFO_V1(tally_sum_final);

static MemoryContext
tally_sum_context(FunctionCallInfo fcinfo)
{
	MemoryContext context;

	if (!AggCheckCallContext(fcinfo, &context))
		elog(ERROR,
			 "function of aggregate sum(tally) called outside an aggregate");
	return context;
}

static tally_sum_hash *
tally_sum_state(FunctionCallInfo fcinfo, int argument)
{
	return PG_ARGISNULL(argument)
			   ? NULL
			   : (tally_sum_hash *) PG_GETARG_POINTER(argument);
}

/* Add to the total of a choice, whose bytes are copied when it is new. */
static void
tally_sum_add(tally_sum_hash *state, const char *choice, int length,
			  TallyTotal addend)
{
	TallySumKey key = {choice, length};
	bool found;
	TallySumEntry *entry = tally_sum_insert(state, key, &found);

	if (!found)
	{
		char *copy = MemoryContextAlloc(state->ctx, length);

		memcpy(copy, choice, length);
		entry->key.choice = copy;
		entry->total = tally_total_of(0);
	}
	tally_total_add(&entry->total, addend);
}

/*
 * Make room for more choices at once.  Another table hands its choices over in
 * the order of their hashes; added to a table too small for them they would
 * pile up in one part of it.
 */
static void
tally_sum_reserve(tally_sum_hash *state, uint32 additional)
{
	uint64 needed = (uint64) state->members + additional;

	if (needed > state->grow_threshold)
		tally_sum_grow(state, needed * 2);
}

Datum
tally_sum_transition(PG_FUNCTION_ARGS)
{
	MemoryContext context = tally_sum_context(fcinfo);
	tally_sum_hash *state = tally_sum_state(fcinfo, 0);
	TallyIterator it;
	TallyEntry entry;

	if (PG_ARGISNULL(1))
	{
		if (state == NULL)
			PG_RETURN_NULL();
		PG_RETURN_POINTER(state);
	}
	if (state == NULL)
		state = tally_sum_create(context, TALLY_SUM_FIRST_SIZE, NULL);
	tally_iterate(PG_GETARG_TALLY(1), &it);
	while (tally_next(&it, &entry))
		tally_sum_add(state, entry.choice, entry.length,
					  tally_total_of(entry.count));
	PG_RETURN_POINTER(state);
}

Datum
tally_sum_combine(PG_FUNCTION_ARGS)
{
	MemoryContext context = tally_sum_context(fcinfo);
	tally_sum_hash *state = tally_sum_state(fcinfo, 0);
	tally_sum_hash *other = tally_sum_state(fcinfo, 1);
	tally_sum_iterator it;
	TallySumEntry *entry;

	/* Not called where there is nothing to add: deserialize is strict. */
	Assert(other != NULL);
	if (state == NULL)
		state = tally_sum_create(context, TALLY_SUM_FIRST_SIZE, NULL);
	tally_sum_reserve(state, other->members);
	tally_sum_start_iterate(other, &it);
	while ((entry = tally_sum_iterate(other, &it)) != NULL)
		tally_sum_add(state, entry->key.choice, entry->key.length,
					  entry->total);
	PG_RETURN_POINTER(state);
}

/* How many choices; for each: length, bytes, low and high word of its total. */
Datum
tally_sum_serialize(PG_FUNCTION_ARGS)
{
	tally_sum_hash *state = (tally_sum_hash *) PG_GETARG_POINTER(0);
	tally_sum_iterator it;
	TallySumEntry *entry;
	StringInfoData bytes;

	(void) tally_sum_context(fcinfo);
	pq_begintypsend(&bytes);
	pq_sendint32(&bytes, state->members);
	tally_sum_start_iterate(state, &it);
	while ((entry = tally_sum_iterate(state, &it)) != NULL)
	{
		pq_sendint8(&bytes, entry->key.length);
		pq_sendbytes(&bytes, entry->key.choice, entry->key.length);
		pq_sendint64(&bytes, entry->total.low);
		pq_sendint64(&bytes, entry->total.high);
	}
	PG_RETURN_BYTEA_P(pq_endtypsend(&bytes));
}

/* Add what serialize wrote. */
static void
tally_sum_read(tally_sum_hash *state, bytea *serialized)
{
	StringInfoData bytes;

	initStringInfo(&bytes);
	appendBinaryStringInfo(&bytes, VARDATA_ANY(serialized),
						   VARSIZE_ANY_EXHDR(serialized));
	tally_sum_reserve(state, pq_getmsgint(&bytes, sizeof(int32)));
	while (bytes.cursor < bytes.len)
	{
		int length = pq_getmsgbyte(&bytes);
		const char *choice = pq_getmsgbytes(&bytes, length);
		TallyTotal total;

		total.low = (uint64) pq_getmsgint64(&bytes);
		total.high = pq_getmsgint64(&bytes);
		tally_sum_add(state, choice, length, total);
	}
	pfree(bytes.data);
}

/* What serialize wrote; the combine function copies it where it is to live. */
Datum
tally_sum_deserialize(PG_FUNCTION_ARGS)
{
	tally_sum_hash *state;

	(void) tally_sum_context(fcinfo);
	state = tally_sum_create(CurrentMemoryContext, TALLY_SUM_FIRST_SIZE, NULL);
	tally_sum_read(state, PG_GETARG_BYTEA_PP(0));
	PG_RETURN_POINTER(state);
}

/*
 * The transition of sum_parts, whose input are results of sum_part.  Both are
 * for the owner of the extension alone, so nobody else's bytes are read.
 */
Datum
tally_sum_add_part(PG_FUNCTION_ARGS)
{
	MemoryContext context = tally_sum_context(fcinfo);
	tally_sum_hash *state = tally_sum_state(fcinfo, 0);

	if (state == NULL)
		state = tally_sum_create(context, TALLY_SUM_FIRST_SIZE, NULL);
	if (!PG_ARGISNULL(1))
		tally_sum_read(state, PG_GETARG_BYTEA_PP(1));
	PG_RETURN_POINTER(state);
}

/* Leaves the state as it is: window aggregates go on with it. */
Datum
tally_sum_final(PG_FUNCTION_ARGS)
{
	tally_sum_hash *state = (tally_sum_hash *) PG_GETARG_POINTER(0);
	tally_sum_iterator it;
	TallySumEntry *entry;
	TallyEntry *entries;
	int count = 0;

	(void) tally_sum_context(fcinfo);
	entries = tally_alloc_entries(state->members);
	tally_sum_start_iterate(state, &it);
	while ((entry = tally_sum_iterate(state, &it)) != NULL)
	{
		TallyEntry *result = &entries[count++];

		result->choice = entry->key.choice;
		result->length = entry->key.length;
		if (!tally_total_fits(entry->total, &result->count))
			tally_raise_overflow(result->choice, result->length);
	}
	PG_RETURN_TALLY(tally_build(entries, count));
}
