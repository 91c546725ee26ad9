/*
 * batch.c
 *		Accepting many events at once.
 *
 * The events are judged one after the other, each seeing those before it, within
 * one subtransaction.  Invariant: a batch never waits for an id, a principal or
 * a source coordinate while it holds any, nor for a lane but in the order of the
 * polls' numbers.  So batches that overlap, one a transaction, cannot deadlock.
 *
 * Where a single event would wait for a transaction in flight, a batch rolls
 * back what it did so far, waits with nothing in its hands, and judges itself
 * anew.  Where no lane of a poll is free, it does the same, and then takes the
 * lanes of all polls that it met, in order.
 *
 * Two batches could take turns in rolling back.  Each try therefore holds the
 * gate, a lock of the database, shared; a batch that was disturbed takes it
 * exclusively, and is then alone with single events and with batches that are
 * done.  Nobody waits for anything with the gate in hand, so waits for it are
 * short: what a try may have to wait for besides lanes, the mark of exact.c, is
 * made before it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "accept.h"
#include "batch.h"
#include "exact.h"
#include "fault.h"
#include "lane.h"
#include "ledger_stage.h"
#include "poll.h"
#include "stats.h"
#include "store.h"

typedef struct Batch
{
	Event *events;
	Receipt *receipts;
	int count;
	BatchMode mode;
	MemoryContext result_context; /* of what receipts point to */
	MemoryContext try_context;    /* of one try; reset before each */

	List *polls;    /* integers: polls whose lanes are taken first, ascending */
	List *whole;    /* integers: those of them of which all lanes are taken */
	bool disturbed; /* did a try roll back? */
	bool trusting;  /* are the events believed to be new? */
} Batch;

/*
 * Most batches bring nothing but new events; to look each of them up before the
 * indexes look again would be work done twice.  So a batch trusts its events
 * until one turns out to be none that may enter, and is then judged anew, looking
 * them up, as are the next batches of this session.
 *
 * A repeat that is taken for new can also make the judgement raise: it takes up
 * room below a limit, or does not fit.  So what is raised to a batch that trusts
 * is no verdict yet.
 */
#define BATCH_WARY 16
static int batch_wary = 0;

/* Has the batch met events that an index would have had to refuse? */
static bool
batch_met_repeats(const Batch *batch)
{
	for (int i = 0; i < batch->count; i++)
		switch (batch->receipts[i].outcome)
		{
			case OUTCOME_DUPLICATE:
			case OUTCOME_CONFLICT:
			case OUTCOME_SOURCE_CONFLICT:
			case OUTCOME_ALREADY_RESPONDED:
				return true;
			default:
				break;
		}
	return false;
}

/* Another owner came first, or was there: the next batches had better look. */
static void
batch_lose_trust(Batch *batch)
{
	batch->disturbed = !batch->trusting;
	batch->trusting = false;
	batch_wary = BATCH_WARY;
}

static void
batch_learn(const Batch *batch)
{
	if (batch_met_repeats(batch))
		batch_wary = BATCH_WARY;
	else if (batch_wary > 0)
		batch_wary--;
}

/* Raise the refusal of the event at index, unless it was a success. */
static void
batch_raise_refusal(const Batch *batch, int index)
{
	Receipt *receipt = &batch->receipts[index];

	if (batch->mode == BATCH_EACH || receipt->outcome == OUTCOME_ACCEPTED ||
		receipt->outcome == OUTCOME_DUPLICATE)
		return;
	if (batch->mode == BATCH_ALL_OR_NOTHING)
		receipt->detail =
			psprintf("ord %d: %s", index + 1, receipt_sentence(receipt));
	/* Of a batch that trusts, it is in doubt: see batch_is_in_doubt. */
	if (!batch->trusting)
		stats_count_outcome(receipt->outcome);
	receipt_raise_refusal(receipt);
}

/* All lanes of a poll, and the mark that asks for them, which may wait as well. */
static void
batch_take_whole(const Poll *poll)
{
	lane_acquire_all(poll->poll_id, poll->max_lanes);
	if (!poll->exact)
		exact_mark(poll->poll_id);
}

/* Lock the polls that an earlier try met, in ascending order. */
static void
batch_take_lanes(const Batch *batch)
{
	ListCell *cell;

	foreach (cell, batch->polls)
	{
		Poll poll;
		bool fresh;
		char *name = poll_name(lfirst_int(cell));

		if (name == NULL || !poll_find(cstring_to_text(name), &poll) ||
			poll.poll_id != lfirst_int(cell))
			continue;
		if (list_member_int(batch->whole, poll.poll_id))
			batch_take_whole(&poll);
		(void) lane_acquire(poll.poll_id, poll.max_lanes, &fresh);
	}
}

/* Judge every event, each in a context that is reset after it. */
static void
batch_judge(Batch *batch)
{
	MemoryContext scratch = AllocSetContextCreate(
		CurrentMemoryContext, "poll_tally event", ALLOCSET_DEFAULT_SIZES);

	for (int i = 0; i < batch->count; i++)
	{
		MemoryContext before = MemoryContextSwitchTo(scratch);
		Receipt *receipt = &batch->receipts[i];

		CHECK_FOR_INTERRUPTS();
		FAULT_POINT("batch-event");
		accept_decide(&batch->events[i], receipt);
		batch_raise_refusal(batch, i);
		if (receipt->detail != NULL)
			receipt->detail =
				MemoryContextStrdup(batch->result_context, receipt->detail);
		MemoryContextSwitchTo(before);
		MemoryContextReset(scratch);
	}
	MemoryContextDelete(scratch);
}

/* One try: may wait for lanes and for the gate, in that order, and no more. */
static void
batch_try(Batch *batch, StoreWait *wait)
{
	batch_take_lanes(batch);
	FAULT_POINT("batch-lanes-taken");
	lane_lock_gate(batch->disturbed);
	store_wait_instead(wait);
	(void) store_session_begin(batch->try_context);
	poll_remember(batch->try_context);
	ledger_stage_begin(batch->try_context, batch->trusting);
	batch_judge(batch);
	FAULT_POINT("batch-judged");
	ledger_stage_end();
	FAULT_POINT("batch-written");
	poll_remember(NULL);
	store_session_end();
	store_wait_instead(NULL);
	lane_unlock_gate(batch->disturbed);
}

/* Remember the polls whose lanes the failed try held, and the one it lacked. */
static void
batch_remember_polls(Batch *batch, const StoreWait *wait)
{
	MemoryContext before = MemoryContextSwitchTo(batch->result_context);

	batch->polls = lane_list_held(batch->polls);
	batch->polls = list_append_unique_int(batch->polls, wait->poll_id);
	list_sort(batch->polls, list_int_cmp);
	if (wait->all_lanes)
		batch->whole = list_append_unique_int(batch->whole, wait->poll_id);
	MemoryContextSwitchTo(before);
}

/* Can the error come of events that are believed to be new and are not? */
static bool
batch_is_in_doubt(const Batch *batch, const ErrorData *error)
{
	switch (ERRCODE_TO_CATEGORY(error->sqlerrcode))
	{
		case ERRCODE_INSUFFICIENT_RESOURCES:
		case ERRCODE_OPERATOR_INTERVENTION:
		case ERRCODE_SYSTEM_ERROR:
		case ERRCODE_INTERNAL_ERROR:
			return false;
		default:
			return batch->trusting &&
				   error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
				   error->sqlerrcode != ERRCODE_T_R_DEADLOCK_DETECTED;
	}
}

/*
 * After an error: roll the try back, and raise unless it was about waiting, or
 * is in doubt; then it is raised again if it is right.
 */
static void
batch_roll_back(Batch *batch, StoreWait *wait)
{
	ErrorData *error = CopyErrorData();

	FlushErrorState();
	if (wait->kind == STORE_WAIT_NONE && batch_is_in_doubt(batch, error))
		wait->kind = STORE_WAIT_RETRY;
	if (wait->kind == STORE_WAIT_LANE)
		batch_remember_polls(batch, wait);
	RollbackAndReleaseCurrentSubTransaction();
	if (wait->kind == STORE_WAIT_NONE)
		ReThrowError(error);
	FreeErrorData(error);
}

/*
 * Run one try in a subtransaction.  Returns false, with all of it rolled back,
 * when it would have had to wait; *wait says for what.
 */
static bool
batch_run_try(Batch *batch, StoreWait *wait)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool done = false;

	memset(wait, 0, sizeof(StoreWait));
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		batch_try(batch, wait);
		ReleaseCurrentSubTransaction();
		done = true;
	}
	PG_CATCH();
	{
		store_wait_instead(NULL);
		store_session_drop();
		ledger_stage_drop();
		poll_remember(NULL);
		MemoryContextSwitchTo(context);
		batch_roll_back(batch, wait);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return done;
}

void
batch_accept(Event *events, int count, BatchMode mode, Receipt *receipts)
{
	Batch batch = {.events = events,
				   .receipts = receipts,
				   .count = count,
				   .mode = mode,
				   .result_context = CurrentMemoryContext};
	StoreWait wait;

	batch.try_context = AllocSetContextCreate(
		CurrentMemoryContext, "poll_tally batch", ALLOCSET_DEFAULT_SIZES);
	batch.trusting = batch_wary == 0;
	while (!batch_run_try(&batch, &wait))
	{
		if (wait.kind != STORE_WAIT_LANE)
			batch_lose_trust(&batch);
		MemoryContextReset(batch.try_context);
		FAULT_POINT("batch-waits");
		store_wait(&wait);
	}
	FAULT_POINT("batch-done");
	batch_learn(&batch);
	MemoryContextDelete(batch.try_context);
	for (int i = 0; i < count; i++)
		stats_count_outcome(receipts[i].outcome);
	stats_count(STATS_BATCHES);
}
