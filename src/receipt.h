/*
 * receipt.h
 *		The outcome of an event, and the row that carries it.
 */
#ifndef POLL_TALLY_RECEIPT_H
#define POLL_TALLY_RECEIPT_H

#include "postgres.h"
#include "access/tupdesc.h"
#include "datatype/timestamp.h"
#include "fmgr.h"

#include "position_type.h"

/* In the order of the SQL enum poll_tally.outcome. */
typedef enum Outcome
{
	OUTCOME_INVALID,
	OUTCOME_DUPLICATE,
	OUTCOME_CONFLICT,
	OUTCOME_SOURCE_CONFLICT,
	OUTCOME_EXPIRED,
	OUTCOME_UNKNOWN_POLL,
	OUTCOME_CLOSED,
	OUTCOME_NOT_OPEN,
	OUTCOME_NOT_ELIGIBLE,
	OUTCOME_UNKNOWN_CHOICE,
	OUTCOME_ALREADY_RESPONDED,
	OUTCOME_LIMIT_REACHED,
	OUTCOME_ACCEPTED,
	OUTCOME_UNKNOWN_EVENT,
	OUTCOME_NOTHING_TO_RETRACT
} Outcome;

/* Bits of Receipt.differs, in the order in which the fields are listed. */
#define DIFFERS_POLL (1 << 0)
#define DIFFERS_VOTES (1 << 1)
#define DIFFERS_PRINCIPAL (1 << 2)
#define DIFFERS_PAYLOAD (1 << 3)
#define DIFFERS_OCCURRED_AT (1 << 4)
#define DIFFERS_KIND (1 << 5)
#define DIFFERS_EVENT_ID (1 << 6)
#define DIFFERS_REASON (1 << 7)
#define DIFFERS_MAY_RESPOND_AGAIN (1 << 8)

typedef struct Receipt
{
	Outcome outcome;
	const text *event_id; /* NULL when it was malformed */
	bool stored; /* position and accepted_at are those of a ledger entry */
	EventPosition position;
	TimestampTz accepted_at;
	int32 attempt; /* 0: none, the event has no principal */
	int differs;
	char *detail; /* NULL or a sentence */
} Receipt;

#define RECEIPT_COLUMNS 8

/* An empty receipt that echoes the id if it is well formed. */
extern void receipt_init(Receipt *receipt, const text *event_id);

extern const char *outcome_name(Outcome outcome);

/* Datum of an outcome; "type" is the enum's oid. */
extern Datum outcome_datum(Outcome outcome, Oid type);

/* Fill the eight columns of a receipt; "type" is the oid of the outcome enum. */
extern void receipt_deform(const Receipt *receipt, Oid type, Datum *values,
						   bool *nulls);

/* The receipt as the composite that the called function is declared to return. */
extern Datum receipt_datum(const Receipt *receipt, FunctionCallInfo fcinfo);

/* The detail, or a sentence that lists what differs; palloc'd or NULL. */
extern char *receipt_sentence(const Receipt *receipt);

/* Raise what DESIGN section 11 maps an outcome to, unless it is a success. */
extern void receipt_raise_refusal(const Receipt *receipt);

#endif /* POLL_TALLY_RECEIPT_H */
