/*
 * store.h
 *		The one seam to the tables.
 *
 * Whatever knows relations, index scans, slots, heap tuples or SPI lives behind
 * it.  Rows are reached directly, without the executor, on the path of an
 * event; what happens once a poll or once a second goes through SPI.
 *
 * Direct access asks for no table privilege: EXECUTE on our functions is the
 * gate.  SPI runs as the owner of the ledger, between store_begin_sql and
 * store_end_sql.
 */
#ifndef POLL_TALLY_STORE_H
#define POLL_TALLY_STORE_H

#include "postgres.h"
#include "access/genam.h"
#include "access/skey.h"
#include "executor/spi.h"
#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "utils/rel.h"

#define STORE_SCHEMA "poll_tally"
#define STORE_MAX_KEYS 3

/* A table with one of its unique indexes, open for look-ups. */
typedef struct Store
{
	Relation table;
	Relation index;         /* NULL: not opened yet, see store_index */
	const char *index_name; /* a constant */
	LOCKMODE lockmode;
	BlockNumber blocks;     /* that the table has at least, while it is open */
	TupleTableSlot *slot;   /* the row that was found last */
	IndexScanDesc scan;     /* between store_scan_begin and store_scan_end */
	struct StoreKept *kept; /* of the session that it is from, or NULL */
} Store;

/* What a look-up asks of the leading columns of the index. */
typedef struct StoreKey
{
	int count;
	ScanKeyData keys[STORE_MAX_KEYS];
	const AttrNumber *columns; /* of the table; NULL: no hint is used */
} StoreKey;

/*
 * Open table and index by their names.  Read locks are given back at
 * store_close, as for catalogs; write locks stay until the transaction ends.
 */
extern void store_open(Store *store, const char *table, const char *index,
					   LOCKMODE lockmode);
extern void store_close(Store *store);

/*
 * Oid of a table or index of ours; InvalidOid when it is gone.  Names are string
 * constants: they are kept.
 */
extern Oid store_relation_oid(const char *name);

extern void store_key_init(StoreKey *key);
extern void store_key_int4(StoreKey *key, int32 value);
extern void store_key_int8(StoreKey *key, int64 value);
extern void store_key_bool(StoreKey *key, bool value);
extern void store_key_text(StoreKey *key, const text *value);

/*
 * Look first where the row of this key was found last, by whatever session.  The
 * key is complete, and "columns" says in which columns of the table its parts stand.
 */
extern void store_key_hinted(StoreKey *key, const AttrNumber *columns);

/*
 * The current row of a key, as of now: what is committed or our own, whatever
 * the transaction's snapshot.  Adds no serialization conflict where it finds
 * the row.
 */
extern bool store_find_current(Store *store, StoreKey *key);

/*
 * The same for a row whose key a lock guards that the caller holds, so that
 * nothing can move meanwhile and a miss is final.
 */
extern bool store_find_guarded(Store *store, StoreKey *key);

/*
 * The row of an insert-only table that owns a key, as of now.  When a
 * transaction in flight owns it, its end is awaited and the search starts over.
 * With backward, the last row in index order that has the key.
 *
 * Raises 40001 when the row was committed after the snapshot of a REPEATABLE
 * READ or SERIALIZABLE transaction; "noun" says what was stored.
 */
extern bool store_find_owner(Store *store, StoreKey *key,
							 ScanDirection direction, const char *noun);

/*
 * A session keeps tables and indexes open from one use to the next.  After an
 * error the (sub)transaction's abort closes them; then drop the session.  Returns
 * false where one is open already, and there is none to be ended.
 */
extern bool store_session_begin(MemoryContext context);
extern void store_session_end(void);
extern void store_session_drop(void);

/* What somebody had to wait for. */
typedef enum StoreWaitKind
{
	STORE_WAIT_NONE,
	STORE_WAIT_RETRY, /* nothing: somebody came first, look again */
	STORE_WAIT_OWNER, /* the end of a transaction that owns a key */
	STORE_WAIT_LANE   /* a lane of a poll */
} StoreWaitKind;

typedef struct StoreWait
{
	StoreWaitKind kind;
	TransactionId xid;
	uint32 speculative_token; /* 0: the transaction's end is meant */
	int32 poll_id;            /* of STORE_WAIT_LANE */
	bool all_lanes;           /* all lanes of it are needed */
} StoreWait;

/*
 * From now on an error is raised where there would be a wait, and *wait says for
 * what; the caller rolls back and calls store_wait.  NULL: waits are waited.
 */
extern void store_wait_instead(StoreWait *wait);

/* Raise that error for a lane, or return where waiting is allowed. */
extern void store_refuse_to_wait_for_lane(int32 poll_id, bool all_lanes);

/* Wait for the owner that was in the way; a lane is for the caller to take. */
extern void store_wait(const StoreWait *wait);

/* Does any row own the key, be it committed, ours or in flight?  Never waits. */
extern bool store_is_owned(Store *store, StoreKey *key);

/* The row of a key as the active snapshot sees it. */
extern bool store_find_visible(Store *store, StoreKey *key);

/*
 * All current rows of a key, in index order.  One that moves meanwhile may be
 * missed or seen twice.
 */
extern void store_scan_begin(Store *store, StoreKey *key);
extern bool store_scan_next(Store *store);
extern void store_scan_end(Store *store);

/* A table open for inserts, with all its indexes. */
typedef struct StoreWriter
{
	Relation table;
	EState *estate;
	ResultRelInfo *result;
	TupleTableSlot *slot; /* fill with store_writer_clear and store_slot_set */
	struct StorePlan *plan; /* that the fields above belong to, or NULL */
	struct StoreKept *kept; /* of the session that it is from, or NULL */
} StoreWriter;

extern void store_writer_open(StoreWriter *writer, const char *table);
extern void store_writer_close(StoreWriter *writer);
extern void store_writer_clear(StoreWriter *writer);

/* After an abort: whoever was writing at that nest level or below is gone. */
extern void store_plans_at_abort(int nest_level);

/* Insert the slot; a key that is already there raises 23505. */
extern void store_insert(StoreWriter *writer);

/*
 * Insert the slot, with the unique indexes of these names (NULL ends them) as
 * arbiters of races: returns false, with nothing left behind, when another row
 * owns one of their keys or is about to.  Never waits for it.  A key of another
 * index raises 23505: nobody would look for its owner, and trying again is vain.
 * Where waits are refused, use store_insert_many.
 */
extern bool store_insert_unless_owned(StoreWriter *writer,
									  const char *const *names);

/*
 * The row that the writer's slot describes, formed in the current context.  NULLs
 * at its end are not stored.
 */
extern HeapTuple store_form_row(StoreWriter *writer);

/* In which order rows are to enter an index: an array of their numbers. */
typedef struct StoreOrder
{
	const char *index; /* NULL ends a list of these */
	const uint32 *order;
} StoreOrder;

/*
 * Insert many rows at once, where waits are refused: another owner of a key of
 * an arbiter, or one that is about to be, is refused as well.  The rows get to
 * know their places.
 */
extern void store_insert_many(StoreWriter *writer, HeapTuple *rows, int count,
							  const StoreOrder *orders,
							  const char *const *arbiters);

/* Replace the row that "store" found last by the writer's slot. */
extern void store_update(StoreWriter *writer, Store *store);

/* The row of the key is the one that the writer wrote last. */
extern void store_hint_written(const StoreWriter *writer, const StoreKey *key);

static inline void
store_slot_set(TupleTableSlot *slot, AttrNumber attribute, Datum value)
{
	slot->tts_values[attribute - 1] = value;
	slot->tts_isnull[attribute - 1] = false;
}

/* An attribute of the row found last; NULL is for the caller to test. */
static inline Datum
store_get(Store *store, AttrNumber attribute, bool *isnull)
{
	return slot_getattr(store->slot, attribute, isnull);
}

/* The same for a column declared NOT NULL. */
static inline Datum
store_get_notnull(Store *store, AttrNumber attribute)
{
	bool isnull;
	Datum value = slot_getattr(store->slot, attribute, &isnull);

	Assert(!isnull);
	return value;
}

/*
 * Which version of a row it is.  No two of one file are alike: one transaction's
 * versions stand in different places, but VACUUM FULL can put a later one where
 * an earlier one stood.
 */
typedef struct StoreVersion
{
	Oid file;
	ItemPointerData tid;
	TransactionId xmin;
} StoreVersion;

/* The version of the row found last. */
extern StoreVersion store_version(Store *store);

static inline bool
store_version_equal(StoreVersion a, StoreVersion b)
{
	return a.file == b.file && a.xmin == b.xmin &&
		   ItemPointerEquals(&a.tid, &b.tid);
}

/* A copy, in the current context, of a text column; NULL for NULL. */
extern text *store_get_text(Store *store, AttrNumber attribute);

/* ---- SQL as the ledger's owner ---- */

/* A statement of ours, prepared at its first use and kept for the session. */
typedef struct StoreStatement
{
	const char *sql;
	int nargs;
	Oid argtypes[20];
	SPIPlanPtr plan;
} StoreStatement;

typedef struct StoreSqlState
{
	Oid user;
	int security_context;
	int guc_level;
} StoreSqlState;

/* Enter SPI with the owner's rights and an empty search_path; and leave. */
extern void store_begin_sql(StoreSqlState *state);
extern void store_end_sql(StoreSqlState *state);

/*
 * Run a statement; returns the number of rows, which are in SPI_tuptable.
 * nulls may be NULL for "no NULL".  A write statement sees what came before it.
 */
extern uint64 store_run(StoreStatement *statement, Datum *values,
						const char *nulls);

/* The same for a write statement that sees what is committed by now, also above
 * READ COMMITTED. */
extern uint64 store_run_latest(StoreStatement *statement, Datum *values,
							   const char *nulls);

/* The owner of the ledger, as whom our C code acts. */
extern Oid store_owner(void);

#endif /* POLL_TALLY_STORE_H */
