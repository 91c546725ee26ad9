/*
 * epoch.h
 *		Epochs: text that changes whenever revisions could run backwards.
 */
#ifndef POLL_TALLY_EPOCH_H
#define POLL_TALLY_EPOCH_H

#include "postgres.h"

/* The epoch of a poll, palloc'd; the same on a primary and its standbys. */
extern char *epoch_of_poll(int32 poll_id);

#endif /* POLL_TALLY_EPOCH_H */
