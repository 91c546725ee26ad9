/*
 * poll_admin.h
 *		Making a poll, adding choices to it, closing and dropping it.
 */
#ifndef POLL_TALLY_POLL_ADMIN_H
#define POLL_TALLY_POLL_ADMIN_H

#include "datatype/timestamp.h"

#include "poll.h"

/* The poll that an argument names; raises P0002 when there is none or NULL. */
extern void poll_admin_require(const text *name, Poll *poll);

/* Raise 25001 above READ COMMITTED, on behalf of the named function. */
extern void poll_admin_require_read_committed(const char *function);

/* Raise 22023 unless publish_every is above zero in every part. */
extern void poll_admin_check_interval(const Interval *every);

/*
 * Mark the poll closed and publish its final snapshot.  The caller holds all of
 * its lanes and is between store_begin_sql and store_end_sql.
 */
extern void poll_admin_close_under_lanes(int32 poll_id);

#endif /* POLL_TALLY_POLL_ADMIN_H */
