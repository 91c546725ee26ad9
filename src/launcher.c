/*
 * launcher.c
 *		The launcher: starts a publisher in each database that has the extension.
 *
 *		every LAUNCHER_PAUSE_MS, when a publisher ends, when a session asks:
 *
 *		database named in poll_tally.databases   -> has a publisher, always
 *		"*" is listed, and the database is
 *			not looked into since the start      -> a publisher looks, one at a
 *			                                        time, and leaves if it finds
 *			                                        no extension
 *			wanted by a session that uses it     -> has a publisher
 *		somebody wants the database for itself   -> left alone for now
 *		no background worker slot is free        -> served in turn: publishers
 *			                                        leave after a while
 *
 * It is connected to no database, and takes its publishers with it when it ends.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "worker.h"

#define LAUNCHER_PAUSE_MS 5000

/* Not more than one start of a publisher a database in this time. */
#define LAUNCHER_RESTART_MS 1000

/* A database as the launcher knows it. */
typedef struct Served
{
	Oid database;
	char name[NAMEDATALEN];
	BackgroundWorkerHandle *handle; /* NULL: no publisher runs */
	TimestampTz not_before;         /* of the next start */
	TimestampTz last_start;
	bool exists; /* seen in this pass */
} Served;

/* Of Served *, in TopMemoryContext. */
static List *launcher_served = NIL;

/* Was it said that slots are short? */
static bool launcher_complained = false;

void
launcher_register(void)
{
	BackgroundWorker worker;

	worker_fill(&worker, "poll_tally launcher", "launcher_main");
	worker.bgw_restart_time = 1;
	RegisterBackgroundWorker(&worker);
}

static Served *
launcher_find(Oid database)
{
	MemoryContext before;
	Served *served;
	ListCell *cell;

	foreach (cell, launcher_served)
	{
		served = lfirst(cell);
		if (served->database == database)
			return served;
	}
	before = MemoryContextSwitchTo(TopMemoryContext);
	served = palloc0(sizeof(Served));
	served->database = database;
	launcher_served = lappend(launcher_served, served);
	MemoryContextSwitchTo(before);
	return served;
}

/* See which databases there are to connect to. */
static void
launcher_read_databases(void)
{
	Relation relation = table_open(DatabaseRelationId, AccessShareLock);
	TableScanDesc scan = table_beginscan_catalog(relation, 0, NULL);
	HeapTuple tuple;

	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);
		Served *served;

		if (!form->datallowconn || form->datistemplate)
			continue;
		served = launcher_find(form->oid);
		strlcpy(served->name, NameStr(form->datname), NAMEDATALEN);
		served->exists = true;
	}
	table_endscan(scan);
	table_close(relation, AccessShareLock);
}

/* Has the publisher ended?  Then its database may be served anew. */
static void
launcher_reap(Served *served)
{
	Shared *shared = shared_get();
	SharedSlot *slot;
	pid_t pid;

	if (served->handle == NULL ||
		GetBackgroundWorkerPid(served->handle, &pid) != BGWH_STOPPED)
		return;
	pfree(served->handle);
	served->handle = NULL;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	slot = shared_find_slot(served->database);
	/* One that found its place taken leaves it to whoever has it. */
	if (slot != NULL && slot->publisher.pid == 0)
		slot->publisher.state = WORKER_NONE;
	LWLockRelease(shared->lock);
}

/* Forget the databases that are gone and have no publisher. */
static void
launcher_forget_gone(void)
{
	List *kept = NIL;
	MemoryContext before = MemoryContextSwitchTo(TopMemoryContext);
	ListCell *cell;

	foreach (cell, launcher_served)
	{
		Served *served = lfirst(cell);

		if (served->exists || served->handle != NULL)
			kept = lappend(kept, served);
		else
			pfree(served);
	}
	list_free(launcher_served);
	launcher_served = kept;
	MemoryContextSwitchTo(before);
}

/* Said once: nobody takes a slot away from a database that has one. */
static void
launcher_report_full(const Served *served)
{
	static bool reported = false;

	if (!reported)
		ereport(LOG,
				(errmsg("poll_tally has no publisher for database \"%s\"",
						served->name),
				 errdetail("It serves at most %d databases.", SHARED_DATABASES),
				 errhint("Name those that are to be served in "
						 "poll_tally.databases, and restart the server.")));
	reported = true;
}

/* Should the database have a publisher?  *looking: only to have a look. */
static bool
launcher_wants(const Served *served, bool *looking)
{
	Shared *shared = shared_get();
	bool named;
	bool wanted;
	SharedSlot *slot;

	*looking = false;
	if (!served->exists || !worker_is_listed(served->name, &named))
		return false;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	slot = shared_find_slot(served->database);
	*looking = !named && slot != NULL && !slot->wanted && !slot->looked;
	wanted = slot != NULL && (named || slot->wanted || !slot->looked);
	LWLockRelease(shared->lock);
	if (slot == NULL)
		launcher_report_full(served);
	return wanted;
}

static void
launcher_report_crowded(bool crowded)
{
	shared_get()->crowded = crowded;
	if (crowded && !launcher_complained)
		ereport(
			LOG,
			(errmsg(
				 "poll_tally serves its databases in turn, for lack of background worker slots"),
			 errhint("Raise max_worker_processes.")));
	launcher_complained = crowded;
}

/* Note in the database's slot that a publisher is under way. */
static void
launcher_report_start(const Served *served, TimestampTz now)
{
	Shared *shared = shared_get();
	SharedSlot *slot;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	slot = shared_find_slot(served->database);
	slot->looked = true;
	slot->publisher.state = WORKER_STARTED;
	slot->publisher.started_at = now;
	LWLockRelease(shared->lock);
}

/* Start a publisher; the postmaster tells us when it ends. */
static bool
launcher_start(Served *served, TimestampTz now)
{
	BackgroundWorker worker;
	char *name = psprintf("poll_tally publisher: %s", served->name);
	MemoryContext before;
	bool started;

	worker_fill(&worker, name, "publisher_worker_main");
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_notify_pid = MyProcPid;
	strlcpy(worker.bgw_extra, served->name, BGW_EXTRALEN);
	before = MemoryContextSwitchTo(TopMemoryContext);
	started = RegisterDynamicBackgroundWorker(&worker, &served->handle);
	MemoryContextSwitchTo(before);
	if (!started)
	{
		served->handle = NULL;
		return false;
	}
	served->last_start = now;
	served->not_before = TimestampTzPlusMilliseconds(now, LAUNCHER_RESTART_MS);
	launcher_report_start(served, now);
	return true;
}

/* Those that waited longest come first, where slots are short. */
static int
launcher_compare(const ListCell *a, const ListCell *b)
{
	TimestampTz left = ((Served *) lfirst(a))->last_start;
	TimestampTz right = ((Served *) lfirst(b))->last_start;

	return (left > right) - (left < right);
}

/* Is some publisher having a look only? */
static bool
launcher_is_looking(void)
{
	Shared *shared = shared_get();
	bool looking = false;

	LWLockAcquire(shared->lock, LW_SHARED);
	for (int i = 0; i < SHARED_DATABASES; i++)
	{
		SharedSlot *slot = &shared->slots[i];

		looking = looking || (OidIsValid(slot->database) && !slot->wanted &&
							  (slot->publisher.state == WORKER_STARTED ||
							   slot->publisher.state == WORKER_LOOKING));
	}
	LWLockRelease(shared->lock);
	return looking;
}

/* Start what is missing; returns ms until the next look. */
static long
launcher_start_missing(void)
{
	TimestampTz now = GetCurrentTimestamp();
	long pause = LAUNCHER_PAUSE_MS;
	bool someone_looks = launcher_is_looking();
	bool crowded = false;
	ListCell *cell;

	list_sort(launcher_served, launcher_compare);
	foreach (cell, launcher_served)
	{
		Served *served = lfirst(cell);
		bool looking;

		if (served->handle != NULL || !launcher_wants(served, &looking) ||
			(looking && someone_looks))
			continue;
		if (served->not_before > now)
			pause = Min(
				pause,
				TimestampDifferenceMilliseconds(now, served->not_before) + 1);
		else if (!worker_try_database(served->database))
			pause = Min(pause, LAUNCHER_RESTART_MS);
		else if (!launcher_start(served, now))
			crowded = true;
		else
			someone_looks = someone_looks || looking;
	}
	launcher_report_crowded(crowded);
	return crowded ? Min(pause, LAUNCHER_RESTART_MS) : pause;
}

/* One look at every database, in a transaction of its own. */
static long
launcher_pass(void)
{
	ListCell *cell;
	long pause;

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	worker_report(&shared_get()->launcher, WORKER_BUSY);
	foreach (cell, launcher_served)
	{
		Served *served = lfirst(cell);

		served->exists = false;
		launcher_reap(served);
	}
	launcher_read_databases();
	shared_free_slots();
	launcher_forget_gone();
	pause = launcher_start_missing();
	worker_report(&shared_get()->launcher, WORKER_IDLE);
	PopActiveSnapshot();
	CommitTransactionCommand();
	return pause;
}

/* Publishers that nobody looks after have to end. */
static void
launcher_at_exit(int code, Datum arg)
{
	ListCell *cell;

	shared_get()->launcher.pid = 0;
	shared_get()->launcher.state = WORKER_NONE;
	foreach (cell, launcher_served)
	{
		Served *served = lfirst(cell);

		if (served->handle != NULL)
			TerminateBackgroundWorker(served->handle);
	}
}

static void
launcher_report_self(void)
{
	Shared *shared = shared_get();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->launcher.pid = MyProcPid;
	shared->launcher.started_at = GetCurrentTimestamp();
	shared->launcher.starts++;
	shared->launcher_latch = MyLatch;
	/* A launcher before us may have been taken away in mid-look. */
	for (int i = 0; i < SHARED_DATABASES; i++)
		shared->slots[i].looked = false;
	LWLockRelease(shared->lock);
}

void
launcher_main(Datum arg)
{
	worker_connect(NULL, NULL);
	before_shmem_exit(launcher_at_exit, (Datum) 0);
	launcher_report_self();
	for (;;)
		worker_wait(launcher_pass());
}
