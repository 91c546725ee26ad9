/*
 * ledger_stage.c
 *		Entries of a batch that are not in the ledger yet.
 *
 * A batch judges its events one after the other, each seeing those before it, and
 * writes their entries many at a time, which costs less than one by one.
 * Meanwhile they are found here: by id, by source coordinate, and the last one of
 * each principal.  Invariant: an entry of the batch is either here or in the
 * ledger, never in both.
 *
 * The keys point into the events, which outlive the batch.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "port/pg_bswap.h"

#include "ledger_stage.h"

/* Entries, and bytes of them, beyond which they are written. */
#define LEDGER_STAGE_ENTRIES 10000
#define LEDGER_STAGE_BYTES (8 * 1024 * 1024)

typedef enum StageKind
{
	STAGE_ID,
	STAGE_SOURCE,
	STAGE_PRINCIPAL
} StageKind;

typedef struct StageKey
{
	StageKind kind;
	int32 number; /* partition of a source, poll of a principal */
	int64 offset; /* of a source */
	const text *name;
} StageKey;

typedef struct StageSlot
{
	StageKey key;
	uint32 entry;
	uint32 hash;
	char status;
} StageSlot;

static uint32
stage_hash(StageKey key)
{
	uint32 hash = hash_bytes((const unsigned char *) EVENT_TEXT_BYTES(key.name),
							 EVENT_TEXT_LENGTH(key.name));

	return hash_combine(hash, murmurhash32((uint32) key.kind ^
										   ((uint32) key.number << 2) ^
										   (uint32) key.offset));
}

static bool
stage_equal(StageKey a, StageKey b)
{
	return a.kind == b.kind && a.number == b.number && a.offset == b.offset &&
		   event_text_equal(a.name, b.name);
}

#define SH_PREFIX stage_map
#define SH_ELEMENT_TYPE StageSlot
#define SH_KEY_TYPE StageKey
#define SH_KEY key
#define SH_HASH_KEY(table, key) stage_hash(key)
#define SH_EQUAL(table, a, b) stage_equal(a, b)
#define SH_SCOPE static inline
#define SH_STORE_HASH
#define SH_GET_HASH(table, entry) (entry)->hash
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* What the entries are sorted by: an index's key, shortened to its first bytes. */
typedef struct StageRank
{
	int32 poll_id;
	uint64 prefix;
	const text *name;
	uint32 entry;
} StageRank;

typedef struct StageEntry
{
	int32 poll_id;
	EventPosition position;
	const text *event_id;
	const text *principal;
} StageEntry;

typedef struct LedgerStage
{
	bool trusting;
	MemoryContext context; /* of what is staged; reset when it is written */
	StoreWriter writer;
	TupleTableSlot *slot; /* for rows that are found */
	stage_map_hash *map;
	int count;
	int size;
	Size bytes;
	HeapTuple *rows;
	StageEntry *entries;
} LedgerStage;

static LedgerStage *ledger_stage = NULL;

bool
ledger_is_staging(void)
{
	return ledger_stage != NULL;
}

bool
ledger_stage_trusts(void)
{
	return ledger_stage != NULL && ledger_stage->trusting;
}

bool
ledger_stage_set_trust(bool trusting)
{
	bool before = ledger_stage_trusts();

	if (ledger_stage != NULL)
		ledger_stage->trusting = trusting;
	return before;
}

void
ledger_stage_begin(MemoryContext context, bool trusting)
{
	Assert(ledger_stage == NULL);
	ledger_stage = MemoryContextAllocZero(context, sizeof(LedgerStage));
	ledger_stage->trusting = trusting;
	ledger_stage->context = AllocSetContextCreate(context, "poll_tally stage",
												  ALLOCSET_DEFAULT_SIZES);
}

void
ledger_stage_drop(void)
{
	ledger_stage = NULL;
}

/* Room for the first entries; the writer is opened once there are any. */
static void
ledger_stage_start(LedgerStage *stage)
{
	MemoryContext before = MemoryContextSwitchTo(stage->context);

	if (stage->slot == NULL)
	{
		MemoryContextSwitchTo(GetMemoryChunkContext(stage));
		store_writer_open(&stage->writer, "ledger");
		stage->slot = MakeSingleTupleTableSlot(
			stage->writer.slot->tts_tupleDescriptor, &TTSOpsHeapTuple);
		MemoryContextSwitchTo(stage->context);
	}
	stage->size = 256;
	stage->rows = palloc_array(HeapTuple, stage->size);
	stage->entries = palloc_array(StageEntry, stage->size);
	stage->map = stage_map_create(stage->context, 512, NULL);
	MemoryContextSwitchTo(before);
}

static void
ledger_stage_grow(LedgerStage *stage)
{
	stage->size *= 2;
	stage->rows = repalloc(stage->rows, stage->size * sizeof(HeapTuple));
	stage->entries = repalloc(stage->entries, stage->size * sizeof(StageEntry));
}

/* The first bytes of a name, in an order that compares like them. */
static uint64
stage_prefix(const text *name)
{
	uint64 prefix = 0;

	memcpy(&prefix, EVENT_TEXT_BYTES(name),
		   Min(EVENT_TEXT_LENGTH(name), (int) sizeof(prefix)));
	return pg_ntoh64(prefix);
}

static int
stage_compare(const void *a, const void *b)
{
	const StageRank *left = a;
	const StageRank *right = b;

	if (left->poll_id != right->poll_id)
		return left->poll_id < right->poll_id ? -1 : 1;
	if (left->prefix != right->prefix)
		return left->prefix < right->prefix ? -1 : 1;
	if (left->name != NULL && right->name != NULL && left->name != right->name)
		return tally_compare_choice(
			EVENT_TEXT_BYTES(left->name), EVENT_TEXT_LENGTH(left->name),
			EVENT_TEXT_BYTES(right->name), EVENT_TEXT_LENGTH(right->name));
	return left->entry < right->entry ? -1 : 1;
}

/* The numbers of the entries, in the order of their ranks. */
static const uint32 *
stage_order(StageRank *ranks, int count)
{
	uint32 *order = palloc_array(uint32, count);

	for (int i = 0; i < count; i++)
		ranks[i].entry = i;
	qsort(ranks, count, sizeof(StageRank), stage_compare);
	for (int i = 0; i < count; i++)
		order[i] = ranks[i].entry;
	return order;
}

static const uint32 *
stage_order_by_id(const LedgerStage *stage, StageRank *ranks)
{
	for (int i = 0; i < stage->count; i++)
	{
		ranks[i].poll_id = 0;
		ranks[i].name = stage->entries[i].event_id;
		ranks[i].prefix = stage_prefix(ranks[i].name);
	}
	return stage_order(ranks, stage->count);
}

static const uint32 *
stage_order_by_position(const LedgerStage *stage, StageRank *ranks)
{
	for (int i = 0; i < stage->count; i++)
	{
		ranks[i].poll_id = stage->entries[i].poll_id;
		ranks[i].name = NULL;
		ranks[i].prefix = (uint64) stage->entries[i].position;
	}
	return stage_order(ranks, stage->count);
}

static const uint32 *
stage_order_by_principal(const LedgerStage *stage, StageRank *ranks)
{
	for (int i = 0; i < stage->count; i++)
	{
		ranks[i].poll_id = stage->entries[i].poll_id;
		ranks[i].name = stage->entries[i].principal;
		ranks[i].prefix =
			ranks[i].name != NULL ? stage_prefix(ranks[i].name) : 0;
	}
	return stage_order(ranks, stage->count);
}

/* Write what is staged. */
static void
ledger_stage_write(LedgerStage *stage)
{
	MemoryContext before = MemoryContextSwitchTo(stage->context);
	StageRank *ranks = MemoryContextAllocHuge(stage->context,
											  stage->count * sizeof(StageRank));
	StoreOrder orders[] = {
		{"ledger_pkey", stage_order_by_position(stage, ranks)},
		{"ledger_event_id_key", stage_order_by_id(stage, ranks)},
		{"ledger_principal_key", stage_order_by_principal(stage, ranks)},
		{NULL, NULL}};

	ledger_insert_many(&stage->writer, stage->rows, stage->count, orders);
	MemoryContextSwitchTo(before);
	MemoryContextReset(stage->context);
	stage->count = 0;
	stage->bytes = 0;
	stage->size = 0;
}

void
ledger_stage_end(void)
{
	LedgerStage *stage = ledger_stage;

	if (stage->count > 0)
		ledger_stage_write(stage);
	if (stage->slot != NULL)
	{
		ExecDropSingleTupleTableSlot(stage->slot);
		store_writer_close(&stage->writer);
	}
	MemoryContextDelete(stage->context);
	ledger_stage_drop();
}

static void
stage_map_put(LedgerStage *stage, StageKey key)
{
	bool found;

	stage_map_insert(stage->map, key, &found)->entry = stage->count;
}

static StageKey
stage_key(StageKind kind, const text *name, int32 number, int64 offset)
{
	StageKey key = {kind, number, offset, name};

	return key;
}

void
ledger_stage_add(const LedgerEntry *entry, const Event *event)
{
	LedgerStage *stage = ledger_stage;
	MemoryContext before;
	StageEntry *staged;

	if (stage->count >= LEDGER_STAGE_ENTRIES ||
		stage->bytes >= LEDGER_STAGE_BYTES)
		ledger_stage_write(stage);
	if (stage->size == 0)
		ledger_stage_start(stage);
	else if (stage->count == stage->size)
		ledger_stage_grow(stage);

	store_writer_clear(&stage->writer);
	ledger_form(stage->writer.slot, entry, event);
	before = MemoryContextSwitchTo(stage->context);
	stage->rows[stage->count] = store_form_row(&stage->writer);
	MemoryContextSwitchTo(before);
	stage->bytes += stage->rows[stage->count]->t_len;

	staged = &stage->entries[stage->count];
	staged->poll_id = entry->poll_id;
	staged->position = entry->position;
	staged->event_id = event->event_id;
	staged->principal = event->principal;
	stage_map_put(stage, stage_key(STAGE_ID, event->event_id, 0, 0));
	if (event->principal != NULL)
		stage_map_put(stage, stage_key(STAGE_PRINCIPAL, event->principal,
									   entry->poll_id, 0));
	if (event->source != NULL)
		stage_map_put(stage,
					  stage_key(STAGE_SOURCE, event->source,
								event->source_partition, event->source_offset));
	stage->count++;
}

static bool
ledger_stage_find(StageKey key, Store *row)
{
	LedgerStage *stage = ledger_stage;
	StageSlot *slot;

	if (stage == NULL || stage->size == 0)
		return false;
	slot = stage_map_lookup(stage->map, key);
	if (slot == NULL)
		return false;
	row->slot = stage->slot;
	(void) ExecStoreHeapTuple(stage->rows[slot->entry], stage->slot, false);
	return true;
}

bool
ledger_stage_find_id(const text *event_id, Store *row)
{
	return ledger_stage_find(stage_key(STAGE_ID, event_id, 0, 0), row);
}

bool
ledger_stage_find_source(const text *source, int32 partition, int64 offset,
						 Store *row)
{
	return ledger_stage_find(stage_key(STAGE_SOURCE, source, partition, offset),
							 row);
}

bool
ledger_stage_find_tail(int32 poll_id, const text *principal, Store *row)
{
	return ledger_stage_find(stage_key(STAGE_PRINCIPAL, principal, poll_id, 0),
							 row);
}
