/*
 * store_internal.h
 *		What the files store*.c share among themselves.
 */
#ifndef POLL_TALLY_STORE_INTERNAL_H
#define POLL_TALLY_STORE_INTERNAL_H

#include "store.h"

/*
 * What a session keeps: an index with its table for look-ups, or a table with
 * all its indexes for writing.
 */
typedef struct StoreKept
{
	char name[NAMEDATALEN]; /* of the index, or of the table */
	bool busy;
	bool writer;
	Store store;
	StoreWriter write;
} StoreKept;

/* Where what is kept lives; the session's. */
extern MemoryContext store_kept_context;

/* What is kept under a name and not in use, or NULL. */
extern StoreKept *store_kept_find(const char *name, bool writer);

/* A place to keep what is about to be opened; NULL when there is none. */
extern StoreKept *store_kept_add(const char *name, bool writer);

/* Oid of a table or index that must be there. */
extern Oid store_require_relation(const char *name);

/* Does an index have that name; the oids of all that have one of these? */
extern bool store_is_index(Relation index, const char *name);
extern List *store_arbiters(StoreWriter *writer, const char *const *names);

/*
 * What writing into the writer's table takes, kept for the session: sets all
 * fields but "table" and "kept", and opens the indexes.  Returns false, with
 * plan NULL, when there is nothing to be kept.
 */
extern bool store_plan_open(StoreWriter *writer);
extern void store_plan_close(StoreWriter *writer);

/* Where a row was found last: see store_hint.c. */
extern bool store_hint_find(Store *store, const StoreKey *key);
extern void store_hint_set(Relation table, const StoreKey *key,
						   const ItemPointerData *tid);

extern void store_close_relations(Store *store);
extern void store_writer_close_relations(StoreWriter *writer);

/* Where waits are refused, or NULL. */
extern StoreWait *store_instead;

/* Raise, when there is to be no waiting.  The error never leaves batch.c. */
extern void store_refuse_to_wait(const StoreWait *wait);

#endif /* POLL_TALLY_STORE_INTERNAL_H */
