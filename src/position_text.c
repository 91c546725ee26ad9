/*
 * position_text.c
 *		Reading the text form of a position: lane/seq.
 *
 * Core: compiles outside the server too.  Invariant: a position has one text
 * form, so input is strict: digits without sign, blanks or leading zeros around
 * one slash.
 */
#include "core.h"

#include "position_text.h"

/*
 * Read a number at *text and move *text behind it.  Returns false when there is
 * none or it has a leading zero.  One beyond "maximum" is read to its end and
 * stored as something larger than that.
 */
static bool
position_read_number(const char **text, uint64 maximum, uint64 *number)
{
	const char *at = *text;

	if (*at < '0' || *at > '9' ||
		(at[0] == '0' && at[1] >= '0' && at[1] <= '9'))
		return false;
	for (*number = 0; *at >= '0' && *at <= '9'; at++)
	{
		if (*number <= maximum)
			*number = *number * 10 + (uint64) (*at - '0');
	}
	*text = at;
	return true;
}

PositionText
position_text_read(const char *text, int *lane, int64 *seq)
{
	uint64 lane_read, seq_read;

	if (!position_read_number(&text, POSITION_MAX_LANE, &lane_read) ||
		*text++ != '/' ||
		!position_read_number(&text, POSITION_MAX_SEQ, &seq_read) ||
		*text != '\0')
		return POSITION_TEXT_MALFORMED;
	if (lane_read > POSITION_MAX_LANE || seq_read > POSITION_MAX_SEQ)
		return POSITION_TEXT_OUT_OF_RANGE;
	*lane = (int) lane_read;
	*seq = (int64) seq_read;
	return POSITION_TEXT_OK;
}
