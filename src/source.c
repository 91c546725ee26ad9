/*
 * source.c
 *		Cursors of consumers: where to resume in a source.
 *
 * A cursor is stored in the transaction of the batch that it stands behind, so
 * that both are there or neither.  It never moves back.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "poll_admin.h"
#include "store.h"

static StoreStatement advance = {
	"INSERT INTO poll_tally.source AS s (source, source_partition, next_offset,"
	" updated_at) VALUES ($1, $2, $3, clock_timestamp())"
	" ON CONFLICT (source, source_partition) DO UPDATE SET"
	"  next_offset = greatest(s.next_offset, excluded.next_offset),"
	"  updated_at = CASE WHEN excluded.next_offset > s.next_offset"
	"   THEN excluded.updated_at ELSE s.updated_at END"
	" RETURNING next_offset",
	3,
	{TEXTOID, INT4OID, INT8OID},
	NULL};

/*
 * advance_source(source text, source_partition int, next_offset bigint)
 * RETURNS bigint
 *
 * Store where the consumer goes on, unless a later offset is stored; returns
 * what is stored afterwards.  Raises 22023 for a bad or NULL argument, 25006 in
 * a read-only transaction, 40001 above READ COMMITTED when another consumer
 * moved the cursor.
 */
PG_FUNCTION_INFO_V1(advance_source);
Datum
advance_source(PG_FUNCTION_ARGS)
{
	StoreSqlState sql;
	Datum values[3];
	int64 next_offset;
	bool isnull;

	PreventCommandIfReadOnly("advance_source()");
	poll_admin_require_ident("source", "source",
							 PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0));
	if (PG_ARGISNULL(1))
		poll_admin_refuse("source_partition", "It must not be NULL.");
	if (PG_ARGISNULL(2))
		poll_admin_refuse("next_offset", "It must not be NULL.");
	for (int i = 0; i < 3; i++)
		values[i] = PG_GETARG_DATUM(i);
	store_begin_sql(&sql);
	(void) store_run(&advance, values, NULL);
	next_offset = DatumGetInt64(SPI_getbinval(
		SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	store_end_sql(&sql);
	PG_RETURN_INT64(next_offset);
}
