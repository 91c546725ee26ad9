/*
 * compat.h
 *		What differs between PostgreSQL 15, 16, 17 and 18.
 *
 * The only file that tests PG_VERSION_NUM.  Each section names the difference
 * and gives it one name that the rest of the source uses.
 */
#ifndef POLL_TALLY_COMPAT_H
#define POLL_TALLY_COMPAT_H

#include "core.h"

#include "common/jsonapi.h"
#include "mb/pg_wchar.h"

#if PG_VERSION_NUM < 150000
#error "poll_tally needs PostgreSQL 15 or later"
#endif

/*
 * Semantic actions of the JSON parser return nothing in 15, where only an error
 * stops the parser, and a verdict from 16 on.
 */
#if PG_VERSION_NUM >= 160000
typedef JsonParseErrorType CompatJsonAction;
#define COMPAT_JSON_CONTINUE return JSON_SUCCESS
#define COMPAT_JSON_STOP return JSON_SEM_ACTION_FAILED
#define compat_json_stopped(result) ((result) == JSON_SEM_ACTION_FAILED)
#else
typedef void CompatJsonAction;
#define COMPAT_JSON_CONTINUE return
#define COMPAT_JSON_STOP return
#define compat_json_stopped(result) false
#endif

/*
 * A lexer for text, with escapes decoded: from 17 on its context may be the
 * caller's.
 */
static inline JsonLexContext *
compat_json_lexer(const char *text, int length, int encoding)
{
#if PG_VERSION_NUM >= 170000
	return makeJsonLexContextCstringLen(NULL, text, length, encoding, true);
#else
	return makeJsonLexContextCstringLen(unconstify(char *, text), length,
										encoding, true);
#endif
}

/*
 * What follows is for the server alone.
 */
#ifndef FRONTEND

#include "access/genam.h"
#include "access/tableam.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/inval.h"
#include "utils/snapmgr.h"

/*
 * The macros of varlena values moved out of postgres.h in 16.
 */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/*
 * Lock an object of this database, unless that would mean waiting.  The early
 * minor releases of 15 do not have the server's function for it, and a library
 * that asks for it is not loaded by them.
 */
static inline bool
compat_try_lock_object(Oid class_oid, Oid object_oid, LOCKMODE mode)
{
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, class_oid, object_oid, 0);
	if (LockAcquire(&tag, mode, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	AcceptInvalidationMessages();
	return true;
}

/*
 * Timeouts that can end a transaction from without, as elements of an array: 17 has
 * one more.
 */
#if PG_VERSION_NUM >= 170000
#define COMPAT_TRANSACTION_TIMEOUTS \
	"transaction_timeout", "idle_in_transaction_session_timeout"
#else
#define COMPAT_TRANSACTION_TIMEOUTS "idle_in_transaction_session_timeout"
#endif

/*
 * Set-returning functions: 15.0 knew InitMaterializedSRF by its first name.
 */
#if PG_VERSION_NUM < 150001
#define InitMaterializedSRF SetSingleFuncCall
#endif

/*
 * Soft errors of input functions came with 16.  Before that they are raised.
 */
#if PG_VERSION_NUM >= 160000
#include "nodes/miscnodes.h"
#define compat_errsave(context, ...) errsave(context, __VA_ARGS__)
#define compat_ereturn(context, dummy, ...) ereturn(context, dummy, __VA_ARGS__)
#else
#define compat_errsave(context, ...) \
	do                               \
	{                                \
		(void) (context);            \
		ereport(ERROR, __VA_ARGS__); \
	} while (0)
#define compat_ereturn(context, dummy, ...)   \
	do                                        \
	{                                         \
		compat_errsave(context, __VA_ARGS__); \
		return dummy;                         \
	} while (0)
#endif

/*
 * Index scans carry instrumentation from 18 on.
 */
static inline IndexScanDesc
compat_index_beginscan(Relation table, Relation index, Snapshot snapshot,
					   int nkeys)
{
#if PG_VERSION_NUM >= 180000
	return index_beginscan(table, index, snapshot, NULL, nkeys, 0);
#else
	return index_beginscan(table, index, snapshot, nkeys, 0);
#endif
}

/*
 * Index entries for a new tuple.  With "conflict", a key of an arbiter that is
 * owned already is reported there instead of being raised.
 */
static inline List *
compat_insert_index_tuples(ResultRelInfo *result, TupleTableSlot *slot,
						   EState *estate, bool *conflict, List *arbiters)
{
#if PG_VERSION_NUM >= 160000
	return ExecInsertIndexTuples(result, slot, estate, false, conflict != NULL,
								 conflict, arbiters, false);
#else
	return ExecInsertIndexTuples(result, slot, estate, false, conflict != NULL,
								 conflict, arbiters);
#endif
}

/*
 * Replace a tuple that nobody else can be changing, and its index entries where
 * the new version needs any.  16 tells summarizing indexes apart.
 */
static inline void
compat_update_tuple(ResultRelInfo *result, EState *estate, ItemPointer tid,
					TupleTableSlot *slot)
{
	Relation table = result->ri_RelationDesc;

#if PG_VERSION_NUM >= 160000
	TU_UpdateIndexes update_indexes;

	simple_table_tuple_update(table, tid, slot, SnapshotSelf, &update_indexes);
	if (update_indexes != TU_None)
		list_free(ExecInsertIndexTuples(result, slot, estate, true, false, NULL,
										NIL, update_indexes == TU_Summarizing));
#else
	bool update_indexes;

	simple_table_tuple_update(table, tid, slot, SnapshotSelf, &update_indexes);
	if (update_indexes)
		list_free(ExecInsertIndexTuples(result, slot, estate, true, false, NULL,
										NIL));
#endif
}

#endif /* FRONTEND */

/*
 * What backend number i, from 1 on, says of itself; 16 renamed it.
 */
#if PG_VERSION_NUM >= 160000
#define compat_backend_status(i) pgstat_get_local_beentry_by_index(i)
#else
#define compat_backend_status(i) pgstat_fetch_stat_local_beentry(i)
#endif

#endif /* POLL_TALLY_COMPAT_H */
