/*
 * ledger_stage.h
 *		Entries of a batch that are not in the ledger yet; for ledger*.c and batch.c.
 */
#ifndef POLL_TALLY_LEDGER_STAGE_H
#define POLL_TALLY_LEDGER_STAGE_H

#include "ledger.h"
#include "store.h"

/*
 * From now on, gather what is entered in a context, until ledger_stage_end writes
 * the rest.  After an error, drop it.  Look-ups of the ledger see what is staged.
 *
 * "trusting": the events are believed to be new, so that only what is staged is
 * looked up.  If one is not, a unique index refuses it when it is written.
 */
extern void ledger_stage_begin(MemoryContext context, bool trusting);
extern void ledger_stage_end(void);
extern void ledger_stage_drop(void);

extern bool ledger_is_staging(void);

/* Is it trusting at the moment; change that, and return how it was before. */
extern bool ledger_stage_trusts(void);
extern bool ledger_stage_set_trust(bool trusting);

/* Stage an entry; for ledger.c. */
extern void ledger_stage_add(const LedgerEntry *entry, const Event *event);

/* The staged row of a key, in *row; false when there is none.  For ledger.c. */
extern bool ledger_stage_find_id(const text *event_id, Store *row);
extern bool ledger_stage_find_source(const text *source, int32 partition,
									 int64 offset, Store *row);
extern bool ledger_stage_find_tail(int32 poll_id, const text *principal,
								   Store *row);

/* What ledger.c does with the rows. */
extern void ledger_form(TupleTableSlot *slot, const LedgerEntry *entry,
						const Event *event);
extern void ledger_insert_many(StoreWriter *writer, HeapTuple *rows, int count,
							   const StoreOrder *orders);

#endif /* POLL_TALLY_LEDGER_STAGE_H */
