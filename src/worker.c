/*
 * worker.c
 *		What the background workers have in common, and the view of them.
 *
 * A worker keeps nothing between two passes that it could not lose, so each can
 * be killed at any time.
 */
#include "postgres.h"

#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "compat.h"
#include "poll_tally.h"
#include "settings.h"
#include "worker.h"

static const char *const worker_states[] = {[WORKER_NONE] = "none",
											[WORKER_STARTED] = "starting",
											[WORKER_LOOKING] = "looking",
											[WORKER_IDLE] = "idle",
											[WORKER_BUSY] = "busy"};

void
worker_fill(BackgroundWorker *worker, const char *name, const char *function)
{
	memset(worker, 0, sizeof(BackgroundWorker));
	worker->bgw_flags =
		BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	snprintf(worker->bgw_library_name, sizeof(worker->bgw_library_name),
			 "poll_tally");
	snprintf(worker->bgw_function_name, sizeof(worker->bgw_function_name), "%s",
			 function);
	snprintf(worker->bgw_name, BGW_MAXLEN, "%s", name);
	snprintf(worker->bgw_type, BGW_MAXLEN, "%s", name);
}

void
worker_connect(const char *database, const char *role)
{
	static const char *const timeouts[] = {"statement_timeout", "lock_timeout",
										   COMPAT_TRANSACTION_TIMEOUTS};

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	/*
	 * Whatever database and role say: a snapshot older than the lanes would leave
	 * out what was counted while the worker took them.
	 */
	SetConfigOption("default_transaction_isolation", "read committed",
					PGC_SUSET, PGC_S_OVERRIDE);
	for (int i = 0; i < lengthof(timeouts); i++)
		SetConfigOption(timeouts[i], "0", PGC_SUSET, PGC_S_OVERRIDE);
	BackgroundWorkerInitializeConnection(database, role, 0);
}

void
worker_wait(long timeout_ms)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 timeout_ms, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

bool
worker_try_database(Oid database)
{
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, database, 0);
	return LockAcquire(&tag, RowExclusiveLock, false, true) !=
		   LOCKACQUIRE_NOT_AVAIL;
}

bool
worker_is_listed(const char *database, bool *named)
{
	char *copy = pstrdup(settings_databases);
	bool listed = false;
	List *names;
	ListCell *cell;

	*named = false;
	/* The setting's check has split it before. */
	(void) SplitIdentifierString(copy, ',', &names);
	foreach (cell, names)
	{
		*named = *named || strcmp(lfirst(cell), database) == 0;
		listed = listed || strcmp(lfirst(cell), "*") == 0;
	}
	list_free(names);
	pfree(copy);
	return listed || *named;
}

void
worker_report(WorkerInfo *info, WorkerState state)
{
	Shared *shared = shared_get();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	info->state = state;
	info->heartbeat_at = GetCurrentTimestamp();
	LWLockRelease(shared->lock);
}

void
worker_report_error(WorkerInfo *info, int sqlerrcode, const char *message)
{
	Shared *shared = shared_get();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	strlcpy(info->last_error, message, SHARED_ERROR_LENGTH);
	strlcpy(info->last_sqlstate, unpack_sql_state(sqlerrcode),
			sizeof(info->last_sqlstate));
	LWLockRelease(shared->lock);
}

#define WORKERS_COLUMNS 10

static void
worker_put(ReturnSetInfo *result, const WorkerInfo *info, const char *database,
		   const char *kind)
{
	Datum values[WORKERS_COLUMNS] = {0};
	bool nulls[WORKERS_COLUMNS] = {0};

	values[0] = Int32GetDatum(info->pid);
	nulls[0] = info->pid == 0;
	nulls[1] = database == NULL;
	values[1] = nulls[1] ? (Datum) 0 : CStringGetTextDatum(database);
	values[2] = CStringGetTextDatum(kind);
	values[3] = CStringGetTextDatum(worker_states[info->state]);
	values[4] = TimestampTzGetDatum(info->started_at);
	nulls[4] = info->started_at == 0;
	values[5] = TimestampTzGetDatum(info->heartbeat_at);
	nulls[5] = info->heartbeat_at == 0;
	nulls[6] = nulls[7] = info->last_sqlstate[0] == '\0';
	values[6] = CStringGetTextDatum(info->last_error);
	values[7] = CStringGetTextDatum(info->last_sqlstate);
	values[8] = Int64GetDatum(info->starts > 0 ? (int64) info->starts - 1 : 0);
	values[9] = CStringGetTextDatum(POLL_TALLY_VERSION);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * worker_rows() RETURNS SETOF (pid, database, kind, state, started_at,
 *								heartbeat_at, last_error, last_sqlstate, restarts,
 *								library_version)
 *
 * For the view workers: the launcher, and the publisher of each database that
 * has had one.  No row where the library is not preloaded.
 */
PG_FUNCTION_INFO_V1(worker_rows);
Datum
worker_rows(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Shared *shared = shared_get();
	SharedSlot *slots;
	WorkerInfo launcher;

	InitMaterializedSRF(fcinfo, 0);
	if (shared == NULL)
		return (Datum) 0;
	slots = palloc_array(SharedSlot, SHARED_DATABASES);
	LWLockAcquire(shared->lock, LW_SHARED);
	launcher = shared->launcher;
	memcpy(slots, shared->slots, sizeof(shared->slots));
	LWLockRelease(shared->lock);
	if (launcher.starts > 0)
		worker_put(result, &launcher, NULL, "launcher");
	for (int i = 0; i < SHARED_DATABASES; i++)
	{
		SharedSlot *slot = &slots[i];
		char *database = OidIsValid(slot->database)
							 ? get_database_name(slot->database)
							 : NULL;

		if (database != NULL && slot->publisher.starts > 0 && slot->wanted)
			worker_put(result, &slot->publisher, database, "publisher");
	}
	return (Datum) 0;
}

/*
 * publisher_counts(OUT pid int, OUT attempts bigint, OUT failures bigint)
 *
 * Of this database's publisher; NULLs where the library is not preloaded.
 */
PG_FUNCTION_INFO_V1(publisher_counts);
Datum
publisher_counts(PG_FUNCTION_ARGS)
{
	SharedSlot *slot = shared_slot();
	Datum values[3] = {0};
	bool nulls[3] = {slot == NULL, slot == NULL, slot == NULL};
	TupleDesc desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "publisher_counts must return a row");
	if (slot != NULL)
	{
		values[0] = Int32GetDatum(slot->publisher.pid);
		nulls[0] = slot->publisher.pid == 0;
		values[1] = Int64GetDatum((int64) slot->publisher.attempts);
		values[2] = Int64GetDatum((int64) slot->publisher.failures);
	}
	return HeapTupleGetDatum(
		heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}
