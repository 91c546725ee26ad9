/*
 * pending_level.h
 *		The levels of what is pending; for pending.c and pending_flush.c alone.
 */
#ifndef POLL_TALLY_PENDING_LEVEL_H
#define POLL_TALLY_PENDING_LEVEL_H

#include "count_map.h"
#include "pending_seqs.h"

/* Entries of a level above which they are written, to bound memory. */
#define PENDING_MAX_ENTRIES 100000

typedef struct PendingLevel
{
	struct PendingLevel *upper; /* of an enclosing subtransaction, or NULL */
	int nest_level;
	uint32 flush_at;       /* entries above which the level is written */
	MemoryContext context; /* owns the level and all it points to */
	count_map_hash *counts;
	pending_seqs_hash *seqs;
} PendingLevel;

/* The innermost level of the current transaction; NULL: nothing is pending. */
extern PendingLevel *pending_top;

/* The level of the current subtransaction, made if need be. */
extern PendingLevel *pending_level(void);

/* The changes of all levels to one choice. */
extern int64 pending_change(CountKey key);

/* Add the changes of all levels to a map. */
extern void pending_add_to(count_map_hash *map, MemoryContext context);

/* Add to a level. */
extern void pending_add_change(PendingLevel *level, CountKey key, int64 change,
							   bool narrow);
extern PendingSeq *pending_set_seq(PendingLevel *level, int32 poll_id,
								   int64 seq);

/*
 * Write all that is pending, without remembering it for statements that are
 * running already.
 */
extern void pending_flush_and_forget(void);

/*
 * What was written during a statement that cannot see it in the rows, of one
 * choice and of a poll's entries; of all choices, added to a map.
 */
extern int64 pending_hidden_change(CountKey key);
extern int64 pending_hidden_entries(int32 poll_id);
extern void pending_hidden_add_to(count_map_hash *map, MemoryContext context);

/* At the end of a transaction and of a subtransaction. */
extern void pending_flush_at_end(void);
extern void pending_flush_at_subcommit(int nest_level);
extern void pending_flush_at_subabort(int nest_level);

#endif /* POLL_TALLY_PENDING_LEVEL_H */
