/*
 * count_map.h
 *		Hash tables of counts by (poll, choice), and of seqs by poll.
 *
 * A key's choice is copied into the context that the entry was made for.
 */
#ifndef POLL_TALLY_COUNT_MAP_H
#define POLL_TALLY_COUNT_MAP_H

#include "postgres.h"
#include "common/hashfn.h"

typedef struct CountKey
{
	int32 poll_id;
	int length;
	const char *choice; /* not NUL-terminated */
} CountKey;

typedef struct CountEntry
{
	CountKey key;
	int64 value;
	bool narrow; /* is the count kept in the lane's own row? */
	bool in_row; /* has the lane a row for it, be it its own? */
	bool known;  /* has the poll the choice, in whatever lane? */
	uint32 hash;
	char status;
} CountEntry;

static inline CountKey
count_key(int32 poll_id, const char *choice, int length)
{
	CountKey key = {poll_id, length, choice};

	return key;
}

static inline uint32
count_key_hash(CountKey key)
{
	return hash_combine(
		hash_bytes((const unsigned char *) key.choice, key.length),
		murmurhash32((uint32) key.poll_id));
}

static inline bool
count_key_equal(CountKey a, CountKey b)
{
	return a.poll_id == b.poll_id && a.length == b.length &&
		   memcmp(a.choice, b.choice, a.length) == 0;
}

#define SH_PREFIX count_map
#define SH_ELEMENT_TYPE CountEntry
#define SH_KEY_TYPE CountKey
#define SH_KEY key
#define SH_HASH_KEY(table, key) count_key_hash(key)
#define SH_EQUAL(table, a, b) count_key_equal(a, b)
#define SH_SCOPE static inline
#define SH_STORE_HASH
#define SH_GET_HASH(table, entry) (entry)->hash
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* The entry of a key; a new one has its key copied and counts 0. */
static inline CountEntry *
count_map_enter(count_map_hash *map, MemoryContext context, CountKey key,
				bool *found)
{
	CountEntry *entry = count_map_insert(map, key, found);

	if (!*found)
	{
		char *choice = MemoryContextAlloc(context, Max(key.length, 1));

		memcpy(choice, key.choice, key.length);
		entry->key.choice = choice;
		entry->value = 0;
		entry->narrow = false;
		entry->in_row = false;
		entry->known = false;
	}
	return entry;
}

/* Sums wrap around: a sum that fits may have parts that do not. */
static inline int64
count_plus(int64 a, int64 b)
{
	return (int64) ((uint64) a + (uint64) b);
}

static inline int64
count_minus(int64 a)
{
	return (int64) (0 - (uint64) a);
}

/* Add every entry of a map to another. */
static inline void
count_map_add_all(count_map_hash *map, MemoryContext context,
				  count_map_hash *addend)
{
	count_map_iterator it;
	CountEntry *entry;
	bool found;

	count_map_start_iterate(addend, &it);
	while ((entry = count_map_iterate(addend, &it)) != NULL)
	{
		CountEntry *sum = count_map_enter(map, context, entry->key, &found);

		sum->value = count_plus(sum->value, entry->value);
		sum->narrow = entry->narrow;
	}
}

#endif /* POLL_TALLY_COUNT_MAP_H */
