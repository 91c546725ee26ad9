/*
 * position_type.h
 *		The data type event_position: (lane, seq) of an event.
 *
 * 8 bytes by value, lane in the upper 16 bits and seq in the lower 48, compared
 * unsigned: positions sort by lane, then by seq.  Written lane/seq.
 */
#ifndef POLL_TALLY_POSITION_TYPE_H
#define POLL_TALLY_POSITION_TYPE_H

#include "postgres.h"
#include "fmgr.h"

#include "position_text.h"

typedef uint64 EventPosition;

#define POSITION_SEQ_BITS 48

#define DatumGetEventPosition(datum) ((EventPosition) DatumGetUInt64(datum))
#define EventPositionGetDatum(position) UInt64GetDatum(position)
#define PG_GETARG_EVENT_POSITION(n) DatumGetEventPosition(PG_GETARG_DATUM(n))
#define PG_RETURN_EVENT_POSITION(position) \
	return EventPositionGetDatum(position)

static inline EventPosition
position_make(int lane, int64 seq)
{
	Assert(lane >= 0 && lane <= POSITION_MAX_LANE);
	Assert(seq >= 0 && seq <= POSITION_MAX_SEQ);
	return ((uint64) lane << POSITION_SEQ_BITS) | (uint64) seq;
}

static inline int
position_lane(EventPosition position)
{
	return (int) (position >> POSITION_SEQ_BITS);
}

static inline int64
position_seq(EventPosition position)
{
	return (int64) (position & (uint64) POSITION_MAX_SEQ);
}

#endif /* POLL_TALLY_POSITION_TYPE_H */
