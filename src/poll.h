/*
 * poll.h
 *		Polls: their rules, and the judgement of an event by them.
 */
#ifndef POLL_TALLY_POLL_H
#define POLL_TALLY_POLL_H

#include "event.h"
#include "receipt.h"
#include "store.h"

typedef enum PollCounting
{
	COUNTING_ONCE,   /* one response per principal */
	COUNTING_LATEST, /* a new event replaces the principal's current vote */
	COUNTING_EVERY   /* each event counts */
} PollCounting;

/* What accepting needs to know of a poll. */
typedef struct Poll
{
	int32 poll_id;
	PollCounting counting;
	int32 max_attempts; /* 0: no bound */
	int32 max_choices;
	int64 min_weight;
	int64 max_weight;
	bool open_choices;
	bool restricted;
	bool limited; /* has min_count or max_count */
	int64 min_count;
	int64 max_count;
	int32 max_lanes;
	bool closed;
	bool hidden;           /* until it is closed */
	bool exact;            /* see exact.h */
	TimestampTz opens_at;  /* DT_NOBEGIN: since ever */
	TimestampTz closes_at; /* DT_NOEND: never */
	StoreVersion version;  /* of the row, with open_choices; add_choice makes
							* another one */
} Poll;

/* Columns of the table poll that C code reads. */
enum PollColumn
{
	POLL_POLL_ID = 1,
	POLL_MAX_CHOICES,
	POLL_MIN_WEIGHT,
	POLL_MAX_WEIGHT,
	POLL_MAX_LANES,
	POLL_OPEN_CHOICES,
	POLL_RESTRICTED,
	POLL_POLL,
	POLL_COUNTING,
	POLL_MAX_ATTEMPTS,
	POLL_MIN_COUNT,
	POLL_MAX_COUNT,
	POLL_OPENS_AT,
	POLL_CLOSES_AT,
	POLL_CLOSED_AT,
	POLL_TITLE,
	POLL_HIDDEN_UNTIL_CLOSE,
	POLL_EXACT
};

/* The poll as it is now; false when there is none of that name. */
extern bool poll_find(const text *name, Poll *poll);

/*
 * From now on, remember polls of which a lane is held, in a context, instead of
 * reading them anew as long as it is; NULL ends it.  closed_at and closes_at
 * cannot change meanwhile, and what else can is as good as it was a moment ago.
 */
extern void poll_remember(MemoryContext context);

/* The name of a poll, palloc'd; NULL when it is gone. */
extern char *poll_name(int32 poll_id);

/* The same as the active snapshot sees it. */
extern char *poll_visible_name(int32 poll_id);

/* Rows 6 and 7 of section 4, by the server's clock. */
extern bool poll_is_open(const Poll *poll, TimestampTz now, Receipt *refusal);

/*
 * A refusal as closed is for ever; so if it is for a deadline that somebody is
 * changing, wait for him.  true: the poll has to be read and judged anew.
 */
extern bool poll_deadline_may_move(const Poll *poll, const Receipt *refusal);

/* Rows 6 to 10 of section 4; true when the poll's rules allow the event. */
extern bool poll_allows(const Poll *poll, const Event *event, TimestampTz now,
						Receipt *refusal);

/* The sentence about a count that min_count or max_count forbids; palloc'd. */
extern char *poll_limit_detail(const Poll *poll, const char *choice);

/* Must an event say whose it is? */
static inline bool
poll_needs_principal(const Poll *poll)
{
	return poll->counting != COUNTING_EVERY || poll->max_attempts > 0;
}

#endif /* POLL_TALLY_POLL_H */
