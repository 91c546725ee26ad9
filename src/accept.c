/*
 * accept.c
 *		Accepting an event: the judgement, in the order of DESIGN section 4.
 *
 * Invariant: an outcome is answered only when no twin of the event is in flight.
 * The first look-up of the id awaits an owner in flight; a refusal is answered
 * only after the id was looked up once more; and the unique indexes arbitrate
 * what comes between.  Whenever a twin appears, judging starts over at row 1.
 *
 * Nothing is written, no lane is taken and no transaction id is assigned before
 * the event is known to be new.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/async.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "accept.h"
#include "exact.h"
#include "fault.h"
#include "key.h"
#include "ledger.h"
#include "ledger_stage.h"
#include "pending.h"
#include "plant.h"
#include "poll.h"
#include "settings.h"
#include "stats.h"
#include "json_body.h"
#include "validate.h"

/* What judging an event comes to. */
typedef enum AcceptVerdict
{
	ACCEPT_DONE,      /* the receipt holds the outcome */
	ACCEPT_GO_ON,     /* nothing against the event so far */
	ACCEPT_ALL_LANES, /* all lanes of the poll are needed to judge */
	ACCEPT_OVERFLOW,  /* a fault, for the count of the choice in the receipt's
					   * detail; raised once no twin is in flight */
	ACCEPT_ANEW       /* something moved meanwhile: start over */
} AcceptVerdict;

static AcceptVerdict
accept_outcome(Receipt *receipt, Outcome outcome, char *detail)
{
	receipt->outcome = outcome;
	receipt->detail = detail;
	return ACCEPT_DONE;
}

/* Row 2: a known id is compared with what was stored. */
static AcceptVerdict
accept_known(const Event *event, Receipt *receipt)
{
	LedgerEntry entry;
	LedgerEntry retraction;
	Poll poll;
	int32 poll_id;

	if (!ledger_find(event->event_id, &entry))
		return ACCEPT_GO_ON;
	if (entry.retracts != NULL)
	{
		receipt->differs = DIFFERS_KIND;
		return accept_outcome(receipt, OUTCOME_CONFLICT,
							  pstrdup("The id is that of a retraction."));
	}
	poll_id = poll_find(event->poll, &poll) ? poll.poll_id : 0;
	receipt->differs = ledger_compare(&entry, poll_id, event);
	if (receipt->differs != 0)
		return accept_outcome(receipt, OUTCOME_CONFLICT, NULL);

	receipt->stored = true;
	receipt->position = entry.position;
	receipt->attempt = entry.attempt;
	receipt->accepted_at = entry.accepted_at;
	if (!ledger_find_retraction(event->event_id, &retraction))
		return accept_outcome(receipt, OUTCOME_DUPLICATE, NULL);
	return accept_outcome(receipt, OUTCOME_DUPLICATE,
						  psprintf("The event was retracted by \"%s\".",
								   text_to_cstring(retraction.event_id)));
}

/* Row 3: does the source coordinate belong to another event? */
static AcceptVerdict
accept_source(const Event *event, Receipt *receipt)
{
	text *owner;

	if (event->source == NULL)
		return ACCEPT_GO_ON;
	owner = ledger_find_source(event->source, event->source_partition,
							   event->source_offset);
	if (owner == NULL)
		return ACCEPT_GO_ON;
	if (event_text_equal(owner, event->event_id))
		return ACCEPT_ANEW;
	return accept_outcome(
		receipt, OUTCOME_SOURCE_CONFLICT,
		psprintf("The source coordinate belongs to event \"%s\".",
				 text_to_cstring(owner)));
}

/* Under "latest": the effect of replacing the principal's current vote. */
static AcceptVerdict
accept_replacement(const Event *event, const LedgerEntry *replaced,
				   LedgerEntry *entry, Receipt *receipt)
{
	TallyEntry misfit;

	if (PLANT(REPLACED_NOT_SUBTRACTED))
		return ACCEPT_GO_ON;
	entry->effect =
		tally_subtract_if_fits(event->votes, replaced->votes, &misfit);
	if (entry->effect != NULL)
		return ACCEPT_GO_ON;
	receipt->detail = pnstrdup(misfit.choice, misfit.length);
	return ACCEPT_OVERFLOW;
}

/* Row 11: the principal has none left. */
static AcceptVerdict
accept_no_attempt(const Poll *poll, const Event *event, const LedgerEntry *tail,
				  Receipt *receipt)
{
	const text *last =
		ledger_last_attempt(poll->poll_id, event->principal, tail);

	if (last == NULL)
		return ACCEPT_ANEW;
	return accept_outcome(
		receipt, OUTCOME_ALREADY_RESPONDED,
		psprintf("The principal's last attempt is event \"%s\".",
				 text_to_cstring(last)));
}

/*
 * Row 11: has the principal an attempt left?  Fills in what the entry continues
 * of the principal's chain, and under "latest" the effect of the replacement.
 */
static AcceptVerdict
accept_principal(const Poll *poll, const Event *event, LedgerEntry *entry,
				 Receipt *receipt)
{
	LedgerEntry tail = {0};
	AcceptVerdict verdict = ACCEPT_GO_ON;
	bool exhausted;

	if (event->principal == NULL)
		return ACCEPT_GO_ON;
	if (ledger_find_tail(poll->poll_id, event->principal,
						 poll->counting == COUNTING_ONCE, &tail))
	{
		exhausted = poll->max_attempts > 0 &&
					tail.attempt - tail.granted - PLANT(ATTEMPT_TOO_MANY) >=
						poll->max_attempts;
		if (exhausted || tail.barred)
			return accept_no_attempt(poll, event, &tail, receipt);
		if (poll->counting == COUNTING_LATEST && tail.retracts == NULL)
			verdict = accept_replacement(event, &tail, entry, receipt);
	}
	entry->link = ledger_next_link(&tail);
	entry->attempt = tail.attempt + 1;
	entry->granted = tail.granted;
	return verdict;
}

/* Rows 3 to 11: all that can be judged without a lane. */
static AcceptVerdict
accept_judge_rules(const Event *event, Poll *poll, LedgerEntry *entry,
				   Receipt *receipt)
{
	AcceptVerdict verdict = accept_source(event, receipt);

	if (verdict != ACCEPT_GO_ON)
		return verdict;
	if (!poll_find(event->poll, poll))
		return accept_outcome(receipt, OUTCOME_UNKNOWN_POLL,
							  pstrdup("There is no poll of this name."));
	if (!poll_allows(poll, event, GetCurrentTimestamp(), receipt))
		return poll_deadline_may_move(poll, receipt) ? ACCEPT_ANEW
													 : ACCEPT_DONE;
	return accept_principal(poll, event, entry, receipt);
}

/* Row 12: has the count room for the effect? */
static AcceptVerdict
accept_judge_counts(const Poll *poll, LaneHold *hold, const LedgerEntry *entry,
					Receipt *receipt)
{
	char *choice;

	switch (exact_judge(poll, hold, entry->effect, &choice))
	{
		case EXACT_LACKS_LANES:
			return ACCEPT_ALL_LANES;
		case EXACT_OVERFLOWS:
			receipt->detail = choice;
			return ACCEPT_OVERFLOW;
		case EXACT_BEYOND_LIMITS:
			return accept_outcome(receipt, OUTCOME_LIMIT_REACHED,
								  poll_limit_detail(poll, choice));
		default:
			return ACCEPT_GO_ON;
	}
}

/* Row 12, and under the lane once more rows 6 and 7. */
static AcceptVerdict
accept_judge_lane(const Event *event, Poll *poll, LaneHold *hold,
				  LedgerEntry *entry, Receipt *receipt)
{
	if (!poll_find(event->poll, poll) || poll->poll_id != hold->poll_id)
		return ACCEPT_ANEW;
	entry->accepted_at = PLANT(DEADLINE_ONCE)
							 ? GetCurrentStatementStartTimestamp()
							 : GetCurrentTimestamp();
	if (!PLANT(CLOSE_NOT_CHECKED) &&
		!poll_is_open(poll, entry->accepted_at, receipt))
		return ACCEPT_DONE;
	if (poll->open_choices && !key_may_add(poll, hold, entry->effect))
		return accept_outcome(
			receipt, OUTCOME_LIMIT_REACHED,
			psprintf("The poll would hold more than %d choices, "
					 "which is poll_tally.max_keys.",
					 settings_max_keys));
	return accept_judge_counts(poll, hold, entry, receipt);
}

/* Enter the event into the ledger and count it. */
static AcceptVerdict
accept_enter(const Event *event, LaneHold *hold, LedgerEntry *entry,
			 Receipt *receipt)
{
	int64 seq = pending_next_seq(hold);

	FAULT_POINT("accept-before-insert");
	entry->position = position_make(hold->lane, seq);
	if (!ledger_insert(entry, event))
		return ACCEPT_ANEW;
	FAULT_POINT("accept-inserted");
	pending_add(hold, seq, entry->effect);
	if (PLANT(VOTER_NOTIFIES))
		Async_Notify("poll_tally", "");
	FAULT_POINT("accept-counted");
	receipt->stored = true;
	receipt->position = entry->position;
	receipt->attempt = entry->attempt;
	receipt->accepted_at = entry->accepted_at;
	return accept_outcome(receipt, OUTCOME_ACCEPTED, NULL);
}

/* Take a lane, judge under it, and enter the event. */
static AcceptVerdict
accept_under_lane(const Event *event, Poll *poll, LedgerEntry *entry,
				  Receipt *receipt)
{
	bool fresh;
	LaneHold *hold = lane_acquire(poll->poll_id, poll->max_lanes, &fresh);
	AcceptVerdict verdict =
		accept_judge_lane(event, poll, hold, entry, receipt);

	FAULT_POINT("accept-judged");
	if (verdict == ACCEPT_GO_ON)
		verdict = accept_enter(event, hold, entry, receipt);
	if (verdict == ACCEPT_ALL_LANES)
	{
		exact_take_lanes(poll, hold, fresh);
		return ACCEPT_ANEW;
	}
	/* Nothing was written: nobody has to wait for us, whatever comes next. */
	if (fresh &&
		(verdict == ACCEPT_ANEW || receipt->outcome != OUTCOME_ACCEPTED))
		pending_release_lane(hold);
	return verdict;
}

/* Is the verdict that the event may not enter? */
static bool
accept_is_refusal(AcceptVerdict verdict, const Receipt *receipt)
{
	return verdict == ACCEPT_OVERFLOW ||
		   (verdict == ACCEPT_DONE && receipt->outcome != OUTCOME_ACCEPTED);
}

/*
 * Refused under the lane.  While we waited for it, an earlier reason may have come
 * to hold; the first match wins.
 */
static AcceptVerdict
accept_earlier_reason(const Event *event, Receipt *receipt,
					  AcceptVerdict refusal)
{
	LedgerEntry entry = {0};
	AcceptVerdict verdict;
	Receipt earlier;
	Poll poll;

	receipt_init(&earlier, event->event_id);
	verdict = accept_judge_rules(event, &poll, &entry, &earlier);
	if (verdict == ACCEPT_GO_ON)
		return refusal;
	*receipt = earlier;
	return verdict;
}

/* One round of judging, from row 2 on. */
static AcceptVerdict
accept_round(Event *event, Receipt *receipt)
{
	LedgerEntry entry = {0};
	AcceptVerdict verdict;
	Poll poll;

	verdict = accept_known(event, receipt);
	if (verdict != ACCEPT_GO_ON)
		return verdict;

	entry.event_id = unconstify(text *, event->event_id);
	entry.votes = event->votes;
	entry.effect = event->votes;
	entry.principal = unconstify(text *, event->principal);
	entry.has_occurred_at = event->has_occurred_at;
	entry.occurred_at = event->occurred_at;

	verdict = accept_judge_rules(event, &poll, &entry, receipt);
	if (verdict == ACCEPT_GO_ON)
	{
		entry.poll_id = poll.poll_id;
		verdict = accept_under_lane(event, &poll, &entry, receipt);
		if (accept_is_refusal(verdict, receipt))
			verdict = accept_earlier_reason(event, receipt, verdict);
	}
	/* A twin in flight may be about to make this a duplicate. */
	if (accept_is_refusal(verdict, receipt) && !PLANT(TWIN_NOT_AWAITED) &&
		ledger_is_known(event->event_id))
		return ACCEPT_ANEW;
	if (verdict == ACCEPT_OVERFLOW)
		tally_raise_overflow(receipt->detail, (int) strlen(receipt->detail));
	return verdict;
}

void
accept_decide(Event *event, Receipt *receipt)
{
	char *problem = validate_event(event);
	bool trusting;

	receipt_init(receipt, event->event_id);
	if (problem != NULL)
	{
		(void) accept_outcome(receipt, OUTCOME_INVALID, problem);
		return;
	}
	/* A refusal has to rest on the ledger itself. */
	trusting = ledger_stage_trusts();
	while (accept_round(event, receipt) != ACCEPT_DONE ||
		   (ledger_stage_trusts() && receipt->outcome != OUTCOME_ACCEPTED))
	{
		CHECK_FOR_INTERRUPTS();
		(void) ledger_stage_set_trust(false);
		receipt_init(receipt, event->event_id);
	}
	(void) ledger_stage_set_trust(trusting);
}

void
accept_judge(Event *event, Receipt *receipt)
{
	PreventCommandIfReadOnly("accept_event()");
	PreventCommandIfParallelMode("accept_event()");
	accept_decide(event, receipt);
	stats_count_outcome(receipt->outcome);
}

/* The event that the arguments of accept_event describe. */
static void
accept_event_from_args(FunctionCallInfo fcinfo, Event *event)
{
	memset(event, 0, sizeof(Event));
	event->poll = PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0);
	event->event_id = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);
	event->choice = PG_ARGISNULL(2) ? NULL : PG_GETARG_TEXT_PP(2);
	event->principal = PG_ARGISNULL(3) ? NULL : PG_GETARG_TEXT_PP(3);
	event->votes_json = PG_ARGISNULL(4) ? NULL : PG_GETARG_JSONB_P(4);
	event->has_payload = !PG_ARGISNULL(5);
	event->payload = event->has_payload ? PG_GETARG_DATUM(5) : (Datum) 0;
	event->source = PG_ARGISNULL(6) ? NULL : PG_GETARG_TEXT_PP(6);
	event->has_source_partition = !PG_ARGISNULL(7);
	event->source_partition =
		event->has_source_partition ? PG_GETARG_INT32(7) : 0;
	event->has_source_offset = !PG_ARGISNULL(8);
	event->source_offset = event->has_source_offset ? PG_GETARG_INT64(8) : 0;
	event->has_occurred_at = !PG_ARGISNULL(9);
	event->occurred_at = event->has_occurred_at ? PG_GETARG_TIMESTAMPTZ(9) : 0;
}

/*
 * accept_event(poll text, event_id text, choice text, principal text,
 *				votes jsonb, payload jsonb, source text, source_partition int,
 *				source_offset bigint, occurred_at timestamptz) RETURNS receipt
 *
 * Every argument may be NULL.  Raises 25006 in a read-only transaction, 40001
 * above READ COMMITTED for a twin that the snapshot does not see, 22003 when a
 * count would leave bigint; all else is an outcome.
 */
PG_FUNCTION_INFO_V1(accept_event);
Datum
accept_event(PG_FUNCTION_ARGS)
{
	Event event;
	Receipt receipt;

	accept_event_from_args(fcinfo, &event);
	accept_judge(&event, &receipt);
	return receipt_datum(&receipt, fcinfo);
}

/* The same; an outcome other than accepted and duplicate is raised. */
PG_FUNCTION_INFO_V1(accept_event_or_raise);
Datum
accept_event_or_raise(PG_FUNCTION_ARGS)
{
	Event event;
	Receipt receipt;

	accept_event_from_args(fcinfo, &event);
	accept_judge(&event, &receipt);
	receipt_raise_refusal(&receipt);
	return receipt_datum(&receipt, fcinfo);
}

/*
 * accept_json(body text, principal text) RETURNS receipt
 *
 * accept_event for a request body, read strictly: see json_body_read.  What is
 * wrong with the body is the outcome invalid.  The principal is the caller's.
 */
PG_FUNCTION_INFO_V1(accept_json);
Datum
accept_json(PG_FUNCTION_ARGS)
{
	Event event = {0};
	JsonBody body = {0};
	Receipt receipt;
	char *problem;

	PreventCommandIfReadOnly("accept_json()");
	problem = PG_ARGISNULL(0) ? pstrdup("The body is NULL.")
							  : json_body_read(PG_GETARG_TEXT_PP(0), &body);
	if (problem != NULL)
	{
		receipt_init(&receipt, body.event_id);
		(void) accept_outcome(&receipt, OUTCOME_INVALID, problem);
		stats_count_outcome(OUTCOME_INVALID);
		return receipt_datum(&receipt, fcinfo);
	}
	event.poll = body.poll_id;
	event.event_id = body.event_id;
	event.choice = body.candidate_id;
	event.principal = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);
	accept_judge(&event, &receipt);
	return receipt_datum(&receipt, fcinfo);
}
