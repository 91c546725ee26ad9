/*
 * worker.h
 *		The background workers: a launcher, and a publisher in each database.
 */
#ifndef POLL_TALLY_WORKER_H
#define POLL_TALLY_WORKER_H

/* Ask for shared memory and register the launcher; only when preloaded. */
extern void worker_register(void);

#endif /* POLL_TALLY_WORKER_H */
