/*
 * worker.c
 *		The background workers: a launcher, and a publisher in each database.
 *
 *		launcher (one, static)
 *			|  every LAUNCHER_PAUSE_MS, and when a publisher ends
 *			|  for each database of poll_tally.databases that exists:
 *			v
 *		publisher (dynamic, one a database)
 *			  no extension?       -> wait
 *			  extension           -> publisher_pass, wait for the shortest interval
 *			  error, cancel, kill -> ends; the launcher starts another
 *			  somebody wants the database for itself (DROP, RENAME, TEMPLATE)
 *			                      -> ends; the launcher keeps away until it is free
 *
 * A publisher keeps nothing between two passes, so any of them can be killed at
 * any time.  Two in one database would not harm: publication rows are locked.
 * The launcher takes its publishers with it when it ends.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "compat.h"
#include "publisher.h"
#include "settings.h"
#include "worker.h"

/* How often the launcher looks after its publishers. */
#define LAUNCHER_PAUSE_MS 5000

/* Not more than one start of a publisher a database in this time. */
#define LAUNCHER_RESTART_MS 1000

/* How often a publisher without work looks whether there is some. */
#define PUBLISHER_IDLE_PAUSE_MS 1000

/* A database that the launcher serves. */
typedef struct Served
{
	char database[NAMEDATALEN];
	BackgroundWorkerHandle *handle; /* NULL: no publisher runs */
	TimestampTz not_before;         /* of the next start */
	bool complained;                /* that no slot was free */
} Served;

PGDLLEXPORT void worker_launcher_main(Datum arg);
PGDLLEXPORT void worker_publisher_main(Datum arg);

/* The databases being served; of Served *, in TopMemoryContext. */
static List *launcher_served = NIL;

static void
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
	snprintf(worker->bgw_type, BGW_MAXLEN, "poll_tally worker");
}

void
worker_register(void)
{
	BackgroundWorker worker;

	worker_fill(&worker, "poll_tally launcher", "worker_launcher_main");
	worker.bgw_restart_time = 1;
	RegisterBackgroundWorker(&worker);
}

static void
worker_reload_if_asked(void)
{
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

static void
worker_wait(long timeout_ms)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 timeout_ms, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	worker_reload_if_asked();
}

/*
 * Lock a database against DROP, RENAME, SET TABLESPACE and use as a template
 * until the transaction ends, as a session does when it connects.  Whoever does
 * one of these holds a lock that we would wait for, and waits 5 s for us to be
 * gone: so false means, keep away.
 */
static bool
worker_try_database(Oid database)
{
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, database, 0);
	return LockAcquire(&tag, RowExclusiveLock, false, true) !=
		   LOCKACQUIRE_NOT_AVAIL;
}

/* The names in poll_tally.databases, in the current context. */
static List *
worker_databases(void)
{
	List *names;

	if (!SplitIdentifierString(pstrdup(settings_databases), ',', &names))
		return NIL;
	return names;
}

static bool
worker_is_listed(const char *database)
{
	ListCell *cell;

	foreach (cell, worker_databases())
		if (strcmp(lfirst(cell), database) == 0)
			return true;
	return false;
}

static Served *
launcher_find(const char *database)
{
	MemoryContext before;
	Served *served;
	ListCell *cell;

	foreach (cell, launcher_served)
	{
		served = lfirst(cell);
		if (strcmp(served->database, database) == 0)
			return served;
	}
	before = MemoryContextSwitchTo(TopMemoryContext);
	served = palloc0(sizeof(Served));
	strlcpy(served->database, database, NAMEDATALEN);
	launcher_served = lappend(launcher_served, served);
	MemoryContextSwitchTo(before);
	return served;
}

/* Start a publisher; the postmaster tells us when it ends. */
static void
launcher_start(Served *served, TimestampTz now)
{
	BackgroundWorker worker;
	char *name = psprintf("poll_tally publisher: %s", served->database);
	MemoryContext before;

	worker_fill(&worker, name, "worker_publisher_main");
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_notify_pid = MyProcPid;
	strlcpy(worker.bgw_extra, served->database, BGW_EXTRALEN);
	served->not_before = TimestampTzPlusMilliseconds(now, LAUNCHER_RESTART_MS);
	before = MemoryContextSwitchTo(TopMemoryContext);
	if (RegisterDynamicBackgroundWorker(&worker, &served->handle))
		served->complained = false;
	else
	{
		served->handle = NULL;
		if (!served->complained)
			ereport(
				LOG,
				(errmsg("no background worker slot is free to publish polls of "
						"database \"%s\"",
						served->database),
				 errhint("Raise max_worker_processes.")));
		served->complained = true;
	}
	MemoryContextSwitchTo(before);
}

/* Has the publisher ended?  Then its database may be served anew. */
static void
launcher_reap(Served *served)
{
	pid_t pid;

	if (served->handle == NULL ||
		GetBackgroundWorkerPid(served->handle, &pid) != BGWH_STOPPED)
		return;
	pfree(served->handle);
	served->handle = NULL;
}

/* One look at every database that is listed; returns ms until the next. */
static long
launcher_pass(void)
{
	TimestampTz now = GetCurrentTimestamp();
	long pause = LAUNCHER_PAUSE_MS;
	ListCell *cell;

	StartTransactionCommand();
	foreach (cell, worker_databases())
	{
		Served *served = launcher_find(lfirst(cell));
		Oid database;

		launcher_reap(served);
		database = get_database_oid(served->database, true);
		if (served->handle != NULL || !OidIsValid(database) ||
			!worker_try_database(database))
			continue;
		if (served->not_before > now)
			pause = Min(
				pause,
				TimestampDifferenceMilliseconds(now, served->not_before) + 1);
		else
			launcher_start(served, now);
	}
	CommitTransactionCommand();
	return pause;
}

/* Publishers that nobody looks after have to end. */
static void
launcher_at_exit(int code, Datum arg)
{
	ListCell *cell;

	foreach (cell, launcher_served)
	{
		Served *served = lfirst(cell);

		if (served->handle != NULL)
			TerminateBackgroundWorker(served->handle);
	}
}

void
worker_launcher_main(Datum arg)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	before_shmem_exit(launcher_at_exit, (Datum) 0);
	for (;;)
		worker_wait(launcher_pass());
}

/* Is the extension installed, and publishing wanted? */
static bool
publisher_has_work(void)
{
	return settings_publish &&
		   OidIsValid(get_extension_oid("poll_tally", true));
}

/* One pass in a transaction of its own; returns ms until the next. */
static long
publisher_transaction(void)
{
	long pause = PUBLISHER_IDLE_PAUSE_MS;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	if (!worker_try_database(MyDatabaseId))
		proc_exit(0);
	PushActiveSnapshot(GetTransactionSnapshot());
	if (publisher_has_work())
	{
		pgstat_report_activity(STATE_RUNNING, "publishing snapshots");
		publisher_pass();
		pause = publisher_pause_ms();
	}
	PopActiveSnapshot();
	CommitTransactionCommand();
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);
	return pause;
}

void
worker_publisher_main(Datum arg)
{
	const char *database = MyBgworkerEntry->bgw_extra;
	const char *role =
		settings_worker_role[0] == '\0' ? NULL : settings_worker_role;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(database, role, 0);
	while (worker_is_listed(database))
		worker_wait(publisher_transaction());
	proc_exit(0);
}
