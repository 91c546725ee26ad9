/*
 * choice.h
 *		The choices that were given to a poll by name.
 */
#ifndef POLL_TALLY_CHOICE_H
#define POLL_TALLY_CHOICE_H

#include "postgres.h"

/* Has the poll this choice, and are its counts kept in the lane's own row? */
extern bool choice_find(int32 poll_id, const char *choice, int length,
						bool *narrow);

#endif /* POLL_TALLY_CHOICE_H */
