/*
 * position_text.h
 *		Reading the text form of a position: lane/seq.
 */
#ifndef POLL_TALLY_POSITION_TEXT_H
#define POLL_TALLY_POSITION_TEXT_H

#include "core.h"

#define POSITION_MAX_LANE 0xFFFF
#define POSITION_MAX_SEQ INT64CONST(0xFFFFFFFFFFFF)

typedef enum PositionText
{
	POSITION_TEXT_OK,
	POSITION_TEXT_MALFORMED,
	POSITION_TEXT_OUT_OF_RANGE
} PositionText;

/* Read a NUL-terminated text; *lane and *seq are set when it is a position. */
extern PositionText position_text_read(const char *text, int *lane, int64 *seq);

#endif /* POLL_TALLY_POSITION_TEXT_H */
