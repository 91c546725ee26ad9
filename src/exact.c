/*
 * exact.c
 *		Counts near the bounds of bigint, summed over the lanes.
 *
 * Invariant: unless a poll is marked exact, no lane has a count beyond
 * EXACT_SAFE_COUNT, so that no sum over the lanes can leave bigint.  The mark is
 * set under all lanes, so that whoever holds a lane reads it rightly.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/int.h"
#include "utils/builtins.h"

#include "exact.h"
#include "lane_rows.h"
#include "pending.h"
#include "store.h"

#define EXACT_SAFE_COUNT (PG_INT64_MAX / LANE_MAX)

/* Would the effect take a count of this lane beyond what is safe? */
static bool
exact_is_near(LaneHold *hold, const Tally *effect)
{
	TallyIterator it;
	TallyEntry entry;

	tally_iterate(effect, &it);
	while (tally_next(&it, &entry))
	{
		int64 count = pending_lane_count(hold, entry.choice, entry.length);

		if (pg_add_s64_overflow(count, entry.count, &count) ||
			count > EXACT_SAFE_COUNT || count < -EXACT_SAFE_COUNT)
			return true;
	}
	return false;
}

static StoreStatement mark = {
	"UPDATE poll_tally.poll SET exact = true WHERE poll_id = $1",
	1,
	{INT4OID},
	NULL};

void
exact_mark(int32 poll_id)
{
	Datum values[] = {Int32GetDatum(poll_id)};
	StoreSqlState sql;

	store_refuse_to_wait_for_lane(poll_id, true);
	/* To wait for the row of who alters the poll is a conflict above READ COMMITTED. */
	lane_lock_changes(poll_id);
	store_begin_sql(&sql);
	/* Somebody may have altered it since a transaction's snapshot. */
	(void) store_run_latest(&mark, values, NULL);
	store_end_sql(&sql);
}

static bool
exact_needs_lanes(const Poll *poll, LaneHold *hold, const Tally *effect)
{
	return poll->max_lanes > 1 && (poll->exact || exact_is_near(hold, effect));
}

void
exact_take_lanes(const Poll *poll, LaneHold *hold, bool fresh)
{
	if (fresh)
		pending_release_lane(hold);
	lane_acquire_all(poll->poll_id, poll->max_lanes);
}

/*
 * The choice whose count, summed over all lanes, would leave bigint; palloc'd, or
 * NULL.
 */
static char *
exact_misfit(LaneHold *hold, const Tally *effect)
{
	TallyIterator it;
	TallyEntry entry;

	tally_iterate(effect, &it);
	while (tally_next(&it, &entry))
	{
		TallyTotal total =
			lane_rows_total(hold->poll_id, entry.choice, entry.length);
		int64 count;

		tally_total_add(&total,
						tally_total_of(pending_of_choice(
							hold->poll_id, entry.choice, entry.length)));
		tally_total_add(&total, tally_total_of(entry.count));
		if (!tally_total_fits(total, &count))
			return pnstrdup(entry.choice, entry.length);
	}
	return NULL;
}

ExactVerdict
exact_judge(const Poll *poll, LaneHold *hold, const Tally *effect,
			char **choice)
{
	bool overflows = false;

	*choice = NULL;
	if (exact_needs_lanes(poll, hold, effect))
	{
		if (!lane_holds_all(poll->poll_id))
			return EXACT_LACKS_LANES;
		if (!poll->exact)
			exact_mark(poll->poll_id);
		*choice = exact_misfit(hold, effect);
		overflows = *choice != NULL;
	}
	if (*choice == NULL)
		*choice = pending_misfit(hold, effect, poll->min_count, poll->max_count,
								 &overflows);
	return *choice == NULL ? EXACT_FITS
		   : overflows     ? EXACT_OVERFLOWS
						   : EXACT_BEYOND_LIMITS;
}
