/*
 * pending_flush.c
 *		Writing what is pending.
 *
 * A flush writes the sum of all levels within the subtransaction at hand, and
 * then sets the current level to minus the levels above it: see pending.c.
 *
 * A statement that is running has a snapshot that does not see what is written
 * meanwhile, be it by a function that it calls.  So that it keeps seeing the
 * votes that came before it, each flush leaves a record of what it wrote, which
 * views add for snapshots of commands up to the flush's own.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "fault.h"
#include "lane_rows.h"
#include "pending.h"
#include "pending_level.h"
#include "poll.h"
#include "store.h"

/* What a flush wrote; newest first, so by nest level, innermost first. */
typedef struct PendingRecord
{
	struct PendingRecord *next;
	int nest_level;
	CommandId command; /* that wrote it */
	MemoryContext context;
	count_map_hash *counts;
	pending_seqs_hash *entries; /* "seq" is how many entries were written */
} PendingRecord;

/* Of the current transaction. */
static PendingRecord *pending_records = NULL;
static bool pending_written = false;
static bool pending_poll_dropped = false;

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

/* All changes of a map, in order; *count of them. */
static CountEntry *
pending_sort(count_map_hash *sums, int *count)
{
	CountEntry *changes = palloc_array(CountEntry, Max(sums->members, 1));
	count_map_iterator it;
	CountEntry *entry;

	*count = 0;
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

/* Has the poll been dropped by this very transaction? */
static bool
pending_is_dropped(int32 poll_id)
{
	return pending_poll_dropped && poll_name(poll_id) == NULL;
}

/* Write one poll's rows, and note in the record how many entries they hide. */
static void
pending_write_poll(int32 poll_id, const CountEntry *changes, int count,
				   PendingRecord *record)
{
	LaneHold *hold = lane_held(poll_id);
	int64 seq = pending_next_seq(hold) - 1;

	FAULT_POINT("flush-poll");
	lane_load(hold);
	if (record != NULL)
	{
		bool found;

		pending_seqs_insert(record->entries, poll_id, &found)->seq =
			seq - hold->seq;
	}
	lane_rows_write(hold, seq, hold->keys + pending_keys(poll_id), changes,
					count);
}

/* Write the rows of each poll that something is pending of. */
static void
pending_write(PendingRecord *record)
{
	count_map_hash *sums = count_map_create(CurrentMemoryContext, 64, NULL);
	int count;
	int poll_count;
	CountEntry *changes;
	int32 *polls;
	int first = 0;

	pending_add_to(sums, CurrentMemoryContext);
	if (record != NULL)
		count_map_add_all(record->counts, record->context, sums);
	changes = pending_sort(sums, &count);
	polls = pending_collect_polls(&poll_count);
	for (int i = 0; i < poll_count; i++)
	{
		int last = first;

		if (i > 0 && polls[i] == polls[i - 1])
			continue;
		while (last < count && changes[last].key.poll_id == polls[i])
			last++;
		if (!pending_is_dropped(polls[i]))
			pending_write_poll(polls[i], changes + first, last - first, record);
		first = last;
	}
	Assert(first == count);
}

/* Set a new level for the current subtransaction to minus the ones above. */
static void
pending_negate_upper(void)
{
	PendingLevel *level = pending_level();

	level->flush_at = PENDING_MAX_ENTRIES;
	for (PendingLevel *outer = level->upper; outer != NULL;
		 outer = outer->upper)
	{
		count_map_iterator it;
		pending_seqs_iterator seqs;
		CountEntry *entry;
		PendingSeq *seq;

		level->flush_at += outer->counts->members;
		count_map_start_iterate(outer->counts, &it);
		while ((entry = count_map_iterate(outer->counts, &it)) != NULL)
			pending_add_change(level, entry->key, count_minus(entry->value),
							   entry->narrow);
		pending_seqs_start_iterate(outer->seqs, &seqs);
		while ((seq = pending_seqs_iterate(outer->seqs, &seqs)) != NULL)
		{
			LaneHold *hold = lane_held(seq->poll_id);

			lane_load(hold);
			/* The rows of a dropped poll are gone: its seqs stay as they are. */
			pending_set_seq(level, seq->poll_id,
							pending_is_dropped(seq->poll_id)
								? pending_next_seq(hold) - 1
								: hold->seq)
				->keys -= seq->keys;
		}
	}
}

/* The rows have it all: drop the current level, undo the ones above it. */
static void
pending_settle(void)
{
	while (pending_top != NULL &&
		   pending_top->nest_level == GetCurrentTransactionNestLevel())
	{
		PendingLevel *level = pending_top;

		pending_top = level->upper;
		MemoryContextDelete(level->context);
	}
	if (pending_top != NULL)
		pending_negate_upper();
}

/* A record of a flush, in the current transaction's memory. */
static PendingRecord *
pending_record(void)
{
	MemoryContext context = AllocSetContextCreate(
		TopTransactionContext, "poll_tally flushed", ALLOCSET_SMALL_SIZES);
	PendingRecord *record = MemoryContextAlloc(context, sizeof(PendingRecord));

	record->next = pending_records;
	record->nest_level = GetCurrentTransactionNestLevel();
	record->context = context;
	record->counts = count_map_create(context, 8, NULL);
	record->entries = pending_seqs_create(context, 8, NULL);
	record->command = InvalidCommandId;
	pending_records = record;
	return record;
}

static void
pending_do_flush(bool remember)
{
	PendingRecord *record;
	MemoryContext context;
	MemoryContext before;
	bool session;

	/* The extension may have been dropped by this very transaction. */
	if (pending_top == NULL || lane_holds_are_dropped())
		return;
	context = AllocSetContextCreate(CurrentMemoryContext, "poll_tally flush",
									ALLOCSET_DEFAULT_SIZES);
	before = MemoryContextSwitchTo(context);
	/* Detoasting asks for a snapshot, and at commit there is none. */
	PushActiveSnapshot(GetTransactionSnapshot());
	/* Rows of this very command could not be updated. */
	CommandCounterIncrement();
	record = remember ? pending_record() : NULL;
	FAULT_POINT("flush-begun");
	session = store_session_begin(context);
	pending_write(record);
	if (session)
		store_session_end();
	FAULT_POINT("flush-written");
	if (record != NULL)
		record->command = GetCurrentCommandId(true);
	pending_written = true;
	CommandCounterIncrement();
	lane_rows_forget();
	pending_settle();
	PopActiveSnapshot();
	MemoryContextSwitchTo(before);
	MemoryContextDelete(context);
}

void
pending_flush(void)
{
	pending_do_flush(true);
}

void
pending_flush_and_forget(void)
{
	pending_do_flush(false);
}

bool
pending_was_written(void)
{
	return pending_written;
}

void
pending_note_drop(void)
{
	pending_poll_dropped = true;
}

/* Can the statement at hand not see what a flush wrote? */
static bool
pending_is_hidden(const PendingRecord *record)
{
	return ActiveSnapshotSet() &&
		   GetActiveSnapshot()->curcid <= record->command;
}

int64
pending_hidden_change(CountKey key)
{
	int64 change = 0;

	for (PendingRecord *record = pending_records; record != NULL;
		 record = record->next)
	{
		CountEntry *entry = count_map_lookup(record->counts, key);

		if (entry != NULL && pending_is_hidden(record))
			change = count_plus(change, entry->value);
	}
	return change;
}

int64
pending_hidden_entries(int32 poll_id)
{
	int64 entries = 0;

	for (PendingRecord *record = pending_records; record != NULL;
		 record = record->next)
	{
		PendingSeq *entry = pending_seqs_lookup(record->entries, poll_id);

		if (entry != NULL && pending_is_hidden(record))
			entries += entry->seq;
	}
	return entries;
}

void
pending_hidden_add_to(count_map_hash *map, MemoryContext context)
{
	for (PendingRecord *record = pending_records; record != NULL;
		 record = record->next)
		if (pending_is_hidden(record))
			count_map_add_all(map, context, record->counts);
}

void
pending_flush_at_end(void)
{
	/* The contexts go with the transaction's. */
	pending_records = NULL;
	pending_written = false;
	pending_poll_dropped = false;
}

void
pending_flush_at_subcommit(int nest_level)
{
	for (PendingRecord *record = pending_records;
		 record != NULL && record->nest_level >= nest_level;
		 record = record->next)
		record->nest_level = nest_level - 1;
}

void
pending_flush_at_subabort(int nest_level)
{
	while (pending_records != NULL && pending_records->nest_level >= nest_level)
	{
		PendingRecord *record = pending_records;

		pending_records = record->next;
		MemoryContextDelete(record->context);
	}
}
