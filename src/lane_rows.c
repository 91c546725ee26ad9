/*
 * lane_rows.c
 *		Counts as the rows have them: those of a lane that this transaction holds.
 *
 * What was read is cached until it may have changed: by a write of ours, or by
 * the end of a subtransaction that wrote.  Nobody else changes it, since we hold
 * the lane's lock.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "choice.h"
#include "fault.h"
#include "lane_rows.h"
#include "store.h"

enum LaneCountColumn
{
	LANE_COUNT_POLL_ID = 1,
	LANE_COUNT_LANE,
	LANE_COUNT_CHOICE,
	LANE_COUNT_COUNT
};

/* The cache; of the current transaction. */
static count_map_hash *lane_rows_cache = NULL;
static MemoryContext lane_rows_context = NULL;

void
lane_rows_forget(void)
{
	if (lane_rows_context != NULL)
		MemoryContextDelete(lane_rows_context);
	lane_rows_at_end();
	lane_forget_loaded();
}

void
lane_rows_at_end(void)
{
	/* The context goes with the transaction's. */
	lane_rows_context = NULL;
	lane_rows_cache = NULL;
}

/* Find the row of a choice in a lane; of any lane when lane is -1. */
static bool
lane_rows_find_row(Store *store, CountKey choice, int lane)
{
	StoreKey key;

	store_key_init(&key);
	store_key_int4(&key, choice.poll_id);
	store_key_text(&key,
				   cstring_to_text_with_len(choice.choice, choice.length));
	if (lane >= 0)
		store_key_int4(&key, lane);
	return store_find_guarded(store, &key);
}

/* Read what the table lane_count has of a choice. */
static void
lane_rows_read(const LaneHold *hold, CountEntry *entry)
{
	Store store;

	store_open(&store, "lane_count", "lane_count_pkey", AccessShareLock);
	entry->in_row = lane_rows_find_row(&store, entry->key, hold->lane);
	if (entry->in_row)
		entry->value =
			DatumGetInt64(store_get_notnull(&store, LANE_COUNT_COUNT));
	entry->known = entry->known || entry->in_row ||
				   lane_rows_find_row(&store, entry->key, -1);
	store_close(&store);
}

CountEntry *
lane_rows_find(LaneHold *hold, CountKey key)
{
	CountEntry *entry;
	bool found;

	if (lane_rows_cache == NULL)
	{
		lane_rows_context =
			AllocSetContextCreate(TopTransactionContext, "poll_tally rows read",
								  ALLOCSET_SMALL_SIZES);
		lane_rows_cache = count_map_create(lane_rows_context, 8, NULL);
	}
	entry = count_map_enter(lane_rows_cache, lane_rows_context, key, &found);
	if (found)
		return entry;
	lane_load(hold);
	entry->value = tally_get(hold->counts, key.choice, key.length);
	entry->narrow = entry->known = entry->in_row = entry->value != 0;
	if (!entry->known)
		entry->known =
			choice_find(key.poll_id, key.choice, key.length, &entry->narrow);
	if (!entry->narrow)
		lane_rows_read(hold, entry);
	return entry;
}

/* What the lanes' own rows have of a choice. */
static void
lane_rows_add_narrow(TallyTotal *total, int32 poll_id, const char *choice,
					 int length)
{
	Store store;
	StoreKey key;

	store_open(&store, "lane", "lane_pkey", AccessShareLock);
	store_key_init(&key);
	store_key_int4(&key, poll_id);
	store_scan_begin(&store, &key);
	while (store_scan_next(&store))
	{
		Tally *counts = DatumGetTally(store_get_notnull(&store, LANE_COUNTS));

		tally_total_add(total,
						tally_total_of(tally_get(counts, choice, length)));
	}
	store_scan_end(&store);
	store_close(&store);
}

TallyTotal
lane_rows_total(int32 poll_id, const char *choice, int length)
{
	TallyTotal total = {0, 0};
	Store store;
	StoreKey key;

	lane_rows_add_narrow(&total, poll_id, choice, length);
	store_open(&store, "lane_count", "lane_count_pkey", AccessShareLock);
	store_key_init(&key);
	store_key_int4(&key, poll_id);
	store_key_text(&key, cstring_to_text_with_len(choice, length));
	store_scan_begin(&store, &key);
	while (store_scan_next(&store))
		tally_total_add(&total, tally_total_of(DatumGetInt64(store_get_notnull(
									&store, LANE_COUNT_COUNT))));
	store_scan_end(&store);
	store_close(&store);
	return total;
}

static void
lane_rows_form(StoreWriter *writer, const LaneHold *hold, CountKey key,
			   int64 count)
{
	store_writer_clear(writer);
	store_slot_set(writer->slot, LANE_COUNT_POLL_ID,
				   Int32GetDatum(hold->poll_id));
	store_slot_set(writer->slot, LANE_COUNT_LANE, Int32GetDatum(hold->lane));
	store_slot_set(
		writer->slot, LANE_COUNT_CHOICE,
		PointerGetDatum(cstring_to_text_with_len(key.choice, key.length)));
	store_slot_set(writer->slot, LANE_COUNT_COUNT, Int64GetDatum(count));
}

void
lane_rows_open(LaneHold *hold, CountEntry *entry)
{
	StoreWriter writer;

	Assert(!entry->narrow && !entry->in_row);
	store_writer_open(&writer, "lane_count");
	lane_rows_form(&writer, hold, entry->key, 0);
	store_insert(&writer);
	store_writer_close(&writer);
	entry->in_row = entry->known = true;
}

/* Add a change to the row of a choice that is not narrow. */
static void
lane_rows_write_row(Store *store, StoreWriter *writer, LaneHold *hold,
					const CountEntry *change)
{
	bool found = lane_rows_find_row(store, change->key, hold->lane);
	int64 count = change->value;

	if (found)
		count = count_plus(
			count, DatumGetInt64(store_get_notnull(store, LANE_COUNT_COUNT)));
	lane_rows_form(writer, hold, change->key, count);
	if (found)
		store_update(writer, store);
	else
		store_insert(writer);
}

/* Write those changes that are kept in rows of their own. */
static void
lane_rows_write_wide(LaneHold *hold, const CountEntry *changes, int count)
{
	StoreWriter writer;
	Store store;

	store_open(&store, "lane_count", "lane_count_pkey", RowExclusiveLock);
	store_writer_open(&writer, "lane_count");
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!changes[i].narrow && changes[i].value != 0)
			lane_rows_write_row(&store, &writer, hold, &changes[i]);
	}
	store_writer_close(&writer);
	store_close(&store);
}

/* The lane's row with the narrow ones of the changes made; both are sorted. */
static Tally *
lane_rows_merge(const Tally *row, const CountEntry *changes, int count)
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
		const CountEntry *change = next < count ? &changes[next] : NULL;
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

void
lane_rows_write(LaneHold *hold, int64 seq, int64 keys,
				const CountEntry *changes, int count)
{
	bool narrow = false;
	bool wide = false;

	for (int i = 0; i < count; i++)
	{
		narrow |= changes[i].value != 0 && changes[i].narrow;
		wide |= changes[i].value != 0 && !changes[i].narrow;
	}
	lane_load(hold);
	if (wide)
		lane_rows_write_wide(hold, changes, count);
	FAULT_POINT("flush-wide-written");
	if (narrow || seq != hold->seq || keys != hold->keys)
		lane_write(hold, seq, keys,
				   lane_rows_merge(hold->counts, changes, count));
}
