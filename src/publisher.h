/*
 * publisher.h
 *		Which polls are due for a snapshot, and publishing them.
 */
#ifndef POLL_TALLY_PUBLISHER_H
#define POLL_TALLY_PUBLISHER_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

/* What the worker finds to do. */
typedef struct PublisherWork
{
	List *due;     /* integers: polls to publish */
	List *overdue; /* integers: polls past their deadline, to close */
	long
		pause_ms; /* until the next of them is due; -1: none will be by itself */
	long rest_ms; /* before that, commits ask for no look; 0: they do */
} PublisherWork;

/* What a look remembers for the next, to spare it work; zeroes to begin with. */
typedef struct PublisherQuiet
{
	Oid table;         /* of the lanes: an extension made anew has another */
	int64 lanes;       /* fingerprint of where they stand */
	int64 polls;       /* fingerprint of their settings */
	TimestampTz since; /* 0: the last look found something */
} PublisherQuiet;

/*
 * The following run in a transaction of the caller, who has no locks.  None
 * waits for a voter or for another publisher.
 */

/* Look what there is to do; the lists live in the current context. */
extern void publisher_look(PublisherWork *work, PublisherQuiet *quiet);

/* Do it: all of it, or what the lists still hold. */
extern void publisher_do(const PublisherWork *work);

/*
 * Announce the newest revisions that were not announced, for lack of room in the
 * NOTIFY queue; with lately: those that were published in the last hour, too.
 * false when there still is no room.
 */
extern bool publisher_announce(bool lately);

#endif /* POLL_TALLY_PUBLISHER_H */
