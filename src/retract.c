/*
 * retract.c
 *		Taking an event back, by a compensating entry of the ledger.
 *
 * A retraction is an entry like any other: it has an id of its own, a lane and a
 * position, and an effect, which is minus what the event counts now.  It takes
 * the next link of the principal's chain, so that it races with a replacement
 * for the same link; and an event is retracted once, by a unique index.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "exact.h"
#include "fault.h"
#include "ledger.h"
#include "pending.h"
#include "plant.h"
#include "poll.h"
#include "stats.h"
#include "validate.h"

typedef struct Retraction
{
	const text *poll;
	const text *event_id;
	const text *retraction_id;
	const text *reason;
	bool may_respond_again;
} Retraction;

/* What judging comes to; see accept.c. */
typedef enum RetractVerdict
{
	RETRACT_DONE,
	RETRACT_GO_ON,
	RETRACT_ALL_LANES,
	RETRACT_OVERFLOW,
	RETRACT_ANEW
} RetractVerdict;

static RetractVerdict
retract_outcome(Receipt *receipt, Outcome outcome, char *detail)
{
	receipt->outcome = outcome;
	receipt->detail = detail;
	return RETRACT_DONE;
}

static char *
retract_problem(const Retraction *retraction)
{
	char *problem = validate_ident("retraction id", retraction->retraction_id);

	if (problem == NULL)
		problem = validate_ident("poll name", retraction->poll);
	if (problem == NULL)
		problem = validate_ident("event id", retraction->event_id);
	return problem;
}

/* A known id is compared with what was stored. */
static RetractVerdict
retract_known(const Retraction *retraction, Receipt *receipt)
{
	LedgerEntry entry;
	Poll poll;

	if (!ledger_find(retraction->retraction_id, &entry))
		return RETRACT_GO_ON;
	if (entry.retracts == NULL)
	{
		receipt->differs = DIFFERS_KIND;
		return retract_outcome(receipt, OUTCOME_CONFLICT,
							   pstrdup("The id is that of an event."));
	}
	if (!poll_find(retraction->poll, &poll) || poll.poll_id != entry.poll_id)
		receipt->differs |= DIFFERS_POLL;
	if (!event_text_equal(entry.retracts, retraction->event_id))
		receipt->differs |= DIFFERS_EVENT_ID;
	if (!event_text_equal(entry.reason, retraction->reason))
		receipt->differs |= DIFFERS_REASON;
	if (entry.may_respond_again != retraction->may_respond_again)
		receipt->differs |= DIFFERS_MAY_RESPOND_AGAIN;
	if (receipt->differs != 0)
		return retract_outcome(receipt, OUTCOME_CONFLICT, NULL);
	receipt->stored = true;
	receipt->position = entry.position;
	receipt->accepted_at = entry.accepted_at;
	return retract_outcome(receipt, OUTCOME_DUPLICATE, NULL);
}

/* The event does not count any more: a later one does. */
static RetractVerdict
retract_replaced(const Poll *poll, const LedgerEntry *event,
				 const LedgerEntry *tail, Receipt *receipt)
{
	const text *last;

	/* Somebody has just retracted it. */
	if (event_text_equal(tail->retracts, event->event_id))
		return RETRACT_ANEW;
	last = ledger_last_attempt(poll->poll_id, event->principal, tail);
	if (last == NULL)
		return RETRACT_ANEW;
	return retract_outcome(
		receipt, OUTCOME_NOTHING_TO_RETRACT,
		psprintf("The event was replaced by \"%s\".", text_to_cstring(last)));
}

/* Continue the principal's chain; under "latest" only its tail counts. */
static RetractVerdict
retract_chain(const Poll *poll, const LedgerEntry *event, LedgerEntry *entry,
			  Receipt *receipt)
{
	LedgerEntry tail;

	if (event->principal == NULL)
		return RETRACT_GO_ON;
	if (!ledger_find_tail(poll->poll_id, event->principal, false, &tail))
		return RETRACT_ANEW;
	if (poll->counting == COUNTING_LATEST &&
		!event_text_equal(tail.event_id, event->event_id))
		return retract_replaced(poll, event, &tail, receipt);
	entry->link = ledger_next_link(&tail);
	entry->attempt = tail.attempt;
	entry->granted = tail.granted + (entry->may_respond_again ? 1 : 0);
	entry->barred = tail.barred || !entry->may_respond_again;
	return RETRACT_GO_ON;
}

/* All that can be judged without a lane; fills in the entry. */
static RetractVerdict
retract_judge(const Retraction *retraction, Poll *poll, LedgerEntry *entry,
			  Receipt *receipt)
{
	RetractVerdict verdict;
	LedgerEntry event;
	LedgerEntry other;

	if (!poll_find(retraction->poll, poll))
		return retract_outcome(receipt, OUTCOME_UNKNOWN_POLL,
							   pstrdup("There is no poll of this name."));
	if (!poll_is_open(poll, GetCurrentTimestamp(), receipt))
		return poll_deadline_may_move(poll, receipt) ? RETRACT_ANEW
													 : RETRACT_DONE;
	if (!ledger_find(retraction->event_id, &event) || event.retracts != NULL ||
		event.poll_id != poll->poll_id)
		return retract_outcome(receipt, OUTCOME_UNKNOWN_EVENT,
							   pstrdup("The poll has no such event."));
	if (ledger_find_retraction(retraction->event_id, &other))
		return retract_outcome(receipt, OUTCOME_NOTHING_TO_RETRACT,
							   psprintf("The event was retracted by \"%s\".",
										text_to_cstring(other.event_id)));
	entry->poll_id = poll->poll_id;
	entry->principal = event.principal;
	verdict = retract_chain(poll, &event, entry, receipt);
	if (verdict == RETRACT_GO_ON)
		entry->effect =
			PLANT(RETRACTION_ADDS) ? event.votes : tally_negate(event.votes);
	return verdict;
}

/* Have the counts room for the effect? */
static RetractVerdict
retract_judge_counts(const Poll *poll, LaneHold *hold, const LedgerEntry *entry,
					 Receipt *receipt)
{
	char *choice;

	switch (exact_judge(poll, hold, entry->effect, &choice))
	{
		case EXACT_LACKS_LANES:
			return RETRACT_ALL_LANES;
		case EXACT_OVERFLOWS:
			receipt->detail = choice;
			return RETRACT_OVERFLOW;
		case EXACT_BEYOND_LIMITS:
			return retract_outcome(receipt, OUTCOME_LIMIT_REACHED,
								   poll_limit_detail(poll, choice));
		default:
			return RETRACT_GO_ON;
	}
}

/* Under the lane: is the poll still open, do the limits hold?  Then enter. */
static RetractVerdict
retract_enter(const Retraction *retraction, Poll *poll, LaneHold *hold,
			  LedgerEntry *entry, Receipt *receipt)
{
	RetractVerdict verdict;
	int64 seq;

	if (!poll_find(retraction->poll, poll) || poll->poll_id != hold->poll_id)
		return RETRACT_ANEW;
	entry->accepted_at = GetCurrentTimestamp();
	if (!poll_is_open(poll, entry->accepted_at, receipt))
		return RETRACT_DONE;
	verdict = retract_judge_counts(poll, hold, entry, receipt);
	if (verdict != RETRACT_GO_ON)
		return verdict;
	seq = pending_next_seq(hold);
	entry->position = position_make(hold->lane, seq);
	if (!ledger_insert(entry, NULL))
		return RETRACT_ANEW;
	FAULT_POINT("retract-inserted");
	pending_add(hold, seq, entry->effect);
	receipt->stored = true;
	receipt->position = entry->position;
	receipt->accepted_at = entry->accepted_at;
	return retract_outcome(receipt, OUTCOME_ACCEPTED, NULL);
}

static RetractVerdict
retract_under_lane(const Retraction *retraction, Poll *poll, LedgerEntry *entry,
				   Receipt *receipt)
{
	bool fresh;
	LaneHold *hold = lane_acquire(poll->poll_id, poll->max_lanes, &fresh);
	RetractVerdict verdict =
		retract_enter(retraction, poll, hold, entry, receipt);

	if (verdict == RETRACT_ALL_LANES)
	{
		exact_take_lanes(poll, hold, fresh);
		return RETRACT_ANEW;
	}
	if (fresh &&
		(verdict == RETRACT_ANEW || receipt->outcome != OUTCOME_ACCEPTED))
		pending_release_lane(hold);
	return verdict;
}

/* Is the verdict that the retraction may not enter? */
static bool
retract_is_refusal(RetractVerdict verdict, const Receipt *receipt)
{
	return verdict == RETRACT_OVERFLOW ||
		   (verdict == RETRACT_DONE && receipt->outcome != OUTCOME_ACCEPTED);
}

/* Refused under the lane; meanwhile an earlier reason may have come to hold. */
static RetractVerdict
retract_earlier_reason(const Retraction *retraction, Receipt *receipt,
					   RetractVerdict refusal)
{
	LedgerEntry entry = {.may_respond_again = retraction->may_respond_again};
	RetractVerdict verdict;
	Receipt earlier;
	Poll poll;

	receipt_init(&earlier, retraction->retraction_id);
	verdict = retract_judge(retraction, &poll, &entry, &earlier);
	if (verdict == RETRACT_GO_ON)
		return refusal;
	*receipt = earlier;
	return verdict;
}

static RetractVerdict
retract_round(const Retraction *retraction, Receipt *receipt)
{
	RetractVerdict verdict = retract_known(retraction, receipt);
	LedgerEntry entry = {0};
	Poll poll;

	if (verdict != RETRACT_GO_ON)
		return verdict;
	entry.event_id = unconstify(text *, retraction->retraction_id);
	entry.votes = tally_build(NULL, 0);
	entry.retracts = unconstify(text *, retraction->event_id);
	entry.reason = unconstify(text *, retraction->reason);
	entry.may_respond_again = retraction->may_respond_again;
	verdict = retract_judge(retraction, &poll, &entry, receipt);
	if (verdict == RETRACT_GO_ON)
	{
		verdict = retract_under_lane(retraction, &poll, &entry, receipt);
		if (retract_is_refusal(verdict, receipt))
			verdict = retract_earlier_reason(retraction, receipt, verdict);
	}
	if (retract_is_refusal(verdict, receipt) &&
		ledger_is_known(retraction->retraction_id))
		return RETRACT_ANEW;
	if (verdict == RETRACT_OVERFLOW)
		tally_raise_overflow(receipt->detail, (int) strlen(receipt->detail));
	return verdict;
}

static void
retract(const Retraction *retraction, Receipt *receipt)
{
	char *problem = retract_problem(retraction);

	receipt_init(receipt, retraction->retraction_id);
	if (problem != NULL)
	{
		(void) retract_outcome(receipt, OUTCOME_INVALID, problem);
		return;
	}
	while (retract_round(retraction, receipt) != RETRACT_DONE)
	{
		CHECK_FOR_INTERRUPTS();
		receipt_init(receipt, retraction->retraction_id);
	}
}

/*
 * retract_event(poll text, event_id text, retraction_id text, reason text,
 *				 may_respond_again boolean) RETURNS receipt
 *
 * The receipt is that of the retraction.  Raises what accept_event raises.
 */
PG_FUNCTION_INFO_V1(retract_event);
Datum
retract_event(PG_FUNCTION_ARGS)
{
	Retraction retraction;
	Receipt receipt;

	PreventCommandIfReadOnly("retract_event()");
	PreventCommandIfParallelMode("retract_event()");
	retraction.poll = PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0);
	retraction.event_id = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);
	retraction.retraction_id = PG_ARGISNULL(2) ? NULL : PG_GETARG_TEXT_PP(2);
	retraction.reason = PG_ARGISNULL(3) ? NULL : PG_GETARG_TEXT_PP(3);
	retraction.may_respond_again = PG_ARGISNULL(4) || PG_GETARG_BOOL(4);
	retract(&retraction, &receipt);
	stats_count_outcome(receipt.outcome);
	return receipt_datum(&receipt, fcinfo);
}
