/*
 * key.h
 *		Keys: the choices of an open-choice poll, which events make known.
 */
#ifndef POLL_TALLY_KEY_H
#define POLL_TALLY_KEY_H

#include "lane.h"
#include "poll.h"

/*
 * May the choices of the effect that the poll does not know yet be added to it?
 * false when it would then hold more than poll_tally.max_keys.  The caller holds
 * the lane.
 *
 * Keys that concurrent transactions are adding are not seen, so that together
 * they can go beyond the limit by what they add at the same time.
 */
extern bool key_may_add(const Poll *poll, LaneHold *hold, const Tally *effect);

/* Forget what was counted: keys of ours are gone, or out of our sight. */
extern void key_forget(void);

#endif /* POLL_TALLY_KEY_H */
