/*
 * accept.h
 *		Accepting an event.
 */
#ifndef POLL_TALLY_ACCEPT_H
#define POLL_TALLY_ACCEPT_H

#include "event.h"
#include "receipt.h"

/*
 * Judge one event by DESIGN section 4 and, when accepted, enter it into the
 * ledger and count it.  A total function over events: raises only for faults.
 */
extern void accept_judge(Event *event, Receipt *receipt);

/* The same without a look at whether writing is allowed, and uncounted. */
extern void accept_decide(Event *event, Receipt *receipt);

#endif /* POLL_TALLY_ACCEPT_H */
