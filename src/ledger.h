/*
 * ledger.h
 *		The ledger: the append-only table of accepted events and retractions.
 */
#ifndef POLL_TALLY_LEDGER_H
#define POLL_TALLY_LEDGER_H

#include "event.h"
#include "receipt.h"

/* An entry of the ledger, copied out of its row. */
typedef struct LedgerEntry
{
	int32 poll_id;
	EventPosition position;
	TimestampTz accepted_at;
	text *event_id;
	Tally *votes;  /* what the sender said */
	Tally *effect; /* what it did to the counts */
	int32 attempt; /* of the principal; 0 without one */
	text *principal;
	bool has_occurred_at;
	TimestampTz occurred_at;
	Jsonb *payload; /* NULL for SQL NULL */
	text *retracts; /* the event that a retraction takes back, else NULL */
	text *reason;   /* of a retraction */
	bool may_respond_again; /* of a retraction */

	/*
	 * The chain of a principal in a poll: its entries, events and retractions
	 * alike, are numbered by link from 1.  Each carries the state after it.
	 */
	int32 link;    /* 0 without a principal */
	int32 granted; /* attempts given back by retractions so far */
	bool barred;   /* a retraction took the right to respond again */
} LedgerEntry;

/* The entry with an id, of an event or a retraction; awaits an owner in flight. */
extern bool ledger_find(const text *event_id, LedgerEntry *entry);

/*
 * Is an entry with the id in the table, committed, ours or in flight?  Never
 * waits.  Whoever asks has looked for it with ledger_find, which knows what a
 * batch has staged.
 */
extern bool ledger_is_known(const text *event_id);

/* The entry with an id as the active snapshot sees it. */
extern bool ledger_find_visible(const text *event_id, LedgerEntry *entry);

/* The id that holds a source coordinate; awaits an owner in flight. */
extern text *ledger_find_source(const text *source, int32 partition,
								int64 offset);

/*
 * The last entry of a principal in a poll; awaits an owner in flight.  "once"
 * says that the principal may not have any.
 */
extern bool ledger_find_tail(int32 poll_id, const text *principal, bool once,
							 LedgerEntry *entry);

/*
 * The id of the principal's last event, given the last entry; NULL when the poll
 * was dropped meanwhile.  Raises XX001 when there is none.
 */
extern text *ledger_last_attempt(int32 poll_id, const text *principal,
								 const LedgerEntry *tail);

/* The link that comes after the last entry's.  Raises 54000 after 2^31 - 1. */
extern int32 ledger_next_link(const LedgerEntry *tail);

/* The retraction of an event; awaits an owner in flight. */
extern bool ledger_find_retraction(const text *event_id, LedgerEntry *entry);

/* The id of an event's retraction as the active snapshot sees it, or NULL. */
extern text *ledger_visible_retraction(const text *event_id);

/* Which fields of the event differ from the entry's: bits of DIFFERS_*. */
extern int ledger_compare(const LedgerEntry *entry, int32 poll_id,
						  const Event *event);

/*
 * Insert an entry.  The event gives source coordinates and the payload; NULL
 * for a retraction.  The caller holds the lane of entry->position.  Returns
 * false, with nothing left behind, when another entry owns the id, the link of
 * the principal, the source coordinate or the retracted event, or is about to.
 */
extern bool ledger_insert(const LedgerEntry *entry, const Event *event);

/*
 * Let the statements of "remove" pass the guard of the ledger; for dropping a
 * closed poll.  No setting and no SQL reaches this.
 */
extern void ledger_unguarded(void (*remove)(int32 poll_id), int32 poll_id);

#endif /* POLL_TALLY_LEDGER_H */
