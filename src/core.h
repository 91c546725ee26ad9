/*
 * core.h
 *		The first include of a file that compiles outside the server too.
 *
 * Such a file reads what strangers send, so it is fuzzed without a server:
 * test/fuzz.  It may use what PostgreSQL's own code for both sides may (palloc,
 * psprintf, the JSON parser), knows no table and raises no error.
 */
#ifndef POLL_TALLY_CORE_H
#define POLL_TALLY_CORE_H

#ifdef FRONTEND
#include "postgres_fe.h"
#else
#include "postgres.h"
#endif

#endif /* POLL_TALLY_CORE_H */
