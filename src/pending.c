/*
 * pending.c
 *		What this transaction has counted and not yet written.
 *
 * A level is what one subtransaction has counted: per poll the highest seq and
 * how many keys were new, per choice the change.  Invariant: for each choice of
 * a lane that we hold,
 *
 *		count in the row + changes of all levels = count as of now
 *
 * A subtransaction that commits adds its level to its parent's; one that aborts
 * drops it.  A flush writes the sum of all levels within the subtransaction at
 * hand; so that an abort of it takes back just the rows, the current level is
 * then set to minus the levels above, and the sum to zero.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/int.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "lane_rows.h"
#include "pending.h"
#include "pending_seqs.h"
#include "store.h"

/* Entries of a level above which they are written, to bound memory. */
#define PENDING_MAX_ENTRIES 100000

typedef struct PendingLevel
{
	struct PendingLevel *upper; /* of an enclosing subtransaction, or NULL */
	int nest_level;
	MemoryContext context; /* owns the level and all it points to */
	count_map_hash *counts;
	pending_seqs_hash *seqs;
} PendingLevel;

/* Of the current transaction. */
static PendingLevel *pending_top = NULL;
static bool pending_written = false;

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
	level->counts = count_map_create(context, 8, NULL);
	level->seqs = pending_seqs_create(context, 8, NULL);
	pending_top = level;
	return level;
}

/* The changes of all levels to one choice. */
static int64
pending_change(CountKey key)
{
	int64 change = 0;

	for (PendingLevel *level = pending_top; level != NULL; level = level->upper)
	{
		CountEntry *entry = count_map_lookup(level->counts, key);

		if (entry != NULL)
			change = count_plus(change, entry->value);
	}
	return change;
}

/* The innermost level's entry of a poll, or NULL. */
static PendingSeq *
pending_find_seq(int32 poll_id)
{
	for (PendingLevel *level = pending_top; level != NULL; level = level->upper)
	{
		PendingSeq *entry = pending_seqs_lookup(level->seqs, poll_id);

		if (entry != NULL)
			return entry;
	}
	return NULL;
}

int64
pending_next_seq(LaneHold *hold)
{
	PendingSeq *entry = pending_find_seq(hold->poll_id);
	int64 seq;

	if (entry == NULL)
		lane_load(hold);
	seq = (entry != NULL ? entry->seq : hold->seq) + 1;
	if (seq > POSITION_MAX_SEQ)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("lane %d of the poll is full", hold->lane)));
	return seq;
}

int64
pending_keys(int32 poll_id)
{
	int64 keys = 0;

	for (PendingLevel *level = pending_top; level != NULL; level = level->upper)
	{
		PendingSeq *entry = pending_seqs_lookup(level->seqs, poll_id);

		if (entry != NULL)
			keys += entry->keys;
	}
	return keys;
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
		CountKey key = count_key(hold->poll_id, entry.choice, entry.length);
		int64 count =
			count_plus(lane_rows_find(hold, key)->value, pending_change(key));

		if (pg_add_s64_overflow(count, entry.count, &count))
			tally_raise_overflow(entry.choice, entry.length);
		if (count < minimum || count > maximum)
			return pnstrdup(entry.choice, entry.length);
	}
	return NULL;
}

static PendingSeq *
pending_set_seq(PendingLevel *level, int32 poll_id, int64 seq)
{
	bool found;
	PendingSeq *entry = pending_seqs_insert(level->seqs, poll_id, &found);

	Assert(!found || entry->seq <= seq);
	entry->seq = seq;
	if (!found)
		entry->keys = 0;
	return entry;
}

static void
pending_add_change(PendingLevel *level, CountKey key, int64 change, bool narrow)
{
	bool found;
	CountEntry *entry =
		count_map_enter(level->counts, level->context, key, &found);

	entry->value = count_plus(entry->value, change);
	entry->narrow = narrow;
}

void
pending_add(LaneHold *hold, int64 seq, const Tally *effect)
{
	PendingLevel *level = pending_level();
	TallyIterator it;
	TallyEntry entry;
	PendingSeq *of_poll;

	Assert(seq == pending_next_seq(hold));
	of_poll = pending_set_seq(level, hold->poll_id, seq);
	tally_iterate(effect, &it);
	while (tally_next(&it, &entry))
	{
		CountKey key = count_key(hold->poll_id, entry.choice, entry.length);
		CountEntry *row = lane_rows_find(hold, key);

		/* A choice that nobody made known has a row from its first event on. */
		if (!row->narrow && !row->in_row)
		{
			of_poll->keys += row->known ? 0 : 1;
			lane_rows_open(hold, row);
		}
		pending_add_change(level, key, entry.count, row->narrow);
	}
	if (level->counts->members > PENDING_MAX_ENTRIES)
		pending_flush();
}

/* By poll, then choice: the order in which a flush writes. */
static int
pending_compare(const void *a, const void *b)
{
	const CountEntry *left = a;
	const CountEntry *right = b;

	if (left->key.poll_id != right->key.poll_id)
		return left->key.poll_id < right->key.poll_id ? -1 : 1;
	return tally_compare_choice(left->key.choice, left->key.length,
								right->key.choice, right->key.length);
}

/* All changes, summed over the levels, in order; *count of them. */
static CountEntry *
pending_collect(int *count)
{
	count_map_hash *sums = count_map_create(CurrentMemoryContext, 64, NULL);
	count_map_iterator it;
	CountEntry *changes;
	CountEntry *entry;
	bool found;

	for (PendingLevel *level = pending_top; level != NULL; level = level->upper)
	{
		count_map_start_iterate(level->counts, &it);
		while ((entry = count_map_iterate(level->counts, &it)) != NULL)
		{
			CountEntry *sum =
				count_map_enter(sums, CurrentMemoryContext, entry->key, &found);

			sum->value = count_plus(sum->value, entry->value);
			sum->narrow = entry->narrow;
		}
	}
	*count = 0;
	changes = palloc_array(CountEntry, Max(sums->members, 1));
	count_map_start_iterate(sums, &it);
	while ((entry = count_map_iterate(sums, &it)) != NULL)
		changes[(*count)++] = *entry;
	qsort(changes, *count, sizeof(CountEntry), pending_compare);
	return changes;
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
	CountEntry *changes = pending_collect(&count);
	int32 *polls = pending_collect_polls(&poll_count);
	int first = 0;

	for (int i = 0; i < poll_count; i++)
	{
		LaneHold *hold = lane_held(polls[i]);
		int last = first;

		if (i > 0 && polls[i] == polls[i - 1])
			continue;
		while (last < count && changes[last].key.poll_id == polls[i])
			last++;
		lane_load(hold);
		lane_rows_write(hold, pending_next_seq(hold) - 1,
						hold->keys + pending_keys(polls[i]), changes + first,
						last - first);
		first = last;
	}
	Assert(first == count);
}

/* Set a new level for the current subtransaction to minus the ones above. */
static void
pending_negate_upper(PendingLevel *outer)
{
	PendingLevel *level = pending_level();

	for (; outer != NULL; outer = outer->upper)
	{
		count_map_iterator it;
		pending_seqs_iterator seqs;
		CountEntry *entry;
		PendingSeq *seq;

		count_map_start_iterate(outer->counts, &it);
		while ((entry = count_map_iterate(outer->counts, &it)) != NULL)
			pending_add_change(level, entry->key, count_minus(entry->value),
							   entry->narrow);
		pending_seqs_start_iterate(outer->seqs, &seqs);
		while ((seq = pending_seqs_iterate(outer->seqs, &seqs)) != NULL)
		{
			LaneHold *hold = lane_held(seq->poll_id);

			lane_load(hold);
			pending_set_seq(level, seq->poll_id, hold->seq)->keys -= seq->keys;
		}
	}
}

/* The rows have it all: drop the current level, undo the ones above it. */
static void
pending_settle(void)
{
	if (pending_top->nest_level == GetCurrentTransactionNestLevel())
	{
		PendingLevel *level = pending_top;

		pending_top = level->upper;
		MemoryContextDelete(level->context);
	}
	if (pending_top != NULL)
		pending_negate_upper(pending_top);
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
	/* Rows of this very command could not be updated. */
	CommandCounterIncrement();
	pending_write();
	pending_written = true;
	CommandCounterIncrement();
	lane_rows_forget();
	pending_settle();
	PopActiveSnapshot();
	MemoryContextSwitchTo(before);
	MemoryContextDelete(context);
}

bool
pending_was_written(void)
{
	return pending_written;
}

void
pending_forget(void)
{
	lane_rows_forget();
}

void
pending_release_lane(LaneHold *hold)
{
	lane_rows_forget();
	lane_release_unused(hold);
}

/*
 * What is pending of one choice, or of a poll's entries: the views add it to
 * what the rows say.
 *
 * pending_count(poll_id int, choice text) RETURNS bigint
 * pending_counts(poll_id int) RETURNS tally
 * pending_entries(poll_id int) RETURNS bigint
 */
PG_FUNCTION_INFO_V1(pending_count);
Datum
pending_count(PG_FUNCTION_ARGS)
{
	text *choice = PG_GETARG_TEXT_PP(1);

	PG_RETURN_INT64(
		pending_change(count_key(PG_GETARG_INT32(0), VARDATA_ANY(choice),
								 (int) VARSIZE_ANY_EXHDR(choice))));
}

PG_FUNCTION_INFO_V1(pending_counts);
Datum
pending_counts(PG_FUNCTION_ARGS)
{
	int32 poll_id = PG_GETARG_INT32(0);
	int count = 0;
	CountEntry *changes = pending_top == NULL ? NULL : pending_collect(&count);
	TallyEntry *entries = palloc_array(TallyEntry, count + 1);
	int of_poll = 0;

	for (int i = 0; i < count; i++)
	{
		if (changes[i].key.poll_id != poll_id)
			continue;
		entries[of_poll].choice = changes[i].key.choice;
		entries[of_poll].length = changes[i].key.length;
		entries[of_poll].count = changes[i].value;
		of_poll++;
	}
	PG_RETURN_TALLY(tally_build(entries, of_poll));
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
	pending_written = false;
	lane_rows_at_end();
}

void
pending_at_subcommit(int nest_level)
{
	PendingLevel *level = pending_top;
	PendingLevel *parent;
	count_map_iterator it;
	pending_seqs_iterator seqs;
	CountEntry *entry;
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
	count_map_start_iterate(level->counts, &it);
	while ((entry = count_map_iterate(level->counts, &it)) != NULL)
		pending_add_change(parent, entry->key, entry->value, entry->narrow);
	pending_seqs_start_iterate(level->seqs, &seqs);
	while ((seq = pending_seqs_iterate(level->seqs, &seqs)) != NULL)
		pending_set_seq(parent, seq->poll_id, seq->seq)->keys += seq->keys;
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
	lane_rows_forget();
}
