/*
 * pending_seqs.h
 *		Hash table of what is pending of each poll besides its counts.
 */
#ifndef POLL_TALLY_PENDING_SEQS_H
#define POLL_TALLY_PENDING_SEQS_H

#include "postgres.h"
#include "common/hashfn.h"

typedef struct PendingSeq
{
	int32 poll_id;
	int64 seq;  /* highest seq given out */
	int64 keys; /* how many keys were new to the poll */
	char status;
} PendingSeq;

#define SH_PREFIX pending_seqs
#define SH_ELEMENT_TYPE PendingSeq
#define SH_KEY_TYPE int32
#define SH_KEY poll_id
#define SH_HASH_KEY(table, key) murmurhash32((uint32) (key))
#define SH_EQUAL(table, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

#endif /* POLL_TALLY_PENDING_SEQS_H */
