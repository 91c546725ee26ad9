/*
 * position_target.c
 *		Fuzzes the text form of a position.
 *
 * Promise: a position has one text form, so what was accepted, written again, is
 * the input.
 */
#include "fuzz.h"

#include "position_text.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);
	char again[64];
	int lane = -1;
	int64 seq = -1;

	if (position_text_read(text, &lane, &seq) == POSITION_TEXT_OK)
	{
		fuzz_check(lane >= 0 && lane <= POSITION_MAX_LANE && seq >= 0 &&
					   seq <= POSITION_MAX_SEQ,
				   "a position is within its bounds");
		snprintf(again, sizeof(again), "%d/" INT64_FORMAT, lane, seq);
		fuzz_check(strcmp(again, text) == 0, "a position has one text form");
	}
	fuzz_free_all();
	return 0;
}
