/*
 * rebuild.c
 *		Repairing a poll's running counts from its ledger.
 *
 * Under all lanes nobody counts meanwhile.  The ledger is the truth; lanes and
 * counts are written anew where they differ from it.  What viewers saw was
 * wrong, so that a change is published as a new revision; but a closed poll has
 * had its last, and can only be brought back to it.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"

#include "fault.h"
#include "lane.h"
#include "pending.h"
#include "poll_admin.h"
#include "snapshot.h"
#include "store.h"

/* The final counts of a closed poll against the ledger's. */
static StoreStatement final_differs = {
	"SELECT FROM poll_tally.snapshot s WHERE s.poll_id = $1 AND s.final"
	" AND (s.included_position <> (SELECT count(*) FROM poll_tally.ledger l"
	"   WHERE l.poll_id = $1)"
	"  OR s.counts OPERATOR(poll_tally.<>)"
	"   coalesce((SELECT poll_tally.sum(coalesce(l.effect, l.votes))"
	"             FROM poll_tally.ledger l WHERE l.poll_id = $1), '{}'))",
	1,
	{INT4OID},
	NULL};

/*
 * How many counts and seqs of lanes differ from the ledger's; and do the lanes
 * claim fewer keys than there are?
 */
static StoreStatement count_wrong = {
	"WITH entry AS MATERIALIZED ("
	" SELECT poll_tally.lane(l.position) AS lane, poll_tally.seq(l.position) AS seq,"
	"  coalesce(l.effect, l.votes) AS effect"
	" FROM poll_tally.ledger l WHERE l.poll_id = $1),"
	" right_counts AS ("
	" SELECT t.lane, e.choice, e.count FROM (SELECT n.lane,"
	"  poll_tally.sum(n.effect) AS counts FROM entry n GROUP BY n.lane) AS t,"
	"  poll_tally.each(t.counts) AS e),"
	" present_counts AS ("
	" SELECT l.lane, e.choice, e.count FROM poll_tally.lane l,"
	"  poll_tally.each(l.counts) AS e WHERE l.poll_id = $1"
	" UNION ALL SELECT w.lane, w.choice, w.count FROM poll_tally.lane_count w"
	"  WHERE w.poll_id = $1 AND w.count <> 0)"
	" SELECT (SELECT count(*) FROM right_counts r FULL JOIN present_counts p"
	"  ON p.lane = r.lane AND p.choice = r.choice"
	"  WHERE r.count IS DISTINCT FROM p.count)"
	" + (SELECT count(*) FROM (SELECT n.lane, max(n.seq) AS seq FROM entry n"
	"   GROUP BY n.lane) AS t FULL JOIN (SELECT l.lane, l.seq"
	"   FROM poll_tally.lane l WHERE l.poll_id = $1 AND l.seq > 0) AS l"
	"   ON l.lane = t.lane WHERE t.seq IS DISTINCT FROM l.seq)"
	" + (SELECT CASE WHEN (SELECT coalesce(sum(l.keys), 0) FROM poll_tally.lane l"
	"    WHERE l.poll_id = $1) < (SELECT count(DISTINCT e.choice) FROM entry n,"
	"     poll_tally.each(n.effect) AS e WHERE NOT EXISTS (SELECT"
	"      FROM poll_tally.choice c WHERE c.poll_id = $1"
	"       AND c.choice = e.choice)) THEN 1 ELSE 0 END)",
	1,
	{INT4OID},
	NULL};

/* Remove the rows, and make them anew from the ledger. */
static StoreStatement rebuild_steps[] = {
	{"DELETE FROM poll_tally.lane_count WHERE poll_id = $1",
	 1,
	 {INT4OID},
	 NULL},
	{"DELETE FROM poll_tally.lane WHERE poll_id = $1", 1, {INT4OID}, NULL},
	{"INSERT INTO poll_tally.lane_count (poll_id, lane, choice, count)"
	 " SELECT $1, poll_tally.lane(l.position), e.choice, sum(e.count)"
	 " FROM poll_tally.ledger l,"
	 "  poll_tally.each(coalesce(l.effect, l.votes)) AS e"
	 " WHERE l.poll_id = $1 AND NOT EXISTS (SELECT FROM poll_tally.choice c"
	 "  WHERE c.poll_id = $1 AND c.choice = e.choice AND c.narrow)"
	 " GROUP BY 2, 3",
	 1,
	 {INT4OID},
	 NULL},
	{"INSERT INTO poll_tally.lane (poll_id, lane, keys, seq, counts)"
	 " SELECT $1, t.lane, (SELECT count(*) FROM poll_tally.lane_count w"
	 "   WHERE w.poll_id = $1 AND w.lane = t.lane AND NOT EXISTS (SELECT"
	 "    FROM poll_tally.choice c WHERE c.poll_id = $1 AND c.choice = w.choice)),"
	 "  t.seq, coalesce((SELECT poll_tally.make_tally(array_agg(e.choice),"
	 "   array_agg(e.count)) FROM poll_tally.each(t.counts) AS e JOIN"
	 "   poll_tally.choice c ON c.poll_id = $1 AND c.choice = e.choice"
	 "   AND c.narrow), '{}')"
	 " FROM (SELECT poll_tally.lane(l.position) AS lane,"
	 "  max(poll_tally.seq(l.position)) AS seq,"
	 "  poll_tally.sum(coalesce(l.effect, l.votes)) AS counts"
	 "  FROM poll_tally.ledger l WHERE l.poll_id = $1 GROUP BY 1) AS t",
	 1,
	 {INT4OID},
	 NULL}};

static int64
rebuild_count_wrong(Datum *poll_id)
{
	bool isnull;

	(void) store_run(&count_wrong, poll_id, NULL);
	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
									   SPI_tuptable->tupdesc, 1, &isnull));
}

/* Between store_begin_sql and store_end_sql; returns how many were wrong. */
static int64
rebuild_under_lanes(const text *name, const Poll *poll)
{
	Datum poll_id[] = {Int32GetDatum(poll->poll_id)};
	int64 wrong;

	snapshot_lock(poll->poll_id);
	if (poll->closed && store_run(&final_differs, poll_id, NULL) != 0)
		ereport(
			ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg(
				 "ledger of closed poll \"%s\" differs from its final counts",
				 text_to_cstring(name)),
			 errdetail("Nothing was changed."),
			 errhint(
				 "Compare with poll_tally.verify_poll(), and restore what is damaged from a backup.")));
	wrong = rebuild_count_wrong(poll_id);
	if (wrong == 0)
		return 0;
	for (int i = 0; i < lengthof(rebuild_steps); i++)
	{
		FAULT_POINT("rebuild-step");
		(void) store_run(&rebuild_steps[i], poll_id, NULL);
	}
	if (!poll->closed && !poll->hidden)
		snapshot_repair(poll->poll_id);
	return wrong;
}

/*
 * rebuild_tallies(poll text) RETURNS bigint
 *
 * Returns how many counts and seqs were wrong.  Waits for the transactions that
 * hold a lane.  Raises P0002 without such a poll, 25001 above READ COMMITTED,
 * XX001 when the ledger of a closed poll differs from its final counts.
 */
PG_FUNCTION_INFO_V1(rebuild_tallies);
Datum
rebuild_tallies(PG_FUNCTION_ARGS)
{
	text *name = PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0);
	StoreSqlState sql;
	int64 wrong;
	Poll poll;

	PreventCommandIfReadOnly("rebuild_tallies()");
	poll_admin_require_read_committed("rebuild_tallies()");
	poll_admin_require(name, &poll);
	pending_flush();
	poll_admin_require_lanes(name, &poll);
	store_begin_sql(&sql);
	wrong = rebuild_under_lanes(name, &poll);
	store_end_sql(&sql);
	pending_forget();
	PG_RETURN_INT64(wrong);
}
