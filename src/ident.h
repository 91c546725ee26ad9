/*
 * ident.h
 *		The identifier rule: which names of polls, choices, events, principals
 *		and sources are allowed.
 *
 * 1 to 64 visible ASCII characters (0x21 to 0x7E) other than " and \.  The rule
 * is pure: it knows no table, no encoding and no server state.
 */
#ifndef POLL_TALLY_IDENT_H
#define POLL_TALLY_IDENT_H

#include <stdbool.h>

#define IDENT_MAX_LENGTH 64

/* Does the rule hold?  The bytes need not be NUL-terminated. */
extern bool ident_is_valid(const char *bytes, int length);

/*
 * A palloc'd sentence for an error's DETAIL that says what is wrong, or NULL
 * when nothing is; "what" is the noun it speaks of, such as "event id".
 */
extern char *ident_problem(const char *what, const char *bytes, int length);

#endif /* POLL_TALLY_IDENT_H */
