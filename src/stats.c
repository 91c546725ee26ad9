/*
 * stats.c
 *		Statistics: what happened, counted per database in shared memory.
 *
 * What was answered is counted, whether or not the transaction commits.  A crash
 * loses the counters, and "since" says from when they count.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "shared.h"
#include "stats.h"

static const char *const stats_names[] = {
	"batches", "lane_waits", "lanes_opened", "publications", "notify_failures"};

void
stats_count_many(StatsCounter counter, uint64 count)
{
	SharedSlot *slot = shared_slot();

	if (slot != NULL)
		pg_atomic_fetch_add_u64(&slot->counters[counter], (int64) count);
}

void
stats_count(StatsCounter counter)
{
	stats_count_many(counter, 1);
}

void
stats_count_outcome(Outcome outcome)
{
	stats_count_many((StatsCounter) outcome, 1);
}

/*
 * stats_counters() RETURNS SETOF (name text, value bigint, since timestamptz)
 *
 * For the view stats.  value and since are NULL where nothing is counted.
 */
PG_FUNCTION_INFO_V1(stats_counters);
Datum
stats_counters(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	SharedSlot *slot = shared_slot();

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < STATS_COUNTERS; i++)
	{
		const char *name = i < STATS_BATCHES ? outcome_name((Outcome) i)
											 : stats_names[i - STATS_BATCHES];
		Datum values[3] = {CStringGetTextDatum(name), 0, 0};
		bool nulls[3] = {false, slot == NULL, slot == NULL};

		if (slot != NULL)
		{
			values[1] =
				Int64GetDatum((int64) pg_atomic_read_u64(&slot->counters[i]));
			values[2] = TimestampTzGetDatum(
				(TimestampTz) pg_atomic_read_u64(&slot->since));
		}
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* reset_stats() RETURNS void: this database's counters start at 0 from now. */
PG_FUNCTION_INFO_V1(reset_stats);
Datum
reset_stats(PG_FUNCTION_ARGS)
{
	SharedSlot *slot = shared_slot();

	if (slot == NULL)
		ereport(
			ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("poll_tally counts no statistics here"),
			 errhint(
				 "Put shared_preload_libraries = 'poll_tally' into postgresql.conf and restart the server.")));
	for (int i = 0; i < STATS_COUNTERS; i++)
		pg_atomic_write_u64(&slot->counters[i], 0);
	pg_atomic_write_u64(&slot->since, (uint64) GetCurrentTimestamp());
	PG_RETURN_VOID();
}
