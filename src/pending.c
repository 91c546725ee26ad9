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
 * A subtransaction that aborts drops its level; one that commits leaves it to its
 * parent, which may have one already, and adds the two up before it counts on.
 * A flush writes the sum of all levels within the subtransaction at hand; so that
 * an abort of it takes back just the rows, the current level is then set to minus
 * the levels above, and the sum to zero.
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
#include "fault.h"
#include "lane_rows.h"
#include "pending.h"
#include "pending_level.h"
#include "plant.h"
#include "store.h"

/* Of the current transaction. */
PendingLevel *pending_top = NULL;

/* A level's entry of a poll; a new one is empty. */
static PendingSeq *
pending_seq_entry(PendingLevel *level, int32 poll_id)
{
	bool found;
	PendingSeq *entry = pending_seqs_insert(level->seqs, poll_id, &found);

	if (!found)
	{
		entry->seq = 0;
		entry->keys = 0;
	}
	return entry;
}

PendingSeq *
pending_set_seq(PendingLevel *level, int32 poll_id, int64 seq)
{
	PendingSeq *entry = pending_seq_entry(level, poll_id);

	Assert(entry->seq <= seq);
	entry->seq = seq;
	return entry;
}

void
pending_add_change(PendingLevel *level, CountKey key, int64 change, bool narrow)
{
	bool found;
	CountEntry *entry =
		count_map_enter(level->counts, level->context, key, &found);

	entry->value = count_plus(entry->value, change);
	entry->narrow = narrow;
}

/* Make room in a level for all that another one has. */
static void
pending_make_room(PendingLevel *level, PendingLevel *addend)
{
	count_map_iterator it;
	pending_seqs_iterator seqs;
	CountEntry *entry;
	PendingSeq *seq;

	count_map_start_iterate(addend->counts, &it);
	while ((entry = count_map_iterate(addend->counts, &it)) != NULL)
		pending_add_change(level, entry->key, 0, entry->narrow);
	pending_seqs_start_iterate(addend->seqs, &seqs);
	while ((seq = pending_seqs_iterate(addend->seqs, &seqs)) != NULL)
		(void) pending_seq_entry(level, seq->poll_id);
}

/*
 * Add one level to another that has room for it.  Must not fail, so it looks up: a
 * hash table may grow when it is asked to insert a key that it has.
 */
static void
pending_add_level(PendingLevel *level, PendingLevel *addend)
{
	count_map_iterator it;
	pending_seqs_iterator seqs;
	CountEntry *entry;
	PendingSeq *seq;

	count_map_start_iterate(addend->counts, &it);
	while ((entry = count_map_iterate(addend->counts, &it)) != NULL)
	{
		CountEntry *sum = count_map_lookup(level->counts, entry->key);

		sum->value = count_plus(sum->value, entry->value);
	}
	pending_seqs_start_iterate(addend->seqs, &seqs);
	while ((seq = pending_seqs_iterate(addend->seqs, &seqs)) != NULL)
	{
		PendingSeq *sum = pending_seqs_lookup(level->seqs, seq->poll_id);

		Assert(sum->seq <= seq->seq);
		sum->seq = seq->seq;
		sum->keys += seq->keys;
	}
}

/*
 * Make one level of those of the same nest level, which a subtransaction leaves
 * when it commits.  It must not fail at that moment; and if it fails here, all of
 * them stand.
 */
static void
pending_unite(void)
{
	while (pending_top != NULL && pending_top->upper != NULL &&
		   pending_top->upper->nest_level == pending_top->nest_level)
	{
		PendingLevel *level = pending_top;

		pending_make_room(level->upper, level);
		FAULT_POINT("levels-united");
		pending_add_level(level->upper, level);
		pending_top = level->upper;
		MemoryContextDelete(level->context);
	}
}

/* The level of the current subtransaction, made if need be. */
PendingLevel *
pending_level(void)
{
	int nest_level = GetCurrentTransactionNestLevel();
	MemoryContext context;
	PendingLevel *level;

	pending_unite();
	if (pending_top != NULL && pending_top->nest_level == nest_level)
		return pending_top;
	Assert(pending_top == NULL || pending_top->nest_level < nest_level);
	context = AllocSetContextCreate(TopTransactionContext, "poll_tally pending",
									ALLOCSET_SMALL_SIZES);
	level = MemoryContextAlloc(context, sizeof(PendingLevel));
	level->upper = pending_top;
	level->nest_level = nest_level;
	level->flush_at = PENDING_MAX_ENTRIES;
	level->context = context;
	level->counts = count_map_create(context, 8, NULL);
	level->seqs = pending_seqs_create(context, 8, NULL);
	pending_top = level;
	return level;
}

int64
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

int64
pending_of_choice(int32 poll_id, const char *choice, int length)
{
	return pending_change(count_key(poll_id, choice, length));
}

int64
pending_lane_count(LaneHold *hold, const char *choice, int length)
{
	CountKey key = count_key(hold->poll_id, choice, length);

	return count_plus(lane_rows_find(hold, key)->value, pending_change(key));
}

char *
pending_misfit(LaneHold *hold, const Tally *effect, int64 minimum,
			   int64 maximum, bool *overflows)
{
	TallyIterator it;
	TallyEntry entry;

	tally_iterate(effect, &it);
	while (tally_next(&it, &entry))
	{
		int64 count = pending_lane_count(hold, entry.choice, entry.length);

		*overflows = pg_add_s64_overflow(count, entry.count, &count);
		if (*overflows || count < minimum ||
			count - PLANT(LIMIT_OFF_BY_ONE) > maximum)
			return pnstrdup(entry.choice, entry.length);
	}
	return NULL;
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
		if (!PLANT(TALLY_SKIPPED))
			pending_add_change(level, key, entry.count, row->narrow);
	}
	if (level->counts->members > level->flush_at)
		pending_flush_and_forget();
}

/* Add the changes of all levels to a map. */
void
pending_add_to(count_map_hash *map, MemoryContext context)
{
	for (PendingLevel *level = pending_top; level != NULL; level = level->upper)
		count_map_add_all(map, context, level->counts);
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
	CountKey key = count_key(PG_GETARG_INT32(0), VARDATA_ANY(choice),
							 (int) VARSIZE_ANY_EXHDR(choice));

	if (!lane_holds_are_current())
		PG_RETURN_INT64(0);
	PG_RETURN_INT64(
		count_plus(pending_change(key), pending_hidden_change(key)));
}

PG_FUNCTION_INFO_V1(pending_counts);
Datum
pending_counts(PG_FUNCTION_ARGS)
{
	int32 poll_id = PG_GETARG_INT32(0);
	count_map_hash *map = count_map_create(CurrentMemoryContext, 16, NULL);
	TallyEntry *entries;
	count_map_iterator it;
	CountEntry *entry;
	int count = 0;

	if (lane_holds_are_current())
	{
		pending_add_to(map, CurrentMemoryContext);
		pending_hidden_add_to(map, CurrentMemoryContext);
	}
	entries = palloc_array(TallyEntry, map->members + 1);
	count_map_start_iterate(map, &it);
	while ((entry = count_map_iterate(map, &it)) != NULL)
		if (entry->key.poll_id == poll_id)
		{
			entries[count].choice = entry->key.choice;
			entries[count].length = entry->key.length;
			entries[count].count = entry->value;
			count++;
		}
	PG_RETURN_TALLY(tally_build(entries, count));
}

PG_FUNCTION_INFO_V1(pending_entries);
Datum
pending_entries(PG_FUNCTION_ARGS)
{
	int32 poll_id = PG_GETARG_INT32(0);
	LaneHold *hold = lane_held(poll_id);

	if (hold == NULL)
		PG_RETURN_INT64(0);
	lane_load(hold);
	PG_RETURN_INT64(pending_next_seq(hold) - 1 - hold->seq +
					pending_hidden_entries(poll_id));
}

/* pending_lane(poll_id int) RETURNS int: the lane that is held, or NULL */
PG_FUNCTION_INFO_V1(pending_lane);
Datum
pending_lane(PG_FUNCTION_ARGS)
{
	LaneHold *hold = lane_held(PG_GETARG_INT32(0));

	if (hold == NULL)
		PG_RETURN_NULL();
	PG_RETURN_INT32(hold->lane);
}

void
pending_at_end(void)
{
	/* The contexts go with the transaction's. */
	pending_top = NULL;
	pending_flush_at_end();
	lane_rows_at_end();
}

void
pending_at_subcommit(int nest_level)
{
	pending_flush_at_subcommit(nest_level);
	for (PendingLevel *level = pending_top;
		 level != NULL && level->nest_level >= nest_level; level = level->upper)
		level->nest_level = nest_level - 1;
}

void
pending_at_subabort(int nest_level)
{
	pending_flush_at_subabort(nest_level);
	if (PLANT(SUBABORT_IGNORED))
		return;
	while (pending_top != NULL && pending_top->nest_level >= nest_level)
	{
		PendingLevel *level = pending_top;

		Assert(level->nest_level == nest_level);
		pending_top = level->upper;
		MemoryContextDelete(level->context);
	}
	lane_rows_forget();
}
