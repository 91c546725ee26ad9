/*
 * publisher_worker.c
 *		The worker that publishes the polls of one database.
 *
 *		looking   no extension: leave, or while a session says that there will
 *				  be one, look again
 *		busy	  a pass: look what is due, publish it in one transaction, then
 *				  close what is overdue, a few polls a transaction; when one of
 *				  these fails, poll by poll, so that one that fails does not hold
 *				  up the others
 *		idle	  sleep until the next poll is due, a commit moves one, or
 *				  PUBLISHER_FALLBACK_MS are over (a COMMIT PREPARED wakes nobody)
 *
 * It leaves when its database is no longer listed, when somebody wants the
 * database for itself, and after a while where databases are served in turn.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "publisher.h"
#include "restore.h"
#include "settings.h"
#include "snapshot.h"
#include "worker.h"

/* The longest sleep. */
#define PUBLISHER_FALLBACK_MS 2000

/* The shortest, so that a busy poll does not keep the worker busy; and a look
 * may not take more than this share of the time. */
#define PUBLISHER_MIN_PAUSE_MS 20
#define PUBLISHER_LOOK_SHARE 10

/* How long a database whose extension is announced is waited for. */
#define PUBLISHER_LOOK_MS 10000

/* How long a database is served before the next, where slots are short. */
#define PUBLISHER_TURN_MS 1000

/* Polls closed in one transaction, which locks all lanes of each. */
#define PUBLISHER_CLOSE_TOGETHER 16

/* In place of a poll's number: all polls of a pass, each tried alone if it fails. */
#define PUBLISHER_TOGETHER (-1)

/* What passes remember; all of it may be lost. */
typedef struct PublisherMemory
{
	SharedSlot *slot;
	bool announced;     /* newest revisions since the start? */
	uint64 unannounced; /* the slot's count of missed ones, when made up for */
	long rest_ms;       /* of the work that was found last */
	PublisherQuiet quiet;
	uint64 moved;       /* of the slot, when last looked */
	TimestampTz looked; /* when */
	List *failing;      /* integers: polls whose failure was logged */
	MemoryContext context;
} PublisherMemory;

static PublisherMemory publisher;

/* Note a failure; it is logged the first time. */
static void
publisher_note_error(int32 poll_id)
{
	MemoryContext before = MemoryContextSwitchTo(publisher.context);
	ErrorData *error = CopyErrorData();

	FlushErrorState();
	AbortCurrentTransaction();
	MemoryContextSwitchTo(TopMemoryContext);
	worker_report_error(&publisher.slot->publisher, error->sqlerrcode,
						error->message);
	/* The NOTIFY queue is full: the next try commits without. */
	if (error->sqlerrcode == ERRCODE_PROGRAM_LIMIT_EXCEEDED)
		snapshot_hold_notify();
	if (poll_id != PUBLISHER_TOGETHER &&
		!list_member_int(publisher.failing, poll_id))
	{
		publisher.failing = lappend_int(publisher.failing, poll_id);
		ereport(
			LOG,
			(errcode(error->sqlerrcode),
			 poll_id == 0
				 ? errmsg("poll_tally could not publish: %s", error->message)
				 : errmsg("poll_tally could not publish poll number %d: %s",
						  poll_id, error->message)));
	}
	MemoryContextSwitchTo(before);
}

static void
publisher_begin(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	/* Whoever wants the database for itself waits for us to be gone. */
	if (!worker_try_database(MyDatabaseId))
		proc_exit(0);
	PushActiveSnapshot(GetTransactionSnapshot());
	MemoryContextSwitchTo(publisher.context);
}

static void
publisher_end(void)
{
	PopActiveSnapshot();
	CommitTransactionCommand();
	MemoryContextSwitchTo(publisher.context);
}

/*
 * One transaction of work.  poll_id is for messages: 0 for none.
 * Returns false, with the transaction rolled back and the error noted, when it
 * failed; a request to stop is no failure and is raised.
 */
static bool
publisher_try(void (*step)(void *), void *arg, int32 poll_id)
{
	volatile bool done = false;

	PG_TRY();
	{
		publisher_begin();
		step(arg);
		publisher_end();
		done = true;
	}
	PG_CATCH();
	{
		publisher_note_error(poll_id);
	}
	PG_END_TRY();
	if (done && publisher.failing != NIL)
		publisher.failing = list_delete_int(publisher.failing, poll_id);
	return done;
}

/*
 * Is the extension there?  Keeps it there until the transaction ends.  Whoever
 * drops it has it locked before its tables; so false, and no wait, means that we
 * cannot end up in a deadlock with him.
 */
static bool
publisher_lock_extension(void)
{
	Oid extension = get_extension_oid("poll_tally", true);

	return OidIsValid(extension) &&
		   compat_try_lock_object(ExtensionRelationId, extension,
								  AccessShareLock) &&
		   get_extension_oid("poll_tally", true) == extension;
}

static void
publisher_step(void *work)
{
	if (publisher_lock_extension())
		publisher_do(work);
}

/* One poll at a time; returns whether all went well. */
static bool
publisher_try_each(const PublisherWork *work)
{
	bool done = true;
	ListCell *cell;

	foreach (cell, work->overdue)
	{
		PublisherWork one = {.overdue = list_make1_int(lfirst_int(cell))};

		done = publisher_try(publisher_step, &one, lfirst_int(cell)) && done;
	}
	foreach (cell, work->due)
	{
		PublisherWork one = {.due = list_make1_int(lfirst_int(cell))};

		done = publisher_try(publisher_step, &one, lfirst_int(cell)) && done;
	}
	return done;
}

/* In one transaction, or else poll by poll; returns whether all went well. */
static bool
publisher_try_part(PublisherWork *part)
{
	bool together = list_length(part->due) + list_length(part->overdue) > 1;

	if (together && publisher.failing == NIL &&
		publisher_try(publisher_step, part, PUBLISHER_TOGETHER))
		return true;
	return publisher_try_each(part);
}

/* What is not due any more was published or closed by another, or dropped. */
static void
publisher_forget_failures(const PublisherWork *work)
{
	ListCell *cell;

	foreach (cell, publisher.failing)
		if (!list_member_int(work->due, lfirst_int(cell)) &&
			!list_member_int(work->overdue, lfirst_int(cell)))
			publisher.failing = foreach_delete_current(publisher.failing, cell);
}

/* Do what was found, in parts, and count how it went. */
static void
publisher_work(const PublisherWork *work)
{
	int overdue = list_length(work->overdue);
	PublisherWork part = {.due = work->due};
	bool done = true;

	publisher_forget_failures(work);
	if (work->due == NIL && overdue == 0)
		return;
	worker_report(&publisher.slot->publisher, WORKER_BUSY);
	publisher.slot->publisher.attempts++;
	if (part.due != NIL)
		done = publisher_try_part(&part);
	for (int i = 0; i < overdue; i++)
	{
		if (i % PUBLISHER_CLOSE_TOGETHER == 0)
			part = (PublisherWork){.due = NIL};
		part.overdue =
			lappend_int(part.overdue, list_nth_int(work->overdue, i));
		if (i == overdue - 1 || (i + 1) % PUBLISHER_CLOSE_TOGETHER == 0)
			done = publisher_try_part(&part) && done;
	}
	if (!done)
		publisher.slot->publisher.failures++;
}

/* What a look found. */
typedef struct PublisherLook
{
	bool installed;   /* is the extension there? */
	bool may_publish; /* is publishing wanted, and may we write? */
	PublisherWork work;
} PublisherLook;

/* Announce what was missed: at the start, and when some were counted since. */
static void
publisher_make_up(void)
{
	uint64 missed =
		pg_atomic_read_u64(&publisher.slot->counters[STATS_NOTIFY_FAILURES]);

	if (publisher.announced && publisher.unannounced == missed)
		return;
	if (!publisher_announce(!publisher.announced))
		return;
	publisher.announced = true;
	publisher.unannounced = missed;
}

/* Say once that the worker holds back, and then that it goes on. */
static void
publisher_report_restore(bool restoring)
{
	static bool reported = false;

	if (restoring != reported)
		ereport(
			LOG,
			(restoring
				 ? errmsg(
					   "poll_tally publishes nothing in database \"%s\" while pg_restore is connected to it",
					   MyBgworkerEntry->bgw_extra)
				 : errmsg("poll_tally publishes in database \"%s\" again",
						  MyBgworkerEntry->bgw_extra)));
	reported = restoring;
}

static void
publisher_look_step(void *arg)
{
	PublisherLook *look = arg;

	look->installed = publisher_lock_extension();
	look->may_publish = look->installed && settings_publish && !XactReadOnly;
	if (!look->may_publish)
		return;
	publisher_make_up();
	publisher_look(&look->work, &publisher.quiet);
	if (look->work.due == NIL && look->work.overdue == NIL)
		return;
	/* What is there may be half of what is coming. */
	look->may_publish = !restore_is_running();
	publisher_report_restore(!look->may_publish);
}

/* How long to sleep after a look that took so long. */
static long
publisher_pause(const PublisherWork *work, double look_ms)
{
	long pause = work->pause_ms < 0
					 ? PUBLISHER_FALLBACK_MS
					 : Min(work->pause_ms, PUBLISHER_FALLBACK_MS);
	long least =
		Max(PUBLISHER_MIN_PAUSE_MS, (long) (look_ms * PUBLISHER_LOOK_SHARE));

	return Max(pause, least);
}

/* A pass; returns how long to sleep.  *installed: is the extension there? */
static long
publisher_pass(bool *installed)
{
	PublisherLook look = {.work = {.pause_ms = -1}};
	instr_time start;
	instr_time end;

	publisher.moved = pg_atomic_read_u64(&publisher.slot->moved);
	INSTR_TIME_SET_CURRENT(start);
	if (!publisher_try(publisher_look_step, &look, 0))
	{
		/* It may have seen that something moved, and then not what. */
		publisher.quiet.since = 0;
		return PUBLISHER_FALLBACK_MS / 2;
	}
	*installed = look.installed;
	if (!look.may_publish)
		return PUBLISHER_FALLBACK_MS / 2;
	INSTR_TIME_SET_CURRENT(end);
	INSTR_TIME_SUBTRACT(end, start);
	publisher_work(&look.work);
	publisher.rest_ms = look.work.rest_ms;
	return publisher_pause(&look.work, INSTR_TIME_GET_MILLISEC(end));
}

/* Sleep; the next commit that moves a poll may end it. */
static void
publisher_sleep(long pause)
{
	long rest = Max(publisher.rest_ms, PUBLISHER_MIN_PAUSE_MS);

	worker_report(&publisher.slot->publisher, WORKER_IDLE);
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);
	if (pause > rest)
	{
		worker_wait(rest);
		pause -= rest;
		publisher.slot->napping = true;
		pg_memory_barrier();
		if (pg_atomic_read_u64(&publisher.slot->moved) != publisher.moved)
			pause = 0;
	}
	if (pause > 0)
		worker_wait(pause);
	publisher.slot->napping = false;
}

static void
publisher_at_exit(int code, Datum arg)
{
	publisher.slot->publisher.pid = 0;
	publisher.slot->publisher.state = WORKER_NONE;
	publisher.slot->publisher_latch = NULL;
	publisher.slot->napping = false;
}

/* Find the database's slot, and say there that we are here. */
static void
publisher_enter(void)
{
	Shared *shared = shared_get();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	publisher.slot = shared_find_slot(MyDatabaseId);
	if (publisher.slot == NULL || publisher.slot->publisher.pid != 0)
	{
		LWLockRelease(shared->lock);
		proc_exit(0);
	}
	publisher.slot->publisher.pid = MyProcPid;
	publisher.slot->publisher.state = WORKER_LOOKING;
	publisher.slot->publisher.heartbeat_at = GetCurrentTimestamp();
	publisher.slot->publisher_latch = MyLatch;
	LWLockRelease(shared->lock);
	before_shmem_exit(publisher_at_exit, (Datum) 0);
	publisher.context = AllocSetContextCreate(
		TopMemoryContext, "poll_tally publisher", ALLOCSET_DEFAULT_SIZES);
}

/* May the worker stay, having found the extension or not, since when? */
static bool
publisher_may_stay(bool installed, TimestampTz found_at, TimestampTz started_at)
{
	TimestampTz now = GetCurrentTimestamp();
	bool named;

	if (!worker_is_listed(MyBgworkerEntry->bgw_extra, &named))
		return false;
	if (shared_get()->crowded &&
		TimestampDifferenceExceeds(started_at, now, PUBLISHER_TURN_MS))
		return false;
	if (installed || named)
		return true;
	if (publisher.slot->wanted &&
		!TimestampDifferenceExceeds(found_at, now, PUBLISHER_LOOK_MS))
		return true;
	publisher.slot->wanted = false;
	return false;
}

void
publisher_worker_main(Datum arg)
{
	const char *role =
		settings_worker_role[0] == '\0' ? NULL : settings_worker_role;
	TimestampTz started_at;
	TimestampTz found_at;
	bool installed = false;
	bool counted = false; /* among the starts that found the extension */

	worker_connect(MyBgworkerEntry->bgw_extra, role);
	publisher_enter();
	started_at = found_at = GetCurrentTimestamp();
	for (;;)
	{
		long pause = publisher_pass(&installed);

		MemoryContextReset(publisher.context);
		if (installed)
		{
			publisher.slot->wanted = true;
			if (!counted)
				publisher.slot->publisher.starts++;
			counted = true;
			found_at = GetCurrentTimestamp();
		}
		if (!publisher_may_stay(installed, found_at, started_at))
			break;
		publisher_sleep(pause);
	}
	proc_exit(0);
}
