/*
 * poll.c
 *		Polls: their rules, and the judgement of an event by them.
 *
 * A poll's row is read as it is now, whatever the caller's snapshot.  Rules that
 * give a count its meaning never change.  closed_at and closes_at change under
 * all lanes of the poll, so what a holder of a lane reads of them stays true
 * until its transaction ends.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "choice.h"
#include "lane.h"
#include "lane_rows.h"
#include "poll.h"
#include "settings.h"
#include "store.h"

/* How far occurred_at may lie in the future: clocks of senders differ. */
#define POLL_CLOCK_SKEW_US (5 * USECS_PER_MINUTE)

static PollCounting
poll_counting_from_text(const text *counting)
{
	switch (*EVENT_TEXT_BYTES(counting))
	{
		case 'o':
			return COUNTING_ONCE;
		case 'l':
			return COUNTING_LATEST;
		default:
			return COUNTING_EVERY;
	}
}

/* A nullable column, with what NULL stands for. */
static int32
poll_get_int4(Store *store, AttrNumber attribute, int32 otherwise)
{
	bool isnull;
	Datum value = store_get(store, attribute, &isnull);

	return isnull ? otherwise : DatumGetInt32(value);
}

static int64
poll_get_int8(Store *store, AttrNumber attribute, int64 otherwise)
{
	bool isnull;
	Datum value = store_get(store, attribute, &isnull);

	return isnull ? otherwise : DatumGetInt64(value);
}

static void
poll_deform(Store *store, Poll *poll)
{
	text *counting = DatumGetTextPP(store_get_notnull(store, POLL_COUNTING));
	bool no_minimum;
	bool no_maximum;
	bool isnull;

	poll->poll_id = DatumGetInt32(store_get_notnull(store, POLL_POLL_ID));
	poll->counting = poll_counting_from_text(counting);
	poll->max_attempts = poll_get_int4(store, POLL_MAX_ATTEMPTS, 0);
	poll->max_choices =
		DatumGetInt32(store_get_notnull(store, POLL_MAX_CHOICES));
	poll->min_weight = DatumGetInt64(store_get_notnull(store, POLL_MIN_WEIGHT));
	poll->max_weight = DatumGetInt64(store_get_notnull(store, POLL_MAX_WEIGHT));
	poll->open_choices =
		DatumGetBool(store_get_notnull(store, POLL_OPEN_CHOICES));
	poll->restricted = DatumGetBool(store_get_notnull(store, POLL_RESTRICTED));
	poll->hidden =
		DatumGetBool(store_get_notnull(store, POLL_HIDDEN_UNTIL_CLOSE));
	poll->exact = DatumGetBool(store_get_notnull(store, POLL_EXACT));
	poll->max_lanes = DatumGetInt32(store_get_notnull(store, POLL_MAX_LANES));
	(void) store_get(store, POLL_MIN_COUNT, &no_minimum);
	(void) store_get(store, POLL_MAX_COUNT, &no_maximum);
	poll->limited = !no_minimum || !no_maximum;
	poll->min_count = poll_get_int8(store, POLL_MIN_COUNT, PG_INT64_MIN);
	poll->max_count = poll_get_int8(store, POLL_MAX_COUNT, PG_INT64_MAX);
	poll->opens_at = poll_get_int8(store, POLL_OPENS_AT, DT_NOBEGIN);
	poll->closes_at = poll_get_int8(store, POLL_CLOSES_AT, DT_NOEND);
	(void) store_get(store, POLL_CLOSED_AT, &isnull);
	poll->closed = !isnull;
	if (poll->open_choices)
		poll->version = store_version(store);
}

typedef struct PollMemory
{
	CountKey name; /* poll_id is not used */
	Poll poll;
	uint64 serial; /* of the hold of a lane under which it was read */
	uint32 hash;
	char status;
} PollMemory;

#define SH_PREFIX poll_memory
#define SH_ELEMENT_TYPE PollMemory
#define SH_KEY_TYPE CountKey
#define SH_KEY name
#define SH_HASH_KEY(table, key) count_key_hash(key)
#define SH_EQUAL(table, a, b) count_key_equal(a, b)
#define SH_SCOPE static inline
#define SH_STORE_HASH
#define SH_GET_HASH(table, entry) (entry)->hash
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static poll_memory_hash *poll_memory = NULL;

void
poll_remember(MemoryContext context)
{
	poll_memory =
		context != NULL ? poll_memory_create(context, 16, NULL) : NULL;
}

static bool
poll_read(const text *name, Poll *poll)
{
	static const AttrNumber columns[] = {POLL_POLL};
	Store store;
	StoreKey key;
	bool found;

	store_open(&store, "poll", "poll_poll_key", AccessShareLock);
	store_key_init(&key);
	store_key_text(&key, name);
	store_key_hinted(&key, columns);
	found = store_find_current(&store, &key);
	if (found)
		poll_deform(&store, poll);
	store_close(&store);
	return found;
}

/* Remember a poll under its name, as it is under the hold of a lane. */
static void
poll_memorize(CountKey key, const Poll *poll, const LaneHold *hold)
{
	PollMemory *memory;
	bool found;

	memory = poll_memory_insert(poll_memory, key, &found);
	if (!found)
	{
		char *name = MemoryContextAlloc(poll_memory->ctx, key.length);

		memcpy(name, key.choice, key.length);
		memory->name.choice = name;
	}
	memory->poll = *poll;
	memory->serial = hold->serial;
}

/*
 * What is remembered of a name, or NULL.  When the lane was given back, the poll
 * could be closed meanwhile, also if a lane is held again.
 */
static const Poll *
poll_recall(CountKey key)
{
	PollMemory *memory =
		poll_memory != NULL ? poll_memory_lookup(poll_memory, key) : NULL;
	LaneHold *hold = memory != NULL ? lane_held(memory->poll.poll_id) : NULL;

	if (hold == NULL || hold->serial != memory->serial)
		return NULL;
	return &memory->poll;
}

bool
poll_find(const text *name, Poll *poll)
{
	CountKey key =
		count_key(0, EVENT_TEXT_BYTES(name), EVENT_TEXT_LENGTH(name));
	const Poll *known = poll_recall(key);
	LaneHold *hold;

	if (known != NULL)
	{
		*poll = *known;
		return true;
	}
	if (!poll_read(name, poll))
		return false;
	hold = poll_memory != NULL ? lane_held(poll->poll_id) : NULL;
	if (hold != NULL)
		poll_memorize(key, poll, hold);
	return true;
}

static char *
poll_find_name(int32 poll_id, bool (*find)(Store *store, StoreKey *key))
{
	Store store;
	StoreKey key;
	char *name = NULL;

	store_open(&store, "poll", "poll_pkey", AccessShareLock);
	store_key_init(&key);
	store_key_int4(&key, poll_id);
	if (find(&store, &key))
		name = TextDatumGetCString(store_get_notnull(&store, POLL_POLL));
	store_close(&store);
	return name;
}

char *
poll_name(int32 poll_id)
{
	return poll_find_name(poll_id, store_find_current);
}

char *
poll_visible_name(int32 poll_id)
{
	return poll_find_name(poll_id, store_find_visible);
}

static bool
poll_refuse(Receipt *refusal, Outcome outcome, char *detail)
{
	refusal->outcome = outcome;
	refusal->detail = detail;
	return false;
}

bool
poll_is_open(const Poll *poll, TimestampTz now, Receipt *refusal)
{
	if (poll->closed)
		return poll_refuse(refusal, OUTCOME_CLOSED,
						   pstrdup("The poll is closed."));
	if (now >= poll->closes_at)
		return poll_refuse(refusal, OUTCOME_CLOSED,
						   psprintf("The deadline was %s.",
									timestamptz_to_str(poll->closes_at)));
	if (now < poll->opens_at)
		return poll_refuse(refusal, OUTCOME_NOT_OPEN,
						   psprintf("The poll opens at %s.",
									timestamptz_to_str(poll->opens_at)));
	return true;
}

char *
poll_limit_detail(const Poll *poll, const char *choice)
{
	StringInfoData detail;

	initStringInfo(&detail);
	appendStringInfo(
		&detail,
		"The count of choice \"%s\" would leave the limits of the poll:",
		choice);
	if (poll->min_count != PG_INT64_MIN)
		appendStringInfo(&detail, " min_count " INT64_FORMAT, poll->min_count);
	if (poll->min_count != PG_INT64_MIN && poll->max_count != PG_INT64_MAX)
		appendStringInfoChar(&detail, ',');
	if (poll->max_count != PG_INT64_MAX)
		appendStringInfo(&detail, " max_count " INT64_FORMAT, poll->max_count);
	appendStringInfoChar(&detail, '.');
	return detail.data;
}

bool
poll_deadline_may_move(const Poll *poll, const Receipt *refusal)
{
	return refusal->outcome == OUTCOME_CLOSED && !poll->closed &&
		   lane_await_deadline(poll->poll_id);
}

/* Is the principal on the roll of a restricted poll? */
static bool
poll_is_eligible(int32 poll_id, const text *principal)
{
	Store store;
	StoreKey key;
	bool found;

	if (principal == NULL)
		return false;
	store_open(&store, "roll", "roll_pkey", AccessShareLock);
	store_key_init(&key);
	store_key_int4(&key, poll_id);
	store_key_text(&key, principal);
	found = store_find_current(&store, &key);
	store_close(&store);
	return found;
}

/* Row 9 for the votes: how many choices, and each weight. */
static char *
poll_votes_problem(const Poll *poll, const Tally *votes)
{
	int choices = tally_count_entries(votes);
	TallyIterator it;
	TallyEntry entry;

	if (choices > poll->max_choices)
		return psprintf(
			"The votes name %d choices; the poll allows %d an event.", choices,
			poll->max_choices);
	tally_iterate(votes, &it);
	while (tally_next(&it, &entry))
		if (entry.count < poll->min_weight || entry.count > poll->max_weight)
			return psprintf("The count of choice \"%.*s\" is " INT64_FORMAT
							"; the poll allows " INT64_FORMAT
							" to " INT64_FORMAT ".",
							entry.length, entry.choice, entry.count,
							poll->min_weight, poll->max_weight);
	return NULL;
}

/* Row 9: the poll's own rules of form; NULL when they hold. */
static char *
poll_form_problem(const Poll *poll, const Event *event, TimestampTz now)
{
	if (event->principal == NULL && poll_needs_principal(poll))
		return pstrdup("The poll needs a principal, and it is NULL.");
	if (event->has_payload)
	{
		Size size = toast_raw_datum_size(event->payload) - VARHDRSZ;

		if (size > (Size) settings_max_payload)
			return psprintf("The payload has %zu bytes; poll_tally.max_payload "
							"allows %d.",
							size, settings_max_payload);
	}
	if (event->has_occurred_at && event->occurred_at > now + POLL_CLOCK_SKEW_US)
		return pstrdup("occurred_at lies more than 5 minutes in the future.");
	return poll_votes_problem(poll, event->votes);
}

/* With a lane held, what is known of its counts tells too, and is cached. */
static bool
poll_has_choice(int32 poll_id, LaneHold *hold, const TallyEntry *entry)
{
	CountEntry *row = NULL;
	bool narrow;

	if (hold != NULL)
		row = lane_rows_find(hold,
							 count_key(poll_id, entry->choice, entry->length));
	if (row != NULL && row->known)
		return true;
	if (!choice_find(poll_id, entry->choice, entry->length, &narrow))
		return false;
	/* It was added since the row was looked up; nothing is counted of it. */
	if (row != NULL)
	{
		row->known = true;
		row->narrow = narrow;
	}
	return true;
}

/* Row 10: every choice of the votes has to be in the poll. */
static bool
poll_has_choices(const Poll *poll, const Tally *votes, Receipt *refusal)
{
	LaneHold *hold = lane_held(poll->poll_id);
	TallyIterator it;
	TallyEntry entry;

	if (poll->open_choices)
		return true;
	tally_iterate(votes, &it);
	while (tally_next(&it, &entry))
		if (!poll_has_choice(poll->poll_id, hold, &entry))
			return poll_refuse(refusal, OUTCOME_UNKNOWN_CHOICE,
							   psprintf("The poll has no choice \"%.*s\".",
										entry.length, entry.choice));
	return true;
}

bool
poll_allows(const Poll *poll, const Event *event, TimestampTz now,
			Receipt *refusal)
{
	char *problem;

	if (!poll_is_open(poll, now, refusal))
		return false;
	if (poll->restricted && !poll_is_eligible(poll->poll_id, event->principal))
		return poll_refuse(refusal, OUTCOME_NOT_ELIGIBLE,
						   pstrdup("The principal is not on the poll's roll."));
	problem = poll_form_problem(poll, event, now);
	if (problem != NULL)
		return poll_refuse(refusal, OUTCOME_INVALID, problem);
	return poll_has_choices(poll, event->votes, refusal);
}
