/*
 * pending.c
 *		What this transaction has counted and not yet written.
 *
 * A level is what one subtransaction has counted: per poll the highest seq, per
 * choice the change.  Invariant: for each choice of a lane that we hold,
 *
 *		count in the row + changes of all levels = count as of now
 *
 * A subtransaction that commits adds its level to its parent's; one that aborts
 * drops it.  A flush writes the sum of all levels within the subtransaction at
 * hand; so that an abort of it takes back just the rows, the current level is
 * then set to minus the levels above, and the sum to zero.
 *
 * Counts of narrow choices live in the lane's row, of the others in rows of
 * their own (table lane_count).  All are guarded by the lane's lock.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "common/int.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "pending.h"
#include "store.h"

/* Entries of a level above which they are written, to bound memory. */
#define PENDING_MAX_ENTRIES 100000

typedef struct PendingKey
{
	int32 poll_id;
	int length;
	const char *choice;
} PendingKey;

typedef struct PendingCount
{
	PendingKey key;
	int64 value; /* a change in a level; a row's count in the cache */
	bool narrow;
	uint32 hash;
	char status;
} PendingCount;

typedef struct PendingSeq
{
	int32 poll_id;
	int64 seq;
	char status;
} PendingSeq;

static inline uint32
pending_hash_key(PendingKey key)
{
	return hash_combine(
		hash_bytes((const unsigned char *) key.choice, key.length),
		murmurhash32((uint32) key.poll_id));
}

static inline bool
pending_equal_keys(PendingKey a, PendingKey b)
{
	return a.poll_id == b.poll_id && a.length == b.length &&
		   memcmp(a.choice, b.choice, a.length) == 0;
}

#define SH_PREFIX pending_counts
#define SH_ELEMENT_TYPE PendingCount
#define SH_KEY_TYPE PendingKey
#define SH_KEY key
#define SH_HASH_KEY(table, key) pending_hash_key(key)
#define SH_EQUAL(table, a, b) pending_equal_keys(a, b)
#define SH_SCOPE static inline
#define SH_STORE_HASH
#define SH_GET_HASH(table, entry) (entry)->hash
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

#define SH_PREFIX pending_seqs
#define SH_ELEMENT_TYPE PendingSeq
#define SH_KEY_TYPE int32
#define SH_KEY poll_id
#define SH_HASH_KEY(table, key) murmurhash32((uint32) (key))
#define SH_EQUAL(table, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

typedef struct PendingLevel
{
	struct PendingLevel *upper; /* of an enclosing subtransaction, or NULL */
	int nest_level;
	MemoryContext context; /* owns the level and all it points to */
	pending_counts_hash *counts;
	pending_seqs_hash *seqs;
} PendingLevel;

/* Of the current transaction. */
static PendingLevel *pending_top = NULL;

/* Counts in rows of their own, as read; forgotten when rows may have changed. */
static pending_counts_hash *pending_rows = NULL;
static MemoryContext pending_rows_context = NULL;

static PendingKey
pending_key(int32 poll_id, const char *choice, int length)
{
	PendingKey key = {poll_id, length, choice};

	return key;
}

/* The level of the current subtransaction, made if need be. */
static PendingLevel *
pending_level(void)
{
	int nest_level = GetCurrentTransactionNestLevel();
	MemoryContext context;
	PendingLevel *level;

	if (pending_top != NULL && pending_top->nest_level == nest_level)
		return pending_top;
	Assert(pending_top == NULL || pending_top->nest_level < nest_level);
	context = AllocSetContextCreate(TopTransactionContext, "poll_tally pending",
									ALLOCSET_SMALL_SIZES);
	level = MemoryContextAlloc(context, sizeof(PendingLevel));
	level->upper = pending_top;
	level->nest_level = nest_level;
	level->context = context;
	level->counts = pending_counts_create(context, 8, NULL);
	level->seqs = pending_seqs_create(context, 8, NULL);
	pending_top = level;
	return level;
}

static void
pending_forget_rows(void)
{
	if (pending_rows_context != NULL)
		MemoryContextDelete(pending_rows_context);
	pending_rows_context = NULL;
	pending_rows = NULL;
	lane_forget_loaded();
}

/* The entry of a choice in a hash; a new one copies the key and counts 0. */
static PendingCount *
pending_entry(pending_counts_hash *counts, MemoryContext context,
			  PendingKey key, bool *found)
{
	PendingCount *entry = pending_counts_insert(counts, key, found);

	if (!*found)
	{
		char *choice = MemoryContextAlloc(context, key.length);

		memcpy(choice, key.choice, key.length);
		entry->key.choice = choice;
		entry->value = 0;
		entry->narrow = false;
	}
	return entry;
}

/* The changes of all levels to one choice; cannot overflow a checked count. */
static int64
pending_change(PendingKey key)
{
	int64 change = 0;

	for (PendingLevel *level = pending_top; level != NULL; level = level->upper)
	{
		PendingCount *entry = pending_counts_lookup(level->counts, key);

		/* Modulo 2^64: the sum fits, though a part of it may not. */
		if (entry != NULL)
			change = (int64) ((uint64) change + (uint64) entry->value);
	}
	return change;
}

enum LaneCountColumn
{
	LANE_COUNT_POLL_ID = 1,
	LANE_COUNT_LANE,
	LANE_COUNT_CHOICE,
	LANE_COUNT_COUNT
};

static bool
pending_find_row(Store *store, const LaneHold *hold, PendingKey choice)
{
	StoreKey key;

	store_key_init(&key);
	store_key_int4(&key, hold->poll_id);
	store_key_text(&key,
				   cstring_to_text_with_len(choice.choice, choice.length));
	store_key_int4(&key, hold->lane);
	return store_find_guarded(store, &key);
}

/* What the rows know of a choice, read once and cached: count and narrowness. */
static PendingCount *
pending_row(LaneHold *hold, PendingKey key)
{
	PendingCount *entry;
	bool found;

	if (pending_rows == NULL)
	{
		pending_rows_context = AllocSetContextCreate(TopTransactionContext,
													 "poll_tally counts read",
													 ALLOCSET_SMALL_SIZES);
		pending_rows = pending_counts_create(pending_rows_context, 8, NULL);
	}
	entry = pending_entry(pending_rows, pending_rows_context, key, &found);
	if (found)
		return entry;
	lane_load(hold);
	entry->value = tally_get(hold->counts, key.choice, key.length);
	entry->narrow = entry->value != 0;
	if (!entry->narrow)
		(void) poll_find_choice(key.poll_id, key.choice, key.length,
								&entry->narrow);
	if (!entry->narrow)
	{
		Store store;

		store_open(&store, "lane_count", "lane_count_pkey", AccessShareLock);
		if (pending_find_row(&store, hold, key))
			entry->value =
				DatumGetInt64(store_get_notnull(&store, LANE_COUNT_COUNT));
		store_close(&store);
	}
	return entry;
}

int64
pending_next_seq(LaneHold *hold)
{
	int64 seq;

	for (PendingLevel *level = pending_top; level != NULL; level = level->upper)
	{
		PendingSeq *entry = pending_seqs_lookup(level->seqs, hold->poll_id);

		if (entry != NULL)
			return entry->seq + 1;
	}
	lane_load(hold);
	seq = hold->seq + 1;
	if (seq > POSITION_MAX_SEQ)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("lane %d of the poll is full", hold->lane)));
	return seq;
}

char *
pending_beyond_limits(LaneHold *hold, const Tally *effect, int64 minimum,
					  int64 maximum)
{
	TallyIterator it;
	TallyEntry entry;

	tally_iterate(effect, &it);
	while (tally_next(&it, &entry))
	{
		PendingKey key = pending_key(hold->poll_id, entry.choice, entry.length);
		int64 count = (int64) ((uint64) pending_row(hold, key)->value +
							   (uint64) pending_change(key));

		if (pg_add_s64_overflow(count, entry.count, &count))
			tally_raise_overflow(entry.choice, entry.length);
		if (count < minimum || count > maximum)
			return pnstrdup(entry.choice, entry.length);
	}
	return NULL;
}

static void
pending_set_seq(PendingLevel *level, int32 poll_id, int64 seq)
{
	bool found;
	PendingSeq *entry = pending_seqs_insert(level->seqs, poll_id, &found);

	Assert(!found || entry->seq <= seq);
	entry->seq = seq;
}

static void
pending_add_change(PendingLevel *level, PendingKey key, int64 change,
				   bool narrow)
{
	bool found;
	PendingCount *entry =
		pending_entry(level->counts, level->context, key, &found);

	entry->value = (int64) ((uint64) entry->value + (uint64) change);
	entry->narrow = narrow;
}

void
pending_add(LaneHold *hold, int64 seq, const Tally *effect)
{
	PendingLevel *level = pending_level();
	TallyIterator it;
	TallyEntry entry;

	Assert(seq == pending_next_seq(hold));
	pending_set_seq(level, hold->poll_id, seq);
	tally_iterate(effect, &it);
	while (tally_next(&it, &entry))
	{
		PendingKey key = pending_key(hold->poll_id, entry.choice, entry.length);

		pending_add_change(level, key, entry.count,
						   pending_row(hold, key)->narrow);
	}
	if (level->counts->members > PENDING_MAX_ENTRIES)
		pending_flush();
}

/* By poll, then choice: the order in which a flush writes. */
static int
pending_compare(const void *a, const void *b)
{
	const PendingCount *left = a;
	const PendingCount *right = b;

	if (left->key.poll_id != right->key.poll_id)
		return left->key.poll_id < right->key.poll_id ? -1 : 1;
	return tally_compare_choice(left->key.choice, left->key.length,
								right->key.choice, right->key.length);
}

/* All changes, summed over the levels, in order; *count of them. */
static PendingCount *
pending_collect(int *count)
{
	pending_counts_hash *sums =
		pending_counts_create(CurrentMemoryContext, 64, NULL);
	pending_counts_iterator it;
	PendingCount *changes;
	PendingCount *entry;
	bool found;

	for (PendingLevel *level = pending_top; level != NULL; level = level->upper)
	{
		pending_counts_start_iterate(level->counts, &it);
		while ((entry = pending_counts_iterate(level->counts, &it)) != NULL)
		{
			PendingCount *sum = pending_counts_insert(sums, entry->key, &found);

			sum->value = (int64) ((found ? (uint64) sum->value : 0) +
								  (uint64) entry->value);
			sum->narrow = entry->narrow;
		}
	}
	*count = 0;
	changes = palloc_array(PendingCount, Max(sums->members, 1));
	pending_counts_start_iterate(sums, &it);
	while ((entry = pending_counts_iterate(sums, &it)) != NULL)
		changes[(*count)++] = *entry;
	qsort(changes, *count, sizeof(PendingCount), pending_compare);
	return changes;
}

/* Add a change to the row of a choice that is not narrow. */
static void
pending_write_row(Store *store, StoreWriter *writer, LaneHold *hold,
				  const PendingCount *change)
{
	bool found = pending_find_row(store, hold, change->key);
	int64 count = change->value;

	if (found)
		count =
			(int64) ((uint64) count + (uint64) DatumGetInt64(store_get_notnull(
										  store, LANE_COUNT_COUNT)));
	store_writer_clear(writer);
	store_slot_set(writer->slot, LANE_COUNT_POLL_ID,
				   Int32GetDatum(hold->poll_id));
	store_slot_set(writer->slot, LANE_COUNT_LANE, Int32GetDatum(hold->lane));
	store_slot_set(writer->slot, LANE_COUNT_CHOICE,
				   PointerGetDatum(cstring_to_text_with_len(
					   change->key.choice, change->key.length)));
	store_slot_set(writer->slot, LANE_COUNT_COUNT, Int64GetDatum(count));
	if (found)
		store_update(writer, store);
	else
		store_insert(writer);
}

/* Write the changes of one poll that are kept in rows of their own. */
static void
pending_write_rows(LaneHold *hold, const PendingCount *changes, int count)
{
	StoreWriter writer;
	Store store;

	store_open(&store, "lane_count", "lane_count_pkey", RowExclusiveLock);
	store_writer_open(&writer, "lane_count");
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!changes[i].narrow && changes[i].value != 0)
			pending_write_row(&store, &writer, hold, &changes[i]);
	}
	store_writer_close(&writer);
	store_close(&store);
}

/* The lane's row with the narrow ones of the changes made; both are sorted. */
static Tally *
pending_merge(const Tally *row, const PendingCount *changes, int count)
{
	TallyEntry *merged =
		palloc_array(TallyEntry, tally_count_entries(row) + count + 1);
	int length = 0;
	int next = 0;
	TallyIterator it;
	bool more;

	tally_iterate(row, &it);
	more = tally_next(&it, &merged[0]);
	while (more || next < count)
	{
		const PendingCount *change = next < count ? &changes[next] : NULL;
		TallyEntry *entry = &merged[length];
		int order =
			!more ? 1
			: change == NULL
				? -1
				: tally_compare_choice(entry->choice, entry->length,
									   change->key.choice, change->key.length);

		if (order >= 0)
			next++;
		if (order >= 0 && !change->narrow)
			continue;
		if (order == 0)
			entry->count =
				(int64) ((uint64) entry->count + (uint64) change->value);
		if (order > 0)
		{
			merged[length + 1] = *entry;
			entry->choice = change->key.choice;
			entry->length = change->key.length;
			entry->count = change->value;
		}
		length++;
		if (order <= 0)
			more = tally_next(&it, &merged[length]);
	}
	return tally_build(merged, length);
}

/* Write one poll's changes: its lane's row, and the other counts. */
static void
pending_write_poll(LaneHold *hold, const PendingCount *changes, int count)
{
	int64 seq = pending_next_seq(hold) - 1;
	bool narrow = false;
	bool wide = false;

	for (int i = 0; i < count; i++)
	{
		narrow |= changes[i].value != 0 && changes[i].narrow;
		wide |= changes[i].value != 0 && !changes[i].narrow;
	}
	lane_load(hold);
	if (wide)
		pending_write_rows(hold, changes, count);
	if (narrow || seq != hold->seq)
		lane_write(hold, seq, pending_merge(hold->counts, changes, count));
}

/* Set the current level to minus the levels above it: the rows have it all. */
static void
pending_settle(void)
{
	PendingLevel *outer;
	PendingLevel *level;

	if (pending_top->nest_level == GetCurrentTransactionNestLevel())
	{
		level = pending_top;
		pending_top = level->upper;
		MemoryContextDelete(level->context);
	}
	outer = pending_top;
	if (outer == NULL)
		return;
	level = pending_level();
	for (; outer != NULL; outer = outer->upper)
	{
		pending_counts_iterator it;
		pending_seqs_iterator seqs;
		PendingCount *entry;
		PendingSeq *seq;

		pending_counts_start_iterate(outer->counts, &it);
		while ((entry = pending_counts_iterate(outer->counts, &it)) != NULL)
			pending_add_change(level, entry->key,
							   (int64) (0 - (uint64) entry->value),
							   entry->narrow);
		pending_seqs_start_iterate(outer->seqs, &seqs);
		while ((seq = pending_seqs_iterate(outer->seqs, &seqs)) != NULL)
		{
			LaneHold *hold = lane_held(seq->poll_id);

			lane_load(hold);
			pending_set_seq(level, seq->poll_id, hold->seq);
		}
	}
}

static int
pending_compare_polls(const void *a, const void *b)
{
	int32 left = *(const int32 *) a;
	int32 right = *(const int32 *) b;

	return (left > right) - (left < right);
}

/*
 * The polls of all levels in ascending order, some perhaps twice; *count of
 * them.  A poll may have a new seq without a change: an effect can be empty.
 */
static int32 *
pending_collect_polls(int *count)
{
	int32 *polls;
	int size = 1;

	for (PendingLevel *level = pending_top; level != NULL; level = level->upper)
		size += level->seqs->members;
	polls = palloc_array(int32, size);
	*count = 0;
	for (PendingLevel *level = pending_top; level != NULL; level = level->upper)
	{
		pending_seqs_iterator it;
		PendingSeq *entry;

		pending_seqs_start_iterate(level->seqs, &it);
		while ((entry = pending_seqs_iterate(level->seqs, &it)) != NULL)
			polls[(*count)++] = entry->poll_id;
	}
	qsort(polls, *count, sizeof(int32), pending_compare_polls);
	return polls;
}

/* Write the rows of each poll that something is pending of. */
static void
pending_write(void)
{
	int count;
	int poll_count;
	PendingCount *changes = pending_collect(&count);
	int32 *polls = pending_collect_polls(&poll_count);
	int first = 0;

	for (int i = 0; i < poll_count; i++)
	{
		int last;

		if (i > 0 && polls[i] == polls[i - 1])
			continue;
		for (last = first;
			 last < count && changes[last].key.poll_id == polls[i]; last++)
			;
		pending_write_poll(lane_held(polls[i]), changes + first, last - first);
		first = last;
	}
	Assert(first == count);
}

void
pending_flush(void)
{
	MemoryContext context;
	MemoryContext before;

	if (pending_top == NULL)
		return;
	/* The extension may have been dropped by this very transaction. */
	if (!OidIsValid(store_relation_oid("lane")))
	{
		pending_at_end();
		return;
	}
	context = AllocSetContextCreate(CurrentMemoryContext, "poll_tally flush",
									ALLOCSET_DEFAULT_SIZES);
	before = MemoryContextSwitchTo(context);
	/* Detoasting asks for a snapshot, and at commit there is none. */
	PushActiveSnapshot(GetTransactionSnapshot());
	pending_write();
	CommandCounterIncrement();
	pending_forget_rows();
	pending_settle();
	PopActiveSnapshot();
	MemoryContextSwitchTo(before);
	MemoryContextDelete(context);
}

void
pending_release_lane(LaneHold *hold)
{
	pending_forget_rows();
	lane_release_unused(hold);
}

/*
 * What is pending of one choice, or of a poll's entries: the views add it to
 * what the rows say.
 *
 * pending_count(poll_id int, choice text) RETURNS bigint
 * pending_entries(poll_id int) RETURNS bigint
 */
PG_FUNCTION_INFO_V1(pending_count);
Datum
pending_count(PG_FUNCTION_ARGS)
{
	text *choice = PG_GETARG_TEXT_PP(1);

	PG_RETURN_INT64(
		pending_change(pending_key(PG_GETARG_INT32(0), VARDATA_ANY(choice),
								   (int) VARSIZE_ANY_EXHDR(choice))));
}

PG_FUNCTION_INFO_V1(pending_entries);
Datum
pending_entries(PG_FUNCTION_ARGS)
{
	LaneHold *hold = lane_held(PG_GETARG_INT32(0));

	if (hold == NULL)
		PG_RETURN_INT64(0);
	lane_load(hold);
	PG_RETURN_INT64(pending_next_seq(hold) - 1 - hold->seq);
}

void
pending_at_end(void)
{
	/* The contexts go with the transaction's. */
	pending_top = NULL;
	pending_rows = NULL;
	pending_rows_context = NULL;
}

void
pending_at_subcommit(int nest_level)
{
	PendingLevel *level = pending_top;
	PendingLevel *parent;
	pending_counts_iterator it;
	pending_seqs_iterator seqs;
	PendingCount *entry;
	PendingSeq *seq;

	if (level == NULL || level->nest_level < nest_level)
		return;
	Assert(level->nest_level == nest_level);
	parent = level->upper;
	if (parent == NULL || parent->nest_level < nest_level - 1)
	{
		level->nest_level = nest_level - 1;
		return;
	}
	pending_counts_start_iterate(level->counts, &it);
	while ((entry = pending_counts_iterate(level->counts, &it)) != NULL)
		pending_add_change(parent, entry->key, entry->value, entry->narrow);
	pending_seqs_start_iterate(level->seqs, &seqs);
	while ((seq = pending_seqs_iterate(level->seqs, &seqs)) != NULL)
		pending_set_seq(parent, seq->poll_id, seq->seq);
	pending_top = parent;
	MemoryContextDelete(level->context);
}

void
pending_at_subabort(int nest_level)
{
	if (pending_top != NULL && pending_top->nest_level >= nest_level)
	{
		PendingLevel *level = pending_top;

		Assert(level->nest_level == nest_level);
		pending_top = level->upper;
		MemoryContextDelete(level->context);
	}
	pending_forget_rows();
}
