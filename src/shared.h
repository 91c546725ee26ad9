/*
 * shared.h
 *		What the library keeps in shared memory: a slot a database, and hints.
 *
 * There is none where the library was not preloaded.  A crash loses all of it.
 */
#ifndef POLL_TALLY_SHARED_H
#define POLL_TALLY_SHARED_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/lwlock.h"

#include "stats.h"

/* Databases that have a slot; what happens in further ones is not counted. */
#define SHARED_DATABASES 128

#define SHARED_ERROR_LENGTH 256

/* Places of rows, of polls, choices and lanes: see store_hint.c. */
#define SHARED_HINTS 65536

/* Places to wait for a lane; polls of all databases are spread over them. */
#define SHARED_LANE_WAITS 64

typedef enum WorkerState
{
	WORKER_NONE,    /* no publisher runs */
	WORKER_STARTED, /* registered, not there yet */
	WORKER_LOOKING, /* connected; no extension found so far */
	WORKER_IDLE,    /* nothing to publish, or told not to */
	WORKER_BUSY     /* in a pass */
} WorkerState;

/*
 * A worker as the view "workers" shows it.  Written by the worker itself, and by
 * the launcher while it starts one; guarded by the lock.
 */
typedef struct WorkerInfo
{
	WorkerState state;
	pid_t pid; /* 0: none */
	TimestampTz started_at;
	TimestampTz heartbeat_at;
	char last_error[SHARED_ERROR_LENGTH];
	char last_sqlstate[6];
	uint64 starts;   /* of a publisher: those that found the extension */
	uint64 attempts; /* passes that had something to publish or close */
	uint64 failures; /* those of them that failed, at least in part */
} WorkerInfo;

typedef struct SharedSlot
{
	Oid database; /* InvalidOid: free; guarded by the lock */
	bool
		wanted; /* a session uses the extension here, so a publisher is wanted */
	bool looked; /* the launcher has had a look whether the extension is here */
	WorkerInfo publisher;
	pg_atomic_uint64 moved; /* grows with each commit that moved a poll */
	bool napping; /* the publisher wants to be woken by the next one */
	Latch *publisher_latch;
	pg_atomic_uint64 since; /* when the counters began */
	pg_atomic_uint64 counters[STATS_COUNTERS];
} SharedSlot;

typedef struct Shared
{
	LWLock *lock;
	WorkerInfo launcher;
	Latch *launcher_latch; /* NULL: there is no launcher yet */
	bool crowded;          /* databases have to be served in turn */
	ConditionVariable lane_waits[SHARED_LANE_WAITS];
	SharedSlot slots[SHARED_DATABASES];
	pg_atomic_uint64 hints[SHARED_HINTS]; /* block and offset; 0: none */
} Shared;

/* Ask for the memory; only while preloading. */
extern void shared_register(void);

/* All of it, or NULL. */
extern Shared *shared_get(void);

/*
 * The slot of this backend's database, or NULL.  Tells the launcher, if need be,
 * that the extension is in use here.
 */
extern SharedSlot *shared_slot(void);

/* The slot of any database, taken if need be; the caller has the lock. */
extern SharedSlot *shared_find_slot(Oid database);

/* Free the slots of databases that are gone; in a transaction. */
extern void shared_free_slots(void);

/* A commit of this backend moved a poll: the publisher may have to know. */
extern void shared_note_moved(void);

/* Have the launcher look at the slots. */
extern void shared_wake_launcher(void);

#endif /* POLL_TALLY_SHARED_H */
