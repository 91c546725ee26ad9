/*
 * publisher.h
 *		Which polls are due for a snapshot, and publishing them.
 */
#ifndef POLL_TALLY_PUBLISHER_H
#define POLL_TALLY_PUBLISHER_H

#include "postgres.h"

/*
 * One pass of the worker over the database at hand: publish every poll that is
 * due and close every poll whose deadline has passed and whose lanes are free.
 * Runs in a transaction of the caller; never waits for a voter.
 */
extern void publisher_pass(void);

/* How long the worker may sleep: until the shortest publish_every, in ms. */
extern long publisher_pause_ms(void);

#endif /* POLL_TALLY_PUBLISHER_H */
