/*
 * batch.h
 *		Accepting many events at once.
 */
#ifndef POLL_TALLY_BATCH_H
#define POLL_TALLY_BATCH_H

#include "event.h"
#include "receipt.h"

typedef enum BatchMode
{
	BATCH_EACH,           /* every event has a receipt of its own */
	BATCH_ALL_OR_NOTHING, /* a refusal is raised, with the event's place */
	BATCH_OR_RAISE        /* a refusal is raised, as for a single event */
} BatchMode;

/*
 * Judge events as if one after the other, in array order, and fill in their
 * receipts.  What a receipt points to lives in the current context.
 *
 * The events and all that they point to have to outlive the call.  Raises what
 * accept_judge raises; nothing of the batch remains then.
 */
extern void batch_accept(Event *events, int count, BatchMode mode,
						 Receipt *receipts);

#endif /* POLL_TALLY_BATCH_H */
