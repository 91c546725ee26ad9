/*
 * tally_wire.c
 *		Reading the binary form of a tally.
 *
 * Core: compiles outside the server too.  Invariant: no byte is read before it
 * is known to be there, and no memory taken for entries that the bytes cannot
 * hold.
 */
#include "core.h"

#include "port/pg_bswap.h"

#include "ident.h"
#include "plant.h"
#include "tally_wire.h"

/* The shortest entry: a length, one byte, a count. */
#define TALLY_WIRE_ENTRY_MIN (1 + 1 + 8)

static ptrdiff_t
tally_wire_left(const TallyWire *wire)
{
	return wire->end - wire->next;
}

/* Read an entry; its choice points into the bytes.  Returns what is wrong. */
static char *
tally_wire_read_entry(TallyWire *wire, TallyEntry *entry)
{
	uint64 count;
	char *problem;

	if (tally_wire_left(wire) < TALLY_WIRE_ENTRY_MIN)
		return pstrdup("An entry is cut off.");
	entry->length = (uint8) *wire->next++;
	if (!PLANT(WIRE_UNCHECKED) &&
		tally_wire_left(wire) < entry->length + (int) sizeof(count))
		return pstrdup("An entry is cut off.");
	entry->choice = wire->next;
	wire->next += entry->length;
	problem = ident_problem("choice", entry->choice, entry->length);
	if (problem != NULL)
		return problem;
	memcpy(&count, wire->next, sizeof(count));
	wire->next += sizeof(count);
	entry->count = (int64) pg_ntoh64(count);
	if (entry->count == 0)
		return psprintf("Choice \"%.*s\" counts 0.", entry->length,
						entry->choice);
	return NULL;
}

TallyEntry *
tally_wire_read(TallyWire *wire, int *count, char **problem)
{
	TallyEntry *entries;
	uint32 number;

	*problem = NULL;
	if (tally_wire_left(wire) < (ptrdiff_t) sizeof(number))
	{
		*problem = pstrdup("The number of entries is missing.");
		return NULL;
	}
	memcpy(&number, wire->next, sizeof(number));
	wire->next += sizeof(number);
	*count = (int) pg_ntoh32(number);
	if (*count < 0 || *count > tally_wire_left(wire) / TALLY_WIRE_ENTRY_MIN)
	{
		*problem = pstrdup("The number of entries does not fit the length.");
		return NULL;
	}
	entries = tally_alloc_entries(*count);
	for (int i = 0; i < *count && *problem == NULL; i++)
	{
		*problem = tally_wire_read_entry(wire, &entries[i]);
		if (*problem == NULL && i > 0 &&
			tally_compare_entries(&entries[i - 1], &entries[i]) >= 0)
			*problem = psprintf("Choice \"%.*s\" is out of order.",
								entries[i].length, entries[i].choice);
	}
	return *problem == NULL ? entries : NULL;
}
