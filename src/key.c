/*
 * key.c
 *		Keys: the choices of an open-choice poll, which events make known.
 *
 * There is no table of them: a key is known when a lane has counted it, or when
 * it was given to create_poll or add_choice.  So two lanes never wait for each
 * other to make the same key known.
 *
 * How many there are is first taken from the lanes' rows, each of which says how
 * many keys were unknown to every committed lane when it counted them first.
 * That is never too low, and too high by those that two lanes made known at the
 * same time; only when it reaches the limit are the keys themselves counted.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "choice.h"
#include "key.h"
#include "lane_rows.h"
#include "pending.h"
#include "settings.h"
#include "store.h"

#define LANE_COUNT_CHOICE_COLUMN 3

/* The choices of the effect that no lane has counted. */
static int
key_count_unknown(LaneHold *hold, const Tally *effect)
{
	TallyIterator it;
	TallyEntry entry;
	int unknown = 0;

	tally_iterate(effect, &it);
	while (tally_next(&it, &entry))
	{
		CountKey key = count_key(hold->poll_id, entry.choice, entry.length);

		unknown += lane_rows_find(hold, key)->known ? 0 : 1;
	}
	return unknown;
}

static void
key_open_rows(Store *store, const char *table, const char *index, int32 poll_id)
{
	StoreKey key;

	store_open(store, table, index, AccessShareLock);
	store_key_init(&key);
	store_key_int4(&key, poll_id);
	store_scan_begin(store, &key);
}

static void
key_close_rows(Store *store)
{
	store_scan_end(store);
	store_close(store);
}

/*
 * How many choices were given to a poll by name, as of a version of its row:
 * add_choice makes another one.  There can be many, and every new key asks.
 */
#define KEY_GIVEN 16
static struct
{
	Oid table; /* of the extension that it is of */
	int32 poll_id;
	StoreVersion version;
	int64 keys;
} key_given[KEY_GIVEN];

/* The choices that were given to the poll by name. */
static int64
key_count_given(const Poll *poll)
{
	int slot = (uint32) poll->poll_id % KEY_GIVEN;
	Oid table = store_relation_oid("choice");
	Store store;

	if (key_given[slot].table == table &&
		key_given[slot].poll_id == poll->poll_id &&
		store_version_equal(key_given[slot].version, poll->version))
		return key_given[slot].keys;
	key_given[slot].table = InvalidOid;
	key_given[slot].keys = 0;
	key_open_rows(&store, "choice", "choice_pkey", poll->poll_id);
	while (store_scan_next(&store))
	{
		CHECK_FOR_INTERRUPTS();
		key_given[slot].keys++;
	}
	key_close_rows(&store);
	key_given[slot].table = table;
	key_given[slot].poll_id = poll->poll_id;
	key_given[slot].version = poll->version;
	return key_given[slot].keys;
}

/* At most this many keys are known, by what the lanes say. */
static int64
key_upper_bound(const Poll *poll)
{
	int64 keys = key_count_given(poll) + pending_keys(poll->poll_id);
	Store store;

	key_open_rows(&store, "lane", "lane_pkey", poll->poll_id);
	while (store_scan_next(&store))
		keys += DatumGetInt64(store_get_notnull(&store, LANE_KEYS));
	key_close_rows(&store);
	return keys;
}

/* Is this choice among those that were given by name? */
static bool
key_is_given(int32 poll_id, const text *choice)
{
	bool narrow;

	return choice_find(poll_id, EVENT_TEXT_BYTES(choice),
					   EVENT_TEXT_LENGTH(choice), &narrow);
}

/*
 * The keys themselves.  Rows come in the order of (choice, lane), so a key's
 * rows stand together.
 */
static int64
key_count_exactly(const Poll *poll)
{
	int64 keys = key_count_given(poll);
	text *last = NULL;
	Store store;

	key_open_rows(&store, "lane_count", "lane_count_pkey", poll->poll_id);
	while (store_scan_next(&store))
	{
		text *choice =
			DatumGetTextPP(store_get_notnull(&store, LANE_COUNT_CHOICE_COLUMN));

		CHECK_FOR_INTERRUPTS();
		if (last != NULL && event_text_equal(last, choice))
			continue;
		if (last != NULL)
			pfree(last);
		last = store_get_text(&store, LANE_COUNT_CHOICE_COLUMN);
		keys += key_is_given(poll->poll_id, last) ? 0 : 1;
	}
	key_close_rows(&store);
	return keys;
}

/*
 * A full poll is asked again and again: its keys are counted once for each bound,
 * which goes up with every key.  After a rollback it may come there by others.
 */
static struct
{
	Oid table; /* of the extension that it is of; InvalidOid: not counted */
	int32 poll_id;
	int64 bound;
	int64 keys;
} key_counted;

void
key_forget(void)
{
	key_counted.table = InvalidOid;
}

bool
key_may_add(const Poll *poll, LaneHold *hold, const Tally *effect)
{
	Oid table = store_relation_oid("lane_count");
	int64 unknown = key_count_unknown(hold, effect);
	int64 bound;

	if (unknown == 0)
		return true;
	bound = key_upper_bound(poll);
	if (bound + unknown <= settings_max_keys)
		return true;
	if (key_counted.table != table || key_counted.poll_id != poll->poll_id ||
		key_counted.bound != bound)
	{
		key_counted.keys = key_count_exactly(poll);
		key_counted.table = table;
		key_counted.poll_id = poll->poll_id;
		key_counted.bound = bound;
	}
	return key_counted.keys + unknown <= settings_max_keys;
}
