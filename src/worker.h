/*
 * worker.h
 *		What the background workers have in common.
 *
 *		launcher.c			one, static, connected to no database
 *		publisher_worker.c	one a database that has the extension
 */
#ifndef POLL_TALLY_WORKER_H
#define POLL_TALLY_WORKER_H

#include "postgres.h"
#include "nodes/pg_list.h"
#include "postmaster/bgworker.h"

#include "shared.h"

/* Register the launcher; only while preloading. */
extern void launcher_register(void);

/* Entry points; found by name in the library. */
extern PGDLLEXPORT void launcher_main(Datum arg);
extern PGDLLEXPORT void publisher_worker_main(Datum arg);

/* Fill in what all our workers share. */
extern void worker_fill(BackgroundWorker *worker, const char *name,
						const char *function);

/* Signals, and the connection: to a database as a role; NULL for neither. */
extern void worker_connect(const char *database, const char *role);

/* Sleep until the latch is set or the time is over; then reload if asked to. */
extern void worker_wait(long timeout_ms);

/*
 * Lock a database against DROP, RENAME, SET TABLESPACE and use as a template
 * until the transaction ends, as a session does when it connects.  Whoever does
 * one of these holds a lock that we would wait for, and waits 5 s for us to be
 * gone: so false means, keep away.
 */
extern bool worker_try_database(Oid database);

/* Is the database to be served at all?  *named: it is listed by its name. */
extern bool worker_is_listed(const char *database, bool *named);

/* Write a worker's state and heartbeat. */
extern void worker_report(WorkerInfo *info, WorkerState state);

/* Write its last error, with the SQLSTATE as the server encodes it. */
extern void worker_report_error(WorkerInfo *info, int sqlerrcode,
								const char *message);

#endif /* POLL_TALLY_WORKER_H */
