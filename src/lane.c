/*
 * lane.c
 *		Lanes: the parallel, gapless sequences of a poll's events.
 *
 * The lock is a heavyweight lock with an advisory tag of our own class, so it
 * is released after the commit is visible, survives PREPARE TRANSACTION, is
 * freed by ROLLBACK TO, takes part in deadlock detection and shows in pg_locks
 * (locktype advisory, classid the poll's number, objid the lane, objsubid
 * LANE_LOCK_CLASS).
 *
 * Invariant: commit order = seq order within a lane, since whoever reads the
 * lane's row to take the next seq keeps the lock until after its commit.
 *
 * What this transaction holds is remembered in a hash by poll and in a list
 * that is ordered by nest level, newest first, so that the end of a
 * subtransaction touches only what it took.
 */
#include "postgres.h"

#include "access/xact.h"
#include "storage/lock.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "fault.h"
#include "lane.h"
#include "lane_lock.h"
#include "lane_wait.h"
#include "plant.h"
#include "stats.h"
#include "store.h"

typedef struct LaneSlot
{
	int32 poll_id;
	LaneHold *hold;
	char status;
} LaneSlot;

#define SH_PREFIX lane_map
#define SH_ELEMENT_TYPE LaneSlot
#define SH_KEY_TYPE int32
#define SH_KEY poll_id
#define SH_HASH_KEY(table, key) murmurhash32((uint32) (key))
#define SH_EQUAL(table, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "common/hashfn.h"
#include "lib/simplehash.h"

/* Of the current transaction; all live in lane_context. */
static MemoryContext lane_context = NULL;
static lane_map_hash *lane_map = NULL;
static Oid lane_table = InvalidOid; /* of the extension that they belong to */
static dlist_head lane_list = DLIST_STATIC_INIT(lane_list);

/* A poll of which all lanes are held; newest first, as above. */
typedef struct LaneAll
{
	int32 poll_id;
	int nest_level;
} LaneAll;

static List *lane_all = NIL;

/* Moves on when rows that were loaded are no longer as they were. */
static uint64 lane_generation = 1;

/* Of the hold that was taken last. */
static uint64 lane_serial = 0;

List *
lane_list_held(List *polls)
{
	dlist_iter iter;

	if (lane_map == NULL)
		return polls;
	dlist_foreach(iter, &lane_list) polls = list_append_unique_int(
		polls, dlist_container(LaneHold, node, iter.cur)->poll_id);
	return polls;
}

/* What is remembered lives as long as the transaction. */
static void
lane_begin(void)
{
	if (lane_context != NULL)
		return;
	lane_context = AllocSetContextCreate(
		TopTransactionContext, "poll_tally lanes", ALLOCSET_SMALL_SIZES);
	lane_map = lane_map_create(lane_context, 8, NULL);
	lane_table = store_relation_oid("lane");
	dlist_init(&lane_list);
}

static LaneHold *
lane_remember(int32 poll_id, int lane)
{
	LaneHold *hold;
	LaneSlot *slot;
	bool found;

	lane_begin();
	hold = MemoryContextAllocZero(lane_context, sizeof(LaneHold));
	hold->poll_id = poll_id;
	hold->lane = lane;
	hold->nest_level = GetCurrentTransactionNestLevel();
	hold->serial = ++lane_serial;
	FAULT_POINT("lane-taken");
	dlist_push_head(&lane_list, &hold->node);
	slot = lane_map_insert(lane_map, poll_id, &found);
	Assert(!found);
	slot->hold = hold;

	lane_note_home(poll_id, lane);
	return hold;
}

bool
lane_holds_are_current(void)
{
	return lane_map == NULL || lane_table == store_relation_oid("lane");
}

bool
lane_holds_are_dropped(void)
{
	if (lane_holds_are_current())
		return false;
	if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(lane_table)))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("the tables of poll_tally were renamed while "
							   "this transaction counted events")));
	return true;
}

LaneHold *
lane_held(int32 poll_id)
{
	LaneSlot *slot;

	if (lane_map == NULL || !lane_holds_are_current())
		return NULL;
	slot = lane_map_lookup(lane_map, poll_id);
	return slot != NULL ? slot->hold : NULL;
}

LaneHold *
lane_acquire(int32 poll_id, int max_lanes, bool *fresh)
{
	LaneHold *hold = lane_held(poll_id);

	*fresh = hold == NULL;
	if (hold != NULL)
		return hold;
	if (!lane_holds_are_current())
		ereport(
			ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg(
				 "this transaction has counted events of an extension poll_tally that it dropped"),
			 errhint("Commit before you count events of the new one.")));
	if (PLANT(SEQ_BEFORE_LOCK))
		return hold = lane_remember(poll_id, 0), lane_load(hold),
			   lane_await(poll_id, 0), hold;
	hold = lane_remember(poll_id,
						 lane_lock_any(poll_id, max_lanes, lane_map == NULL));
	if (PLANT(LANE_RELEASED_EARLY))
		lane_give_back(poll_id, hold->lane);
	return hold;
}

static void
lane_forget(LaneHold *hold)
{
	dlist_delete(&hold->node);
	lane_map_delete(lane_map, hold->poll_id);
	if (hold->counts != NULL)
		pfree(hold->counts);
	pfree(hold);
}

void
lane_release_unused(LaneHold *hold)
{
	int32 poll_id = hold->poll_id;
	int lane = hold->lane;

	Assert(hold->nest_level == GetCurrentTransactionNestLevel());
	lane_forget(hold);
	lane_give_back(poll_id, lane);
	lane_wait_wake(poll_id);
}

void
lane_acquire_all(int32 poll_id, int max_lanes)
{
	MemoryContext before;
	LaneAll *all;

	store_refuse_to_wait_for_lane(poll_id, true);
	for (int lane = 0; lane < max_lanes; lane++)
		lane_await(poll_id, lane);
	lane_begin();
	before = MemoryContextSwitchTo(lane_context);
	all = palloc(sizeof(LaneAll));
	all->poll_id = poll_id;
	all->nest_level = GetCurrentTransactionNestLevel();
	lane_all = lcons(all, lane_all);
	MemoryContextSwitchTo(before);
}

bool
lane_holds_all(int32 poll_id)
{
	ListCell *cell;

	foreach (cell, lane_all)
		if (((LaneAll *) lfirst(cell))->poll_id == poll_id)
			return true;
	return false;
}

void
lane_release_all(int32 poll_id, int max_lanes)
{
	while (--max_lanes >= 0)
		lane_give_back(poll_id, max_lanes);
	lane_wait_wake(poll_id);
}

bool
lane_try_all(int32 poll_id, int max_lanes)
{
	for (int lane = 0; lane < max_lanes; lane++)
		if (!lane_try(poll_id, lane))
		{
			lane_release_all(poll_id, lane);
			return false;
		}
	return true;
}

static void
lane_open_row(Store *store, StoreKey *key, const LaneHold *hold)
{
	static const AttrNumber columns[] = {LANE_POLL_ID, LANE_LANE};

	store_open(store, "lane", "lane_pkey", RowExclusiveLock);
	store_key_init(key);
	store_key_int4(key, hold->poll_id);
	store_key_int4(key, hold->lane);
	store_key_hinted(key, columns);
}

void
lane_load(LaneHold *hold)
{
	Store store;
	StoreKey key;

	if (hold->loaded == lane_generation)
		return;
	if (hold->counts != NULL)
		pfree(hold->counts);
	hold->counts = NULL;
	hold->seq = 0;
	hold->keys = 0;
	lane_open_row(&store, &key, hold);
	if (store_find_guarded(&store, &key))
	{
		MemoryContext before = MemoryContextSwitchTo(lane_context);

		hold->seq = DatumGetInt64(store_get_notnull(&store, LANE_SEQ));
		hold->keys = DatumGetInt64(store_get_notnull(&store, LANE_KEYS));
		hold->counts = (Tally *) PG_DETOAST_DATUM_COPY(
			store_get_notnull(&store, LANE_COUNTS));
		MemoryContextSwitchTo(before);
	}
	else
	{
		MemoryContext before = MemoryContextSwitchTo(lane_context);

		hold->counts = tally_build(NULL, 0);
		MemoryContextSwitchTo(before);
	}
	store_close(&store);
	hold->loaded = lane_generation;
}

void
lane_write(LaneHold *hold, int64 seq, int64 keys, const Tally *counts)
{
	StoreWriter writer;
	Store store;
	StoreKey key;
	bool found;

	lane_open_row(&store, &key, hold);
	found = store_find_guarded(&store, &key);
	store_writer_open(&writer, "lane");
	store_writer_clear(&writer);
	store_slot_set(writer.slot, LANE_POLL_ID, Int32GetDatum(hold->poll_id));
	store_slot_set(writer.slot, LANE_LANE, Int32GetDatum(hold->lane));
	store_slot_set(writer.slot, LANE_SEQ, Int64GetDatum(seq));
	store_slot_set(writer.slot, LANE_KEYS, Int64GetDatum(keys));
	store_slot_set(writer.slot, LANE_COUNTS, TallyGetDatum(counts));
	if (found)
	{
		Assert(DatumGetInt64(store_get_notnull(&store, LANE_SEQ)) <= seq);
		store_update(&writer, &store);
	}
	else
	{
		store_insert(&writer);
		stats_count(STATS_LANES_OPENED);
	}
	store_hint_written(&writer, &key);
	store_writer_close(&writer);
	store_close(&store);
	hold->loaded = 0;
}

void
lane_forget_loaded(void)
{
	lane_generation++;
}

/*
 * The commit is visible: where somebody may be waiting, give the lane back at
 * once and wake him.  The other locks are released in a moment.
 */
void
lane_at_commit(void)
{
	dlist_iter iter;

	if (lane_map == NULL)
		return;
	dlist_foreach(iter, &lane_list)
	{
		LaneHold *hold = dlist_container(LaneHold, node, iter.cur);

		if (!lane_wait_is_likely(hold->poll_id))
			continue;
		lane_give_back(hold->poll_id, hold->lane);
		lane_wait_wake(hold->poll_id);
	}
}

void
lane_at_end(void)
{
	/* The context goes with the transaction's. */
	lane_context = NULL;
	lane_map = NULL;
	lane_all = NIL;
	dlist_init(&lane_list);
}

/* What the subtransaction took is its parent's now. */
void
lane_at_subcommit(int nest_level)
{
	dlist_iter iter;
	ListCell *cell;

	if (lane_map == NULL)
		return;
	dlist_foreach(iter, &lane_list)
	{
		LaneHold *hold = dlist_container(LaneHold, node, iter.cur);

		if (hold->nest_level < nest_level)
			break;
		hold->nest_level = nest_level - 1;
	}
	foreach (cell, lane_all)
	{
		LaneAll *all = lfirst(cell);

		if (all->nest_level < nest_level)
			break;
		all->nest_level = nest_level - 1;
	}
}

/*
 * The server frees the locks that the subtransaction took; rows that were
 * loaded or written meanwhile have to be read anew.
 */
void
lane_at_subabort(int nest_level)
{
	dlist_mutable_iter iter;

	if (lane_map == NULL)
		return;
	dlist_foreach_modify(iter, &lane_list)
	{
		LaneHold *hold = dlist_container(LaneHold, node, iter.cur);

		if (hold->nest_level < nest_level)
			break;
		lane_forget(hold);
	}
	while (lane_all != NIL &&
		   ((LaneAll *) linitial(lane_all))->nest_level >= nest_level)
		lane_all = list_delete_first(lane_all);
	lane_forget_loaded();
}
