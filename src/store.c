/*
 * store.c
 *		The one seam to the tables.
 *
 * Two kinds of rows are looked up on the path of an event.
 *
 * Rows that are only ever inserted (the ledger): a dirty snapshot finds every
 * owner of a key, in flight or not, and cannot miss one, since no row moves.
 *
 * Rows that are updated (polls, lanes): SnapshotSelf finds the current version.
 * It can miss a row that is moving to another page while the index is read.
 * Lane rows are read under the lane's lock, where nothing moves; for the others
 * a miss is settled with a fresh MVCC snapshot.  At SERIALIZABLE that would take
 * predicate locks, so there the search is repeated instead: it could miss a row
 * only if the row moved each time.
 *
 * For these rows, a hint tells where each was found last: see store_hint.c.
 *
 * So our look-ups take no predicate locks and add no serialization failure.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_extension.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/syscache.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "store.h"
#include "store_internal.h"

/* Searches at SERIALIZABLE before a row is taken to be missing. */
#define STORE_SERIALIZABLE_TRIES 5

/*
 * Oids of our tables and indexes by name, as long as nothing in the catalogs that
 * could change them has changed.
 */
#define STORE_NAMES 32
static struct
{
	const char *name; /* a constant */
	Oid oid;
} store_names[STORE_NAMES];
static int store_names_count = 0;

static void
store_names_forget(Datum arg, int cache, uint32 hash)
{
	store_names_count = 0;
}

static void
store_names_watch(void)
{
	static bool watching = false;

	if (watching)
		return;
	CacheRegisterSyscacheCallback(RELOID, store_names_forget, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, store_names_forget, (Datum) 0);
	watching = true;
}

Oid
store_relation_oid(const char *name)
{
	Oid schema;
	Oid oid;

	for (int i = 0; i < store_names_count; i++)
		if (strcmp(store_names[i].name, name) == 0)
			return store_names[i].oid;
	store_names_watch();
	schema = get_namespace_oid(STORE_SCHEMA, true);
	oid = OidIsValid(schema) ? get_relname_relid(name, schema) : InvalidOid;
	if (OidIsValid(oid) && store_names_count < STORE_NAMES)
	{
		store_names[store_names_count].name = name;
		store_names[store_names_count].oid = oid;
		store_names_count++;
	}
	return oid;
}

/* The same for a table that must be there. */
Oid
store_require_relation(const char *name)
{
	Oid relation = store_relation_oid(name);

	if (!OidIsValid(relation))
		ereport(
			ERROR,
			(errcode(ERRCODE_UNDEFINED_TABLE),
			 errmsg("relation \"%s.%s\" does not exist", STORE_SCHEMA, name),
			 errhint(
				 "Is the extension poll_tally installed in this database?")));
	return relation;
}

static void
store_open_relations(Store *store, const char *table, const char *index,
					 LOCKMODE lockmode)
{
	store->lockmode = lockmode;
	store->table = table_open(store_require_relation(table), lockmode);
	store->index = NULL;
	store->index_name = index;
	store->blocks = 0;
	store->slot = table_slot_create(store->table, NULL);
}

void
store_close_relations(Store *store)
{
	LOCKMODE release =
		store->lockmode == AccessShareLock ? AccessShareLock : NoLock;

	ExecDropSingleTupleTableSlot(store->slot);
	if (store->index != NULL)
		index_close(store->index, release);
	table_close(store->table, release);
}

/* The index, opened when it is needed first: a hint may do without. */
static Relation
store_index(Store *store)
{
	if (store->index == NULL)
	{
		store->index = index_open(store_require_relation(store->index_name),
								  store->lockmode);
		if (store->kept != NULL)
			store->kept->store.index = store->index;
	}
	return store->index;
}

void
store_open(Store *store, const char *table, const char *index,
		   LOCKMODE lockmode)
{
	StoreKept *kept = store_kept_find(index, false);
	MemoryContext before;

	if (kept != NULL)
	{
		*store = kept->store;
		kept->busy = true;
		return;
	}
	kept = store_kept_add(index, false);
	before = MemoryContextSwitchTo(kept != NULL ? store_kept_context
												: CurrentMemoryContext);
	/* What is kept for reading may be wanted for writing. */
	store_open_relations(store, table, index,
						 kept != NULL ? RowExclusiveLock : lockmode);
	MemoryContextSwitchTo(before);
	store->kept = kept;
	if (kept != NULL)
		kept->store = *store;
}

void
store_close(Store *store)
{
	if (store->kept == NULL)
	{
		store_close_relations(store);
		return;
	}
	ExecClearTuple(store->slot);
	store->kept->busy = false;
}

void
store_key_init(StoreKey *key)
{
	key->count = 0;
	key->columns = NULL;
}

static void
store_key_add(StoreKey *key, RegProcedure procedure, Oid collation, Datum value)
{
	ScanKey entry = &key->keys[key->count];

	Assert(key->count < STORE_MAX_KEYS);
	key->count++;
	ScanKeyEntryInitialize(entry, 0, (AttrNumber) key->count,
						   BTEqualStrategyNumber, InvalidOid, collation,
						   procedure, value);
}

void
store_key_int4(StoreKey *key, int32 value)
{
	store_key_add(key, F_INT4EQ, InvalidOid, Int32GetDatum(value));
}

void
store_key_int8(StoreKey *key, int64 value)
{
	store_key_add(key, F_INT8EQ, InvalidOid, Int64GetDatum(value));
}

void
store_key_bool(StoreKey *key, bool value)
{
	store_key_add(key, F_BOOLEQ, InvalidOid, BoolGetDatum(value));
}

void
store_key_text(StoreKey *key, const text *value)
{
	store_key_add(key, F_TEXTEQ, C_COLLATION_OID, PointerGetDatum(value));
}

void
store_key_hinted(StoreKey *key, const AttrNumber *columns)
{
	key->columns = columns;
}

/* The first row of the key under a snapshot, left in the slot. */
static bool
store_find_with(Store *store, StoreKey *key, Snapshot snapshot,
				ScanDirection direction)
{
	IndexScanDesc scan = compat_index_beginscan(
		store->table, store_index(store), snapshot, key->count);
	bool found;

	index_rescan(scan, key->keys, key->count, NULL, 0);
	found = index_getnext_slot(scan, direction, store->slot);
	/* A slot pins its buffer on its own, so it outlives the scan. */
	index_endscan(scan);
	return found;
}

static bool
store_find_mvcc(Store *store, StoreKey *key, Snapshot snapshot)
{
	bool found;

	snapshot = RegisterSnapshot(snapshot);
	found = store_find_with(store, key, snapshot, ForwardScanDirection);
	if (found)
		ExecMaterializeSlot(store->slot);
	UnregisterSnapshot(snapshot);
	return found;
}

/* The current version of a row, by hint or by index; a miss may be for a move. */
static bool
store_find_self(Store *store, StoreKey *key)
{
	if (key->columns != NULL && store_hint_find(store, key))
		return true;
	if (!store_find_with(store, key, SnapshotSelf, ForwardScanDirection))
		return false;
	if (key->columns != NULL)
		store_hint_set(store->table, key, &store->slot->tts_tid);
	return true;
}

bool
store_find_current(Store *store, StoreKey *key)
{
	for (int tries = 0; tries < STORE_SERIALIZABLE_TRIES; tries++)
	{
		if (store_find_self(store, key))
			return true;
		if (!IsolationIsSerializable())
			return store_find_mvcc(store, key, GetLatestSnapshot());
	}
	return false;
}

bool
store_find_guarded(Store *store, StoreKey *key)
{
	return store_find_self(store, key);
}

bool
store_find_visible(Store *store, StoreKey *key)
{
	return store_find_mvcc(store, key, GetActiveSnapshot());
}

bool
store_is_owned(Store *store, StoreKey *key)
{
	SnapshotData dirty;

	InitDirtySnapshot(dirty);
	return store_find_with(store, key, &dirty, ForwardScanDirection);
}

static TransactionId
store_xmin(Store *store)
{
	bool isnull;

	return DatumGetTransactionId(
		slot_getsysattr(store->slot, MinTransactionIdAttributeNumber, &isnull));
}

StoreVersion
store_version(Store *store)
{
	StoreVersion version = {store->table->rd_rel->relfilenode,
							store->slot->tts_tid, store_xmin(store)};

	return version;
}

/* Was the row that the slot holds written by this transaction? */
static bool
store_is_own_row(Store *store)
{
	return TransactionIdIsCurrentTransactionId(store_xmin(store));
}

/*
 * Above READ COMMITTED, a row that a twin committed after our snapshot may not
 * be answered from: the transaction has to see it or be retried.
 */
static void
store_require_in_snapshot(Store *store, const char *noun)
{
	if (!IsolationUsesXactSnapshot() || store_is_own_row(store))
		return;
	if (table_tuple_satisfies_snapshot(store->table, store->slot,
									   GetTransactionSnapshot()))
		return;
	ereport(
		ERROR,
		(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
		 errmsg("could not serialize access due to concurrent update"),
		 errdetail("A concurrent transaction has stored the same %s.", noun),
		 errhint("The transaction might succeed if retried.")));
}

/* Wait until the transaction that owns the row in flight has ended. */
static void
store_await_owner(Store *store, SnapshotData *dirty, ItemPointer tid)
{
	StoreWait wait = {.kind = STORE_WAIT_OWNER};

	wait.xid = TransactionIdIsValid(dirty->xmin) ? dirty->xmin : dirty->xmax;
	wait.speculative_token =
		TransactionIdIsValid(dirty->xmin) ? dirty->speculativeToken : 0;
	store_refuse_to_wait(&wait);
	if (wait.speculative_token != 0)
		SpeculativeInsertionWait(wait.xid, wait.speculative_token);
	else
		XactLockTableWait(wait.xid, store->table, tid, XLTW_InsertIndexUnique);
}

bool
store_find_owner(Store *store, StoreKey *key, ScanDirection direction,
				 const char *noun)
{
	for (;;)
	{
		SnapshotData dirty;
		ItemPointerData tid;

		CHECK_FOR_INTERRUPTS();
		InitDirtySnapshot(dirty);
		if (!store_find_with(store, key, &dirty, direction))
			return false;
		if (!TransactionIdIsValid(dirty.xmin) &&
			!TransactionIdIsValid(dirty.xmax))
		{
			store_require_in_snapshot(store, noun);
			return true;
		}
		tid = store->slot->tts_tid;
		ExecClearTuple(store->slot);
		store_await_owner(store, &dirty, &tid);
	}
}

void
store_scan_begin(Store *store, StoreKey *key)
{
	store->scan = compat_index_beginscan(store->table, store_index(store),
										 SnapshotSelf, key->count);
	index_rescan(store->scan, key->keys, key->count, NULL, 0);
}

bool
store_scan_next(Store *store)
{
	return index_getnext_slot(store->scan, ForwardScanDirection, store->slot);
}

void
store_scan_end(Store *store)
{
	index_endscan(store->scan);
}

text *
store_get_text(Store *store, AttrNumber attribute)
{
	bool isnull;
	Datum value = slot_getattr(store->slot, attribute, &isnull);

	return isnull ? NULL : DatumGetTextPCopy(value);
}
