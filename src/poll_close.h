/*
 * poll_close.h
 *		Closing a poll.
 */
#ifndef POLL_TALLY_POLL_CLOSE_H
#define POLL_TALLY_POLL_CLOSE_H

#include "postgres.h"

/*
 * Mark the poll closed and publish its final snapshot.  The caller holds all of
 * its lanes and is between store_begin_sql and store_end_sql.
 */
extern void poll_close_under_lanes(int32 poll_id);

#endif /* POLL_TALLY_POLL_CLOSE_H */
