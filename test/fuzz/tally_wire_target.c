/*
 * tally_wire_target.c
 *		Fuzzes the binary form of a tally.
 *
 * Promises: what is accepted is canonical, so writing it again gives the very
 * bytes that were read.
 */
#include "fuzz.h"

#include "port/pg_bswap.h"

#include "ident.h"
#include "tally_wire.h"

/* Do the bytes at *at equal these?  Moves behind them. */
static bool
target_takes(const char **at, const void *bytes, size_t size)
{
	bool same = memcmp(*at, bytes, size) == 0;

	*at += size;
	return same;
}

static bool
target_is_same(const char *at, const char *end, const TallyEntry *entries,
			   int count)
{
	uint32 number = pg_hton32((uint32) count);
	bool same = target_takes(&at, &number, sizeof(number));

	for (int i = 0; i < count && same; i++)
	{
		uint8 length = (uint8) entries[i].length;
		uint64 value = pg_hton64((uint64) entries[i].count);

		same = target_takes(&at, &length, sizeof(length)) &&
			   target_takes(&at, entries[i].choice, length) &&
			   target_takes(&at, &value, sizeof(value));
	}
	return same && at == end;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *bytes = fuzz_bytes(data, size);
	TallyWire wire = {bytes, bytes + size};
	char *problem;
	int count;
	TallyEntry *entries = tally_wire_read(&wire, &count, &problem);

	fuzz_check((entries == NULL) == (problem != NULL),
			   "refused with a reason, or accepted");
	for (int i = 0; entries != NULL && i < count; i++)
		fuzz_check(ident_is_valid(entries[i].choice, entries[i].length) &&
					   entries[i].count != 0 &&
					   (i == 0 || tally_compare_entries(&entries[i - 1],
														&entries[i]) < 0),
				   "what is accepted is canonical");
	fuzz_check(entries == NULL ||
				   target_is_same(bytes, wire.next, entries, count),
			   "what was read can be written again");
	fuzz_free_all();
	return 0;
}
