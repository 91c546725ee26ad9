/*
 * stats.c
 *		Statistics: what happened, counted per database in shared memory.
 *
 * What was answered is counted, whether or not the transaction commits.  A crash
 * loses the counters, and "since" says from when they count.
 *
 * Shared memory holds a slot a database.  Its lock guards which database a slot
 * is for; the counters are atomic and are added to without a lock.  A backend
 * stays in one database, so it looks for its slot once.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/dbcommands.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "stats.h"

/* Databases that are counted; the events of further ones are not. */
#define STATS_DATABASES 128

typedef struct StatsSlot
{
	Oid database; /* InvalidOid: free */
	pg_atomic_uint64 since;
	pg_atomic_uint64 counters[STATS_COUNTERS];
} StatsSlot;

typedef struct StatsShared
{
	LWLock *lock; /* guards the field "database" of every slot */
	StatsSlot slots[STATS_DATABASES];
} StatsShared;

static StatsShared *stats_shared = NULL;
static shmem_request_hook_type stats_next_request_hook = NULL;
static shmem_startup_hook_type stats_next_startup_hook = NULL;

static const char *const stats_names[] = {
	"batches", "lane_waits", "lanes_opened", "publications", "notify_failures"};

static void
stats_request(void)
{
	if (stats_next_request_hook != NULL)
		stats_next_request_hook();
	RequestAddinShmemSpace(sizeof(StatsShared));
	RequestNamedLWLockTranche("poll_tally", 1);
}

static void
stats_startup(void)
{
	bool found;

	if (stats_next_startup_hook != NULL)
		stats_next_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	stats_shared =
		ShmemInitStruct("poll_tally stats", sizeof(StatsShared), &found);
	if (!found)
	{
		memset(stats_shared, 0, sizeof(StatsShared));
		stats_shared->lock = &GetNamedLWLockTranche("poll_tally")->lock;
	}
	LWLockRelease(AddinShmemInitLock);
}

void
stats_register(void)
{
	stats_next_request_hook = shmem_request_hook;
	shmem_request_hook = stats_request;
	stats_next_startup_hook = shmem_startup_hook;
	shmem_startup_hook = stats_startup;
}

static void
stats_reset_slot(StatsSlot *slot)
{
	for (int i = 0; i < STATS_COUNTERS; i++)
		pg_atomic_write_u64(&slot->counters[i], 0);
	pg_atomic_write_u64(&slot->since, (uint64) GetCurrentTimestamp());
}

/* The slot of a database that is gone can be had by another. */
static bool
stats_is_free(const StatsSlot *slot)
{
	char *name;

	if (!OidIsValid(slot->database))
		return true;
	name = get_database_name(slot->database);
	if (name == NULL)
		return true;
	pfree(name);
	return false;
}

/* The slot of this database, taken if need be; NULL when all are taken. */
static StatsSlot *
stats_find_slot(void)
{
	StatsSlot *mine = NULL;

	for (int i = 0; i < STATS_DATABASES && mine == NULL; i++)
		if (stats_shared->slots[i].database == MyDatabaseId)
			mine = &stats_shared->slots[i];
	for (int i = 0; i < STATS_DATABASES && mine == NULL; i++)
		if (stats_is_free(&stats_shared->slots[i]))
		{
			mine = &stats_shared->slots[i];
			stats_reset_slot(mine);
			mine->database = MyDatabaseId;
		}
	return mine;
}

static StatsSlot *
stats_slot(void)
{
	static StatsSlot *slot = NULL;
	static bool looked = false;

	if (looked || stats_shared == NULL || !OidIsValid(MyDatabaseId))
		return slot;
	LWLockAcquire(stats_shared->lock, LW_EXCLUSIVE);
	slot = stats_find_slot();
	LWLockRelease(stats_shared->lock);
	looked = true;
	return slot;
}

void
stats_count_many(StatsCounter counter, uint64 count)
{
	StatsSlot *slot = stats_slot();

	if (slot != NULL)
		pg_atomic_fetch_add_u64(&slot->counters[counter], (int64) count);
}

void
stats_count(StatsCounter counter)
{
	stats_count_many(counter, 1);
}

void
stats_count_outcome(Outcome outcome)
{
	stats_count_many((StatsCounter) outcome, 1);
}

/*
 * stats_counters() RETURNS SETOF (name text, value bigint, since timestamptz)
 *
 * For the view stats.  value and since are NULL where nothing is counted.
 */
PG_FUNCTION_INFO_V1(stats_counters);
Datum
stats_counters(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	StatsSlot *slot = stats_slot();

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < STATS_COUNTERS; i++)
	{
		const char *name = i < STATS_BATCHES ? outcome_name((Outcome) i)
											 : stats_names[i - STATS_BATCHES];
		Datum values[3] = {CStringGetTextDatum(name), 0, 0};
		bool nulls[3] = {false, slot == NULL, slot == NULL};

		if (slot != NULL)
		{
			values[1] =
				Int64GetDatum((int64) pg_atomic_read_u64(&slot->counters[i]));
			values[2] = TimestampTzGetDatum(
				(TimestampTz) pg_atomic_read_u64(&slot->since));
		}
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* reset_stats() RETURNS void: this database's counters start at 0 from now. */
PG_FUNCTION_INFO_V1(reset_stats);
Datum
reset_stats(PG_FUNCTION_ARGS)
{
	StatsSlot *slot = stats_slot();

	if (slot == NULL)
		ereport(
			ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("poll_tally counts no statistics here"),
			 errhint(
				 "Add poll_tally to shared_preload_libraries, and restart the server.")));
	stats_reset_slot(slot);
	PG_RETURN_VOID();
}
