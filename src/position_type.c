/*
 * position_type.c
 *		The data type event_position: text, binary, comparison, hashing.
 *
 * The text's reader is position_text.c.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "libpq/pqformat.h"

#include "compat.h"
#include "position_type.h"

PG_FUNCTION_INFO_V1(position_in);
PG_FUNCTION_INFO_V1(position_out);
PG_FUNCTION_INFO_V1(position_recv);
PG_FUNCTION_INFO_V1(position_send);
PG_FUNCTION_INFO_V1(position_compare_sql);
PG_FUNCTION_INFO_V1(position_lt);
PG_FUNCTION_INFO_V1(position_le);
PG_FUNCTION_INFO_V1(position_eq);
PG_FUNCTION_INFO_V1(position_ge);
PG_FUNCTION_INFO_V1(position_gt);
PG_FUNCTION_INFO_V1(position_ne);
PG_FUNCTION_INFO_V1(position_hash);
PG_FUNCTION_INFO_V1(position_hash_extended);
PG_FUNCTION_INFO_V1(position_lane_sql);
PG_FUNCTION_INFO_V1(position_seq_sql);
PG_FUNCTION_INFO_V1(position_make_sql);

Datum
position_in(PG_FUNCTION_ARGS)
{
	const char *text = PG_GETARG_CSTRING(0);
	int lane;
	int64 seq;
	PositionText verdict = position_text_read(text, &lane, &seq);

	if (verdict == POSITION_TEXT_MALFORMED)
		compat_ereturn(
			fcinfo->context, (Datum) 0,
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			 errmsg("invalid input syntax for type %s: \"%s\"",
					"event_position", text),
			 errhint("Write lane/seq, two decimal numbers without sign, blanks "
					 "or leading zeros, such as 3/1842.")));
	if (verdict == POSITION_TEXT_OUT_OF_RANGE)
		compat_ereturn(
			fcinfo->context, (Datum) 0,
			(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
			 errmsg("value \"%s\" is out of range for type %s", text,
					"event_position"),
			 errdetail("A lane is at most %d and a seq at most " INT64_FORMAT
					   ".",
					   POSITION_MAX_LANE, POSITION_MAX_SEQ)));
	PG_RETURN_EVENT_POSITION(position_make(lane, seq));
}

Datum
position_out(PG_FUNCTION_ARGS)
{
	EventPosition position = PG_GETARG_EVENT_POSITION(0);

	PG_RETURN_CSTRING(psprintf("%d/" INT64_FORMAT, position_lane(position),
							   position_seq(position)));
}

/* Every 8 bytes are a position. */
Datum
position_recv(PG_FUNCTION_ARGS)
{
	StringInfo message = (StringInfo) PG_GETARG_POINTER(0);

	PG_RETURN_EVENT_POSITION((EventPosition) pq_getmsgint64(message));
}

Datum
position_send(PG_FUNCTION_ARGS)
{
	StringInfoData message;

	pq_begintypsend(&message);
	pq_sendint64(&message, PG_GETARG_EVENT_POSITION(0));
	PG_RETURN_BYTEA_P(pq_endtypsend(&message));
}

static int
position_compare(EventPosition a, EventPosition b)
{
	return (a > b) - (a < b);
}

Datum
position_compare_sql(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(position_compare(PG_GETARG_EVENT_POSITION(0),
									 PG_GETARG_EVENT_POSITION(1)));
}

Datum
position_lt(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(PG_GETARG_EVENT_POSITION(0) < PG_GETARG_EVENT_POSITION(1));
}

Datum
position_le(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(PG_GETARG_EVENT_POSITION(0) <= PG_GETARG_EVENT_POSITION(1));
}

Datum
position_eq(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(PG_GETARG_EVENT_POSITION(0) == PG_GETARG_EVENT_POSITION(1));
}

Datum
position_ge(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(PG_GETARG_EVENT_POSITION(0) >= PG_GETARG_EVENT_POSITION(1));
}

Datum
position_gt(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(PG_GETARG_EVENT_POSITION(0) > PG_GETARG_EVENT_POSITION(1));
}

Datum
position_ne(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(PG_GETARG_EVENT_POSITION(0) != PG_GETARG_EVENT_POSITION(1));
}

Datum
position_hash(PG_FUNCTION_ARGS)
{
	EventPosition position = PG_GETARG_EVENT_POSITION(0);

	return hash_any((unsigned char *) &position, sizeof(position));
}

Datum
position_hash_extended(PG_FUNCTION_ARGS)
{
	EventPosition position = PG_GETARG_EVENT_POSITION(0);

	return hash_any_extended((unsigned char *) &position, sizeof(position),
							 (uint64) PG_GETARG_INT64(1));
}

Datum
position_lane_sql(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(position_lane(PG_GETARG_EVENT_POSITION(0)));
}

Datum
position_seq_sql(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(position_seq(PG_GETARG_EVENT_POSITION(0)));
}

/* make_position(lane integer, seq bigint): 22003 when either is out of range */
Datum
position_make_sql(PG_FUNCTION_ARGS)
{
	int32 lane = PG_GETARG_INT32(0);
	int64 seq = PG_GETARG_INT64(1);

	if (lane < 0 || lane > POSITION_MAX_LANE || seq < 0 ||
		seq > POSITION_MAX_SEQ)
		ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
						errmsg("position %d/" INT64_FORMAT " is out of range",
							   lane, seq)));
	PG_RETURN_EVENT_POSITION(position_make(lane, seq));
}
