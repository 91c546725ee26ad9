/*
 * poll_admin.h
 *		Changing a poll: choices, roll and settings, and dropping it.
 */
#ifndef POLL_TALLY_POLL_ADMIN_H
#define POLL_TALLY_POLL_ADMIN_H

#include "datatype/timestamp.h"

#include "poll.h"

/*
 * Choices whose counts are kept in the lane's own row: the first ones, as long
 * as keys and counts together stay below this many bytes, so that the row stays
 * small enough to be updated in place many times a page.
 */
#define POLL_NARROW_BYTES 1000

/* Raise 22023 for an argument, with a sentence that says why. */
extern void poll_admin_refuse(const char *argument, const char *detail);

/* Raise 22023 unless an argument, or each element, is an identifier; of a noun. */
extern void poll_admin_require_ident(const char *argument, const char *noun,
									 const text *value);

/* The poll that an argument names; raises P0002 when there is none or NULL. */
extern void poll_admin_require(const text *name, Poll *poll);

/*
 * The same, with all of its lanes held.  Whoever held one may have closed and
 * dropped the poll, and made another of its name: then that one is meant.
 */
extern void poll_admin_require_lanes(const text *name, Poll *poll);

/* Raise 25001 above READ COMMITTED, on behalf of the named function. */
extern void poll_admin_require_read_committed(const char *function);

/* Raise 22023 unless publish_every is above zero in every part. */
extern void poll_admin_check_interval(const Interval *every);

/* Raise 22023 unless notify is snapshot or pointer. */
extern void poll_admin_check_notify(const text *notify);

/* Raise 55000 for a poll that is closed, or whose deadline has passed. */
extern void poll_admin_require_open(const text *name, const Poll *poll);

#endif /* POLL_TALLY_POLL_ADMIN_H */
