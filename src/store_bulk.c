/*
 * store_bulk.c
 *		The seam to the tables, for writing many rows at once.
 *
 * The rows go into the table by pages, and into each index in the order of its
 * keys, so that neighbours are met while their page is at hand.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "miscadmin.h"

#include "compat.h"
#include "store.h"
#include "store_internal.h"

/* Rows that the table takes at once. */
#define STORE_BULK_ROWS 1000

/* Put the rows into the table; each learns its place. */
static void
store_bulk_heap(StoreWriter *writer, HeapTuple *rows, int count)
{
	int size = Min(count, STORE_BULK_ROWS);
	TupleTableSlot **slots = palloc_array(TupleTableSlot *, size);

	for (int i = 0; i < size; i++)
		slots[i] = MakeSingleTupleTableSlot(writer->slot->tts_tupleDescriptor,
											&TTSOpsHeapTuple);
	for (int first = 0; first < count; first += size)
	{
		int some = Min(size, count - first);

		for (int i = 0; i < some; i++)
			(void) ExecStoreHeapTuple(rows[first + i], slots[i], false);
		table_multi_insert(writer->table, slots, some,
						   GetCurrentCommandId(true), 0, NULL);
		for (int i = 0; i < some; i++)
			rows[first + i]->t_self = slots[i]->tts_tid;
	}
	for (int i = 0; i < size; i++)
		ExecDropSingleTupleTableSlot(slots[i]);
}

/* Is the row at hand to be in the index? */
static bool
store_bulk_indexed(StoreWriter *writer, IndexInfo *info)
{
	if (info->ii_Predicate == NIL)
		return true;
	if (info->ii_PredicateState == NULL)
		info->ii_PredicateState =
			ExecPrepareQual(info->ii_Predicate, writer->estate);
	return ExecQual(info->ii_PredicateState,
					GetPerTupleExprContext(writer->estate));
}

/* Put the rows into one index; false when an arbiter has one of the keys. */
static bool
store_bulk_index(StoreWriter *writer, int number, HeapTuple *rows, int count,
				 const uint32 *order, bool arbiter)
{
	Relation index = writer->result->ri_IndexRelationDescs[number];
	IndexInfo *info = writer->result->ri_IndexRelationInfo[number];
	TupleTableSlot *slot = MakeSingleTupleTableSlot(
		writer->slot->tts_tupleDescriptor, &TTSOpsHeapTuple);
	IndexUniqueCheck check = !index->rd_index->indisunique ? UNIQUE_CHECK_NO
							 : arbiter ? UNIQUE_CHECK_PARTIAL
									   : UNIQUE_CHECK_YES;
	bool unique = true;

	for (int i = 0; i < count && unique; i++)
	{
		HeapTuple row = rows[order != NULL ? order[i] : i];
		Datum values[INDEX_MAX_KEYS];
		bool nulls[INDEX_MAX_KEYS];
		bool inserted;

		CHECK_FOR_INTERRUPTS();
		(void) ExecStoreHeapTuple(row, slot, false);
		GetPerTupleExprContext(writer->estate)->ecxt_scantuple = slot;
		if (!store_bulk_indexed(writer, info))
			continue;
		FormIndexDatum(info, slot, writer->estate, values, nulls);
		inserted = index_insert(index, values, nulls, &row->t_self,
								writer->table, check, false, info);
		/* Only then does it say whether the key was free. */
		unique = inserted || check != UNIQUE_CHECK_PARTIAL;
		ResetPerTupleExprContext(writer->estate);
	}
	ExecDropSingleTupleTableSlot(slot);
	return unique;
}

/* The order that the caller knows for an index, or NULL. */
static const uint32 *
store_bulk_order(Relation index, const StoreOrder *orders)
{
	for (; orders->index != NULL; orders++)
		if (store_is_index(index, orders->index))
			return orders->order;
	return NULL;
}

/* Is this an index as ours are?  Somebody may have added others. */
static bool
store_bulk_is_plain(StoreWriter *writer)
{
	for (int i = 0; i < writer->result->ri_NumIndices; i++)
		if (writer->result->ri_IndexRelationInfo[i]->ii_ExclusionOps != NULL ||
			!writer->result->ri_IndexRelationDescs[i]->rd_index->indimmediate)
			return false;
	return true;
}

/* Put the rows into all indexes, row by row, by the server's own means. */
static bool
store_bulk_rows(StoreWriter *writer, HeapTuple *rows, int count, List *arbiters)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(
		writer->slot->tts_tupleDescriptor, &TTSOpsHeapTuple);
	bool conflict = false;

	for (int i = 0; i < count && !conflict; i++)
	{
		(void) ExecStoreHeapTuple(rows[i], slot, false);
		list_free(compat_insert_index_tuples(
			writer->result, slot, writer->estate, &conflict, arbiters));
		ResetPerTupleExprContext(writer->estate);
	}
	ExecDropSingleTupleTableSlot(slot);
	return !conflict;
}

/* Put the rows into the indexes one after the other. */
static bool
store_bulk_indexes(StoreWriter *writer, HeapTuple *rows, int count,
				   const StoreOrder *orders, List *arbiters)
{
	for (int i = 0; i < writer->result->ri_NumIndices; i++)
	{
		Relation index = writer->result->ri_IndexRelationDescs[i];

		if (writer->result->ri_IndexRelationInfo[i]->ii_ReadyForInserts &&
			!store_bulk_index(
				writer, i, rows, count, store_bulk_order(index, orders),
				list_member_oid(arbiters, RelationGetRelid(index))))
			return false;
	}
	return true;
}

void
store_insert_many(StoreWriter *writer, HeapTuple *rows, int count,
				  const StoreOrder *orders, const char *const *arbiters)
{
	StoreWait retry = {.kind = STORE_WAIT_RETRY};
	List *owners = store_arbiters(writer, arbiters);
	bool unique;

	Assert(store_instead != NULL);
	store_bulk_heap(writer, rows, count);
	unique = store_bulk_is_plain(writer)
				 ? store_bulk_indexes(writer, rows, count, orders, owners)
				 : store_bulk_rows(writer, rows, count, owners);
	list_free(owners);
	if (!unique)
		store_refuse_to_wait(&retry);
}
