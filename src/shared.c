/*
 * shared.c
 *		What the library keeps in shared memory: a slot a database, and hints.
 *
 * The lock guards which database a slot is for and what the workers say of
 * themselves.  Counters are atomic and take no lock.  "wanted" is set and read
 * without: a session that reads a stale "true" is followed by another that does
 * not, and each sets it anew as long as it finds it false.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "shared.h"

static Shared *shared = NULL;
static shmem_request_hook_type shared_next_request_hook = NULL;
static shmem_startup_hook_type shared_next_startup_hook = NULL;

static void
shared_request(void)
{
	if (shared_next_request_hook != NULL)
		shared_next_request_hook();
	RequestAddinShmemSpace(sizeof(Shared));
	RequestNamedLWLockTranche("poll_tally", 1);
}

static void
shared_init_slot(SharedSlot *slot)
{
	pg_atomic_init_u64(&slot->moved, 0);
	pg_atomic_init_u64(&slot->since, 0);
	for (int i = 0; i < STATS_COUNTERS; i++)
		pg_atomic_init_u64(&slot->counters[i], 0);
}

static void
shared_startup(void)
{
	bool found;

	if (shared_next_startup_hook != NULL)
		shared_next_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("poll_tally", sizeof(Shared), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(Shared));
		for (int i = 0; i < SHARED_LANE_WAITS; i++)
			ConditionVariableInit(&shared->lane_waits[i]);
		for (int i = 0; i < SHARED_DATABASES; i++)
			shared_init_slot(&shared->slots[i]);
		for (int i = 0; i < SHARED_HINTS; i++)
			pg_atomic_init_u64(&shared->hints[i], 0);
		shared->lock = &GetNamedLWLockTranche("poll_tally")->lock;
	}
	LWLockRelease(AddinShmemInitLock);
}

void
shared_register(void)
{
	shared_next_request_hook = shmem_request_hook;
	shmem_request_hook = shared_request;
	shared_next_startup_hook = shmem_startup_hook;
	shmem_startup_hook = shared_startup;
}

Shared *
shared_get(void)
{
	return shared;
}

/* Make a slot a database's own. */
static void
shared_take_slot(SharedSlot *slot, Oid database)
{
	memset(&slot->publisher, 0, sizeof(WorkerInfo));
	slot->wanted = false;
	slot->looked = false;
	slot->napping = false;
	slot->publisher_latch = NULL;
	for (int i = 0; i < STATS_COUNTERS; i++)
		pg_atomic_write_u64(&slot->counters[i], 0);
	pg_atomic_write_u64(&slot->moved, 0);
	pg_atomic_write_u64(&slot->since, (uint64) GetCurrentTimestamp());
	slot->database = database;
}

SharedSlot *
shared_find_slot(Oid database)
{
	for (int i = 0; i < SHARED_DATABASES; i++)
		if (shared->slots[i].database == database)
			return &shared->slots[i];
	for (int i = 0; i < SHARED_DATABASES; i++)
		if (!OidIsValid(shared->slots[i].database))
		{
			shared_take_slot(&shared->slots[i], database);
			return &shared->slots[i];
		}
	return NULL;
}

void
shared_free_slots(void)
{
	Oid databases[SHARED_DATABASES];

	LWLockAcquire(shared->lock, LW_SHARED);
	for (int i = 0; i < SHARED_DATABASES; i++)
		databases[i] = shared->slots[i].database;
	LWLockRelease(shared->lock);
	/* Catalogs are not read under the lock. */
	for (int i = 0; i < SHARED_DATABASES; i++)
	{
		if (!OidIsValid(databases[i]) ||
			get_database_name(databases[i]) != NULL)
			continue;
		LWLockAcquire(shared->lock, LW_EXCLUSIVE);
		if (shared->slots[i].database == databases[i])
			shared->slots[i].database = InvalidOid;
		LWLockRelease(shared->lock);
	}
}

SharedSlot *
shared_slot(void)
{
	static SharedSlot *slot = NULL;
	static bool looked = false;

	if (shared == NULL || !OidIsValid(MyDatabaseId))
		return NULL;
	if (!looked)
	{
		LWLockAcquire(shared->lock, LW_EXCLUSIVE);
		slot = shared_find_slot(MyDatabaseId);
		LWLockRelease(shared->lock);
		looked = true;
	}
	if (slot != NULL && !slot->wanted)
	{
		slot->wanted = true;
		shared_wake_launcher();
	}
	return slot;
}

void
shared_note_moved(void)
{
	SharedSlot *slot = shared_slot();

	if (slot == NULL)
		return;
	/* A full barrier: the publisher looks at "moved" after it set "napping". */
	pg_atomic_fetch_add_u64(&slot->moved, 1);
	if (slot->napping)
	{
		/* Read once: the publisher may be leaving. */
		Latch *latch = *(Latch *volatile *) &slot->publisher_latch;

		slot->napping = false;
		if (latch != NULL)
			SetLatch(latch);
	}
}

void
shared_wake_launcher(void)
{
	Latch *latch = shared->launcher_latch;

	/* It lies in shared memory, so a launcher that is gone does no harm. */
	if (latch != NULL)
		SetLatch(latch);
}
