/*
 * restore.h
 *		Is a dump being restored into this database?
 */
#ifndef POLL_TALLY_RESTORE_H
#define POLL_TALLY_RESTORE_H

#include "postgres.h"

/*
 * Is there a session of pg_restore in this database, of a role that could be
 * restoring our tables?  In a transaction.
 */
extern bool restore_is_running(void);

#endif /* POLL_TALLY_RESTORE_H */
