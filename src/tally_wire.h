/*
 * tally_wire.h
 *		Reading the binary form of a tally.
 */
#ifndef POLL_TALLY_TALLY_WIRE_H
#define POLL_TALLY_TALLY_WIRE_H

#include "core.h"

#include "tally_entry.h"

typedef struct TallyWire
{
	const char *next; /* the byte to be read next */
	const char *end;
} TallyWire;

/*
 * Read a tally: int32 number of entries, then for each uint8 length of the
 * choice, its bytes, int64 count, all in network order.  Only the canonical form
 * is taken.  Returns palloc'd entries whose choices point into the bytes and
 * moves wire->next behind them, or NULL and a palloc'd sentence in *problem.
 */
extern TallyEntry *tally_wire_read(TallyWire *wire, int *count, char **problem);

#endif /* POLL_TALLY_TALLY_WIRE_H */
