/*
 * store_hint.c
 *		Where rows were found last, by any session: a look-up without an index.
 *
 * A hint is a place, found by a hash of the key, and may be wrong in every way:
 * what stands there is taken only if it is the current version of a row with the
 * key asked for.  A key has one current row, so that is the row.  Otherwise the
 * index is asked.  So hints need no invalidation, keys may share a slot, and they
 * are shared without a lock: who updates a row tells all where it stands.
 * Without shared memory a session has its own.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/snapmgr.h"

#include "shared.h"
#include "store.h"
#include "store_internal.h"

/* Where nothing is shared. */
#define STORE_OWN_HINTS 8192

/* Of so many slots, the one that a hash falls on. */
static pg_atomic_uint64 *
store_hint_of(uint32 hash)
{
	static pg_atomic_uint64 own[STORE_OWN_HINTS];
	static bool ready = false;
	Shared *shared = shared_get();

	if (shared != NULL)
		return &shared->hints[hash % SHARED_HINTS];
	for (int i = 0; !ready && i < STORE_OWN_HINTS; i++)
		pg_atomic_init_u64(&own[i], 0);
	ready = true;
	return &own[hash % STORE_OWN_HINTS];
}

/* Is a part of the key a text?  The others are passed by value. */
static bool
store_hint_is_text(const ScanKeyData *part)
{
	return OidIsValid(part->sk_collation);
}

static pg_atomic_uint64 *
store_hint_slot(Relation table, const StoreKey *key)
{
	uint32 hash = hash_combine(murmurhash32(MyDatabaseId),
							   murmurhash32(RelationGetRelid(table)));

	for (int i = 0; i < key->count; i++)
	{
		const ScanKeyData *part = &key->keys[i];
		const text *value;

		if (!store_hint_is_text(part))
		{
			hash = hash_combine(hash, murmurhash32((uint32) part->sk_argument));
			continue;
		}
		value = (const text *) DatumGetPointer(part->sk_argument);
		hash = hash_combine(
			hash, hash_bytes((const unsigned char *) VARDATA_ANY(value),
							 (int) VARSIZE_ANY_EXHDR(value)));
	}
	return store_hint_of(hash);
}

/* Has the row in the slot the key? */
static bool
store_hint_has_key(Store *store, const StoreKey *key)
{
	for (int i = 0; i < key->count; i++)
	{
		const ScanKeyData *part = &key->keys[i];
		Datum found = store_get_notnull(store, key->columns[i]);
		const text *a;
		const text *b;

		if (!store_hint_is_text(part))
		{
			if (found != part->sk_argument)
				return false;
			continue;
		}
		a = (const text *) DatumGetPointer(found);
		b = (const text *) DatumGetPointer(part->sk_argument);
		if (VARSIZE_ANY_EXHDR(a) != VARSIZE_ANY_EXHDR(b) ||
			memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) != 0)
			return false;
	}
	return true;
}

/*
 * Has the table the place?  It may have been cut off before we locked it, and it
 * is not cut off while we have it open.
 */
static bool
store_hint_is_within(Store *store, const ItemPointerData *hint)
{
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(hint);

	if (block < store->blocks)
		return true;
	store->blocks = RelationGetNumberOfBlocks(store->table);
	if (store->kept != NULL)
		store->kept->store.blocks = store->blocks;
	return block < store->blocks;
}

/* The row of the key, if it stands where the hint says; left in the slot. */
bool
store_hint_find(Store *store, const StoreKey *key)
{
	uint64 place = pg_atomic_read_u64(store_hint_slot(store->table, key));
	ItemPointerData hint;

	ItemPointerSet(&hint, (BlockNumber) (place >> 16),
				   (OffsetNumber) (place & 0xFFFF));
	if (!ItemPointerIsValid(&hint) || !store_hint_is_within(store, &hint) ||
		!table_tuple_fetch_row_version(store->table, &hint, SnapshotSelf,
									   store->slot))
		return false;
	if (store_hint_has_key(store, key))
		return true;
	ExecClearTuple(store->slot);
	return false;
}

void
store_hint_set(Relation table, const StoreKey *key, const ItemPointerData *tid)
{
	pg_atomic_uint64 *slot = store_hint_slot(table, key);
	uint64 place = (uint64) ItemPointerGetBlockNumber(tid) << 16 |
				   ItemPointerGetOffsetNumber(tid);

	/* Most often it is there, and others read the slot. */
	if (pg_atomic_read_u64(slot) != place)
		pg_atomic_write_u64(slot, place);
}

void
store_hint_written(const StoreWriter *writer, const StoreKey *key)
{
	store_hint_set(writer->table, key, &writer->slot->tts_tid);
}
