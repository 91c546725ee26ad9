/*
 * choice.c
 *		The choices that were given to a poll by name.
 *
 * A row is never updated in what is read here, and goes only with its poll.
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "choice.h"
#include "store.h"

enum ChoiceColumn
{
	CHOICE_POLL_ID = 1,
	CHOICE_ORD,
	CHOICE_NARROW,
	CHOICE_CHOICE,
	CHOICE_LABEL
};

bool
choice_find(int32 poll_id, const char *choice, int length, bool *narrow)
{
	static const AttrNumber columns[] = {CHOICE_POLL_ID, CHOICE_CHOICE};
	text *name = cstring_to_text_with_len(choice, length);
	Store store;
	StoreKey key;
	bool found;

	store_open(&store, "choice", "choice_pkey", AccessShareLock);
	store_key_init(&key);
	store_key_int4(&key, poll_id);
	store_key_text(&key, name);
	store_key_hinted(&key, columns);
	found = store_find_current(&store, &key);
	if (found)
		*narrow = DatumGetBool(store_get_notnull(&store, CHOICE_NARROW));
	store_close(&store);
	pfree(name);
	return found;
}
