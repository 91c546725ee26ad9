/*
 * store_session.c
 *		Tables and indexes kept open from one use to the next: by a batch, and by
 *		a flush of what is pending.
 *
 * They are opened in the subtransaction at hand, so that its abort closes them.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "store.h"
#include "store_internal.h"

#define STORE_MAX_KEPT 16

static StoreKept *store_kept = NULL; /* array, or NULL: there is no session */
static int store_kept_count = 0;
MemoryContext store_kept_context = NULL;

StoreKept *
store_kept_find(const char *name, bool writer)
{
	for (int i = 0; store_kept != NULL && i < store_kept_count; i++)
	{
		StoreKept *kept = &store_kept[i];

		if (!kept->busy && kept->writer == writer &&
			strcmp(kept->name, name) == 0)
			return kept;
	}
	return NULL;
}

/* A place to keep what was opened; NULL when there is none. */
StoreKept *
store_kept_add(const char *name, bool writer)
{
	StoreKept *kept;

	if (store_kept == NULL || store_kept_count == STORE_MAX_KEPT)
		return NULL;
	kept = &store_kept[store_kept_count++];
	strlcpy(kept->name, name, NAMEDATALEN);
	kept->writer = writer;
	kept->busy = true;
	return kept;
}

bool
store_session_begin(MemoryContext context)
{
	if (store_kept != NULL)
		return false;
	store_kept_context = context;
	store_kept =
		MemoryContextAllocZero(context, STORE_MAX_KEPT * sizeof(StoreKept));
	store_kept_count = 0;
	return true;
}

void
store_session_end(void)
{
	for (int i = 0; i < store_kept_count; i++)
	{
		Assert(!store_kept[i].busy);
		if (store_kept[i].writer)
			store_writer_close_relations(&store_kept[i].write);
		else
			store_close_relations(&store_kept[i].store);
	}
	store_session_drop();
}

void
store_session_drop(void)
{
	store_kept = NULL;
	store_kept_count = 0;
}
