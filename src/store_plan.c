/*
 * store_plan.c
 *		How rows are written into a table, kept for the session.
 *
 * What the server works out of the catalogs to maintain the indexes of a table
 * (their columns, their predicates made ready to run) costs as much as an insert
 * into one of them.  So it is kept, without the relations themselves, and dropped
 * as soon as the server says that the table or an index has changed.
 *
 * Invariant: a plan is used by one writer at a time, and only while it is valid
 * as of the lock on the table, which changes of its indexes cannot pass.  That
 * lock is good for its transaction alone: an index that somebody builds
 * concurrently may be of no concern to this one and of concern to the next.  So
 * a plan during which something changed is used once, and not kept.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "executor/executor.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "store.h"
#include "store_internal.h"

#define STORE_PLANS 4 /* ledger, lane, lane_count, and one to spare */

typedef struct StorePlan
{
	Oid table; /* InvalidOid: nothing is kept here */
	bool valid;
	bool busy;
	int nest_level;        /* of the subtransaction that uses it */
	MemoryContext context; /* owns all that follows */
	EState *estate;
	ResultRelInfo *result; /* relations are set while it is busy */
	TupleTableSlot *slot;
	Oid *indexes; /* as many as the result has */
} StorePlan;

static StorePlan store_plans[STORE_PLANS];

/* Moves on with each change that the server tells of. */
static uint64 store_plan_changes = 0;

static bool
store_plan_has(const StorePlan *plan, Oid relation)
{
	if (plan->table == relation)
		return true;
	for (int i = 0; i < plan->result->ri_NumIndices; i++)
		if (plan->indexes[i] == relation)
			return true;
	return false;
}

/* The server says that a relation has changed; InvalidOid: any may have. */
static void
store_plan_invalidate(Datum arg, Oid relation)
{
	store_plan_changes++;
	for (int i = 0; i < STORE_PLANS; i++)
	{
		StorePlan *plan = &store_plans[i];

		if (plan->valid &&
			(!OidIsValid(relation) || store_plan_has(plan, relation)))
			plan->valid = false;
	}
}

static void
store_plan_drop(StorePlan *plan)
{
	if (plan->context != NULL)
		MemoryContextDelete(plan->context);
	memset(plan, 0, sizeof(StorePlan));
}

/* The plan of a table, or a place to make it in; NULL when all are in use. */
static StorePlan *
store_plan_find(Oid table)
{
	StorePlan *place = NULL;

	for (int i = 0; i < STORE_PLANS; i++)
	{
		StorePlan *plan = &store_plans[i];

		if (plan->table == table && !plan->busy && plan->valid)
			return plan;
		if (!plan->busy && !plan->valid)
			place = plan;
	}
	if (place != NULL)
		store_plan_drop(place);
	return place;
}

/*
 * Only B-trees over columns keep nothing in their IndexInfo from one insert to
 * the next that would have to be cleaned up.
 */
static bool
store_plan_can_keep(ResultRelInfo *result)
{
	for (int i = 0; i < result->ri_NumIndices; i++)
		if (result->ri_IndexRelationDescs[i]->rd_rel->relam != BTREE_AM_OID ||
			result->ri_IndexRelationInfo[i]->ii_Expressions != NIL)
			return false;
	return true;
}

/*
 * Work out the plan of the table that is open, leaving its indexes open.  After
 * an error, what was made so far goes with the current context.
 */
static void
store_plan_make(StorePlan *plan, Relation table)
{
	MemoryContext context = AllocSetContextCreate(
		CurrentMemoryContext, "poll_tally plan", ALLOCSET_SMALL_SIZES);
	MemoryContext before = MemoryContextSwitchTo(context);

	plan->context = context;
	plan->estate = CreateExecutorState();
	plan->result = makeNode(ResultRelInfo);
	InitResultRelInfo(plan->result, table, 0, NULL, 0);
	ExecOpenIndices(plan->result, false);
	/* A slot on the table's own descriptor would pin it. */
	plan->slot =
		MakeSingleTupleTableSlot(CreateTupleDescCopy(RelationGetDescr(table)),
								 table_slot_callbacks(table));
	plan->indexes = palloc_array(Oid, plan->result->ri_NumIndices);
	for (int i = 0; i < plan->result->ri_NumIndices; i++)
		plan->indexes[i] =
			RelationGetRelid(plan->result->ri_IndexRelationDescs[i]);
	MemoryContextSwitchTo(before);
}

static void
store_plan_watch(void)
{
	static bool watching = false;

	if (!watching)
		CacheRegisterRelcacheCallback(store_plan_invalidate, (Datum) 0);
	watching = true;
}

/* Make the plan of the table; false, with the indexes closed, when it is not kept. */
static bool
store_plan_keep(StorePlan *place, Relation table)
{
	StorePlan plan = {0};
	uint64 changes;

	store_plan_watch();
	changes = store_plan_changes;
	store_plan_make(&plan, table);
	if (!store_plan_can_keep(plan.result))
	{
		ExecCloseIndices(plan.result);
		store_plan_drop(&plan);
		return false;
	}
	MemoryContextSetParent(plan.context, CacheMemoryContext);
	plan.table = RelationGetRelid(table);
	plan.valid = changes == store_plan_changes;
	*place = plan;
	return true;
}

static void
store_plan_open_indexes(StorePlan *plan)
{
	for (int i = 0; i < plan->result->ri_NumIndices; i++)
		plan->result->ri_IndexRelationDescs[i] =
			index_open(plan->indexes[i], RowExclusiveLock);
}

bool
store_plan_open(StoreWriter *writer)
{
	StorePlan *plan = store_plan_find(RelationGetRelid(writer->table));
	bool known = plan != NULL && plan->valid;

	writer->plan = NULL;
	if (plan == NULL || (!known && !store_plan_keep(plan, writer->table)))
		return false;
	if (known)
		store_plan_open_indexes(plan);
	plan->busy = true;
	plan->nest_level = GetCurrentTransactionNestLevel();
	plan->result->ri_RelationDesc = writer->table;
	writer->plan = plan;
	writer->estate = plan->estate;
	writer->result = plan->result;
	writer->slot = plan->slot;
	return true;
}

void
store_plan_close(StoreWriter *writer)
{
	StorePlan *plan = writer->plan;

	ExecClearTuple(plan->slot);
	for (int i = 0; i < plan->result->ri_NumIndices; i++)
		index_close(plan->result->ri_IndexRelationDescs[i], RowExclusiveLock);
	plan->result->ri_RelationDesc = NULL;
	plan->busy = false;
}

void
store_plans_at_abort(int nest_level)
{
	for (int i = 0; i < STORE_PLANS; i++)
	{
		StorePlan *plan = &store_plans[i];

		if (!plan->busy || plan->nest_level < nest_level)
			continue;
		plan->busy = false;
		plan->valid = false;
	}
}
