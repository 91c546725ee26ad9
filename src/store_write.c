/*
 * store_write.c
 *		The seam to the tables, for writing rows directly.
 *
 * Constraints and triggers of the tables are not run: what is written has been
 * judged already.  All indexes are maintained, also those that somebody added.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"

#include "compat.h"
#include "store.h"
#include "store_internal.h"

static void
store_writer_open_relations(StoreWriter *writer, const char *table)
{
	writer->table = table_open(store_require_relation(table), RowExclusiveLock);
	if (store_plan_open(writer))
		return;
	writer->estate = CreateExecutorState();
	writer->result = makeNode(ResultRelInfo);
	InitResultRelInfo(writer->result, writer->table, 0, NULL, 0);
	ExecOpenIndices(writer->result, false);
	writer->slot = table_slot_create(writer->table, NULL);
}

void
store_writer_close_relations(StoreWriter *writer)
{
	if (writer->plan != NULL)
		store_plan_close(writer);
	else
	{
		ExecDropSingleTupleTableSlot(writer->slot);
		ExecCloseIndices(writer->result);
		FreeExecutorState(writer->estate);
	}
	table_close(writer->table, NoLock);
}

void
store_writer_open(StoreWriter *writer, const char *table)
{
	StoreKept *kept = store_kept_find(table, true);
	MemoryContext before;

	if (kept != NULL)
	{
		*writer = kept->write;
		kept->busy = true;
		return;
	}
	kept = store_kept_add(table, true);
	before = MemoryContextSwitchTo(kept != NULL ? store_kept_context
												: CurrentMemoryContext);
	store_writer_open_relations(writer, table);
	MemoryContextSwitchTo(before);
	writer->kept = kept;
	if (kept != NULL)
		kept->write = *writer;
}

void
store_writer_close(StoreWriter *writer)
{
	if (writer->kept == NULL)
	{
		store_writer_close_relations(writer);
		return;
	}
	ExecClearTuple(writer->slot);
	writer->kept->busy = false;
}

/* Make the slot an all-NULL row, to be filled and then written. */
void
store_writer_clear(StoreWriter *writer)
{
	TupleTableSlot *slot = writer->slot;

	ExecClearTuple(slot);
	memset(slot->tts_isnull, true, slot->tts_tupleDescriptor->natts);
	memset(slot->tts_values, 0,
		   slot->tts_tupleDescriptor->natts * sizeof(Datum));
	ExecStoreVirtualTuple(slot);
}

/*
 * Leave off the NULLs at the end of a row, as rows older than a column are: they
 * read as NULL all the same.  The header's bitmap shrinks, and where no NULL is
 * left it goes.
 */
static void
store_trim_row(HeapTuple row)
{
	HeapTupleHeader header = row->t_data;
	int natts = HeapTupleHeaderGetNatts(header);
	int first_null = 0;
	int offset;

	while (natts > 1 && att_isnull(natts - 1, header->t_bits))
		natts--;
	while (first_null < natts && !att_isnull(first_null, header->t_bits))
		first_null++;
	if (first_null == natts)
		header->t_infomask &= ~HEAP_HASNULL;
	offset = MAXALIGN(SizeofHeapTupleHeader +
					  (first_null == natts ? 0 : BITMAPLEN(natts)));
	memmove((char *) header + offset, (char *) header + header->t_hoff,
			row->t_len - header->t_hoff);
	row->t_len -= header->t_hoff - offset;
	header->t_hoff = offset;
	HeapTupleHeaderSetNatts(header, natts);
	HeapTupleHeaderSetDatumLength(header, row->t_len);
}

HeapTuple
store_form_row(StoreWriter *writer)
{
	TupleTableSlot *slot = writer->slot;
	HeapTuple row = heap_form_tuple(slot->tts_tupleDescriptor, slot->tts_values,
									slot->tts_isnull);

	if (HeapTupleHasNulls(row))
		store_trim_row(row);
	row->t_tableOid = RelationGetRelid(writer->table);
	return row;
}

void
store_insert(StoreWriter *writer)
{
	table_tuple_insert(writer->table, writer->slot, GetCurrentCommandId(true),
					   0, NULL);
	writer->slot->tts_tableOid = RelationGetRelid(writer->table);
	if (writer->result->ri_NumIndices > 0)
		list_free(compat_insert_index_tuples(writer->result, writer->slot,
											 writer->estate, NULL, NIL));
	ResetPerTupleExprContext(writer->estate);
}

/*
 * Is this the index of that name?  While one is rebuilt concurrently there are
 * two, the other with a suffix to its name.
 */
bool
store_is_index(Relation index, const char *name)
{
	return strncmp(RelationGetRelationName(index), name, strlen(name)) == 0;
}

/* The indexes of these names; a NULL ends them. */
List *
store_arbiters(StoreWriter *writer, const char *const *names)
{
	List *arbiters = NIL;

	for (int i = 0; i < writer->result->ri_NumIndices; i++)
	{
		Relation index = writer->result->ri_IndexRelationDescs[i];

		for (int j = 0; names[j] != NULL; j++)
			if (store_is_index(index, names[j]))
				arbiters = lappend_oid(arbiters, RelationGetRelid(index));
	}
	return arbiters;
}

bool
store_insert_unless_owned(StoreWriter *writer, const char *const *names)
{
	List *arbiters = store_arbiters(writer, names);
	TransactionId xid;
	bool conflict = false;
	uint32 token;

	Assert(arbiters != NIL && store_instead == NULL);
	ExecForceStoreHeapTuple(store_form_row(writer), writer->slot, true);
	xid = GetCurrentTransactionId();
	token = SpeculativeInsertionLockAcquire(xid);
	table_tuple_insert_speculative(writer->table, writer->slot,
								   GetCurrentCommandId(true), 0, NULL, token);
	writer->slot->tts_tableOid = RelationGetRelid(writer->table);
	list_free(compat_insert_index_tuples(writer->result, writer->slot,
										 writer->estate, &conflict, arbiters));
	table_tuple_complete_speculative(writer->table, writer->slot, token,
									 !conflict);
	SpeculativeInsertionLockRelease(xid);

	ResetPerTupleExprContext(writer->estate);
	list_free(arbiters);
	return !conflict;
}

void
store_update(StoreWriter *writer, Store *store)
{
	ItemPointerData tid = store->slot->tts_tid;

	writer->slot->tts_tableOid = RelationGetRelid(writer->table);
	compat_update_tuple(writer->result, writer->estate, &tid, writer->slot);
	ResetPerTupleExprContext(writer->estate);
}
