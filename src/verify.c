/*
 * verify.c
 *		Recounting a poll from its ledger, and comparing.
 *
 * One statement reads ledger, lanes and counts, so that all of them are as of
 * one instant, however many vote meanwhile.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "tcop/utility.h"
#include "utils/builtins.h"

#include "compat.h"
#include "pending.h"
#include "poll_admin.h"
#include "store.h"

/*
 * tallies: the sum of all effects is the running counts.
 * lanes: the seqs of each lane are 1, 2, 3 … up to the lane's own.
 * snapshots: each kept snapshot is the ledger up to its frontier, and the final
 * one all of it.  Every entry is placed at the first snapshot that includes it,
 * and the effects are summed over the snapshots, so that the ledger is read once
 * for these three, however many are kept.
 * principals: each principal's chain has every link once, attempts go up by one
 * with each event, and none has more than the rules allow.  The first links are
 * judged as they are read, and that no principal has two of them by counting the
 * principals; the chains are put in order only where there are more.
 *
 * What a damaged entry says need not make sense: its lane may be one that no poll
 * can have, and it may be in no chain though it has a principal.
 *
 * OFFSET 0 hides the expressions from the planner, which would take every entry
 * for a group of its own and sort them.
 */
static StoreStatement verify = {
	"WITH snaps AS ("
	" SELECT s.*, row_number() OVER (ORDER BY s.revision) AS nth"
	" FROM poll_tally.snapshot s WHERE s.poll_id = $1),"
	" bounds AS MATERIALIZED ("
	" SELECT g.lane, ARRAY(SELECT coalesce(s.frontier[g.lane + 1], 0)"
	"   FROM snaps s ORDER BY s.nth) AS upto"
	" FROM generate_series(0, 63) AS g (lane)),"
	" entry AS ("
	" SELECT poll_tally.lane(l.position) AS lane, poll_tally.seq(l.position) AS seq,"
	"  width_bucket(poll_tally.seq(l.position) - 1, b.upto) + 1 AS nth,"
	"  coalesce(l.effect, l.votes) AS effect, l.principal IS NOT NULL AND l.link = 1"
	"   AS first_link,"
	"  l.link > 1 AS chained,"
	"  (l.principal IS NULL) <> (l.link IS NULL) OR l.link < 1 OR l.link = 1 AND ("
	"   coalesce(l.attempt, l.link) <> CASE WHEN l.retracts IS NULL THEN 1 ELSE 0 END OR"
	"   l.retracts IS NULL AND coalesce(l.attempt, l.link) - coalesce(l.granted, 0) >"
	"    (SELECT p.max_attempts FROM poll_tally.poll p WHERE p.poll_id = $1)) AS wrong"
	" FROM poll_tally.ledger l"
	"  LEFT JOIN bounds b ON b.lane = poll_tally.lane(l.position)"
	" WHERE l.poll_id = $1 OFFSET 0),"
	" part AS MATERIALIZED ("
	" SELECT e.lane, e.nth, count(*) AS entries, min(e.seq) AS first,"
	"  max(e.seq) AS last, poll_tally.sum_part(e.effect) AS effect,"
	"  count(*) FILTER (WHERE e.first_link) AS first_links,"
	"  count(*) FILTER (WHERE e.chained) AS chained,"
	"  count(*) FILTER (WHERE e.wrong) AS wrong"
	" FROM entry e GROUP BY e.lane, e.nth),"
	" tallies (expected, actual) AS ("
	" SELECT coalesce((SELECT poll_tally.sum_parts(p.effect) FROM part p), '{}')::text,"
	"  poll_tally.counts_of($1)::text),"
	" found AS ("
	" SELECT p.lane, sum(p.entries) AS entries, min(p.first) AS first, max(p.last) AS last"
	" FROM part p GROUP BY p.lane),"
	" lanes (expected, actual) AS ("
	" SELECT coalesce((SELECT string_agg(l.lane || '/1..' || l.seq || ' of ' || l.seq,"
	"   ', ' ORDER BY l.lane) FROM poll_tally.lane l WHERE l.poll_id = $1"
	"   AND l.seq > 0), 'none'),"
	"  coalesce((SELECT string_agg(f.lane || '/' || f.first || '..' || f.last || ' of ' || f.entries,"
	"   ', ' ORDER BY f.lane) FROM found f), 'none')),"
	" recounted AS ("
	" SELECT DISTINCT ON (s.nth) s.revision, s.counts, s.total, s.included_position,"
	"  s.frontier, s.final,"
	"  coalesce(poll_tally.sum_parts(p.effect) OVER (ORDER BY s.nth), '{}') AS recount,"
	"  coalesce(sum(p.entries) OVER (ORDER BY s.nth), 0) AS entries"
	" FROM snaps s LEFT JOIN part p ON p.nth = s.nth),"
	" snapshots (expected, actual) AS ("
	" SELECT count(*) || ' kept, wrong: none',"
	"  count(*) || ' kept, wrong: ' || coalesce(string_agg('revision ' ||"
	"   r.revision, ', ' ORDER BY r.revision) FILTER (WHERE"
	"   r.counts OPERATOR(poll_tally.<>) r.recount OR"
	"   (r.counts IS NOT NULL AND r.total IS DISTINCT FROM"
	"    poll_tally.total_if_fits(r.recount)) OR"
	"   r.included_position <> (SELECT coalesce(sum(f), 0) FROM"
	"    unnest(r.frontier) AS f) OR r.included_position <> r.entries OR"
	"   (r.final AND r.entries <> (SELECT coalesce(sum(p.entries), 0) FROM part p))), 'none')"
	" FROM recounted r),"
	" twice (wrong) AS ("
	" SELECT coalesce((SELECT sum(p.first_links) FROM part p), 0) - count(*)"
	" FROM (SELECT FROM poll_tally.ledger l WHERE l.poll_id = $1 AND l.link = 1"
	"   AND l.principal IS NOT NULL AND (SELECT sum(p.first_links) > 0 FROM part p)"
	"  GROUP BY l.principal) AS g),"
	" chained AS ("
	" SELECT l.link, row_number() OVER w AS nth_link,"
	"  coalesce(l.attempt, l.link) AS attempt,"
	"  count(*) FILTER (WHERE l.retracts IS NULL) OVER w AS nth_event,"
	"  coalesce(l.granted, 0) AS granted, l.retracts"
	" FROM poll_tally.ledger l WHERE l.poll_id = $1 AND l.principal IN ("
	"  SELECT c.principal FROM poll_tally.ledger c WHERE c.poll_id = $1 AND c.link > 1)"
	"  AND (SELECT sum(p.chained) > 0 FROM part p)"
	" WINDOW w AS (PARTITION BY l.principal ORDER BY l.link"
	"  ROWS UNBOUNDED PRECEDING)),"
	" principals (expected, actual) AS ("
	" SELECT '0 entries out of order or beyond max_attempts', count(*) +"
	"  (SELECT coalesce(sum(a.wrong), 0) FROM part a) +"
	"  (SELECT t.wrong FROM twice t) ||"
	"  ' entries out of order or beyond max_attempts'"
	" FROM chained c, poll_tally.poll p WHERE p.poll_id = $1 AND c.link > 1 AND"
	"  (c.link <> c.nth_link OR c.attempt <> c.nth_event OR"
	"   c.retracts IS NULL AND c.attempt - c.granted > p.max_attempts)),"
	" checks AS ("
	" SELECT 1 AS ord, 'tallies' AS check_name, expected, actual FROM tallies"
	" UNION ALL SELECT 2, 'lanes', expected, actual FROM lanes"
	" UNION ALL SELECT 3, 'snapshots', expected, actual FROM snapshots"
	" UNION ALL SELECT 4, 'principals', expected, actual FROM principals)"
	" SELECT check_name, expected = actual, expected, actual FROM checks"
	" ORDER BY ord",
	1,
	{INT4OID},
	NULL};

/*
 * verify_poll(poll text) RETURNS SETOF (check_name, ok, expected, actual)
 *
 * Raises P0002 without such a poll, 25001 above READ COMMITTED.
 */
PG_FUNCTION_INFO_V1(verify_poll);
Datum
verify_poll(PG_FUNCTION_ARGS)
{
	text *name = PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0);
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	StoreSqlState sql;
	Datum poll_id[1];
	uint64 rows;
	Poll poll;

	poll_admin_require_read_committed("verify_poll()");
	poll_admin_require(name, &poll);
	InitMaterializedSRF(fcinfo, 0);
	pending_flush();
	store_begin_sql(&sql);
	poll_id[0] = Int32GetDatum(poll.poll_id);
	rows = store_run(&verify, poll_id, NULL);
	for (uint64 i = 0; i < rows; i++)
	{
		Datum values[4];
		bool nulls[4];

		for (int column = 0; column < 4; column++)
			values[column] =
				SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc,
							  column + 1, &nulls[column]);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	store_end_sql(&sql);
	return (Datum) 0;
}
