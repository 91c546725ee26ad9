/*
 * plant.h
 *		Planted bugs, which test the tests: scripts/plants.
 *
 * PLANT(name) is false, and the compiler leaves nothing of it, unless the build
 * says -DPOLL_TALLY_PLANT=name.  Each plant is one line where the bug would be.
 */
#ifndef POLL_TALLY_PLANT_H
#define POLL_TALLY_PLANT_H

#ifdef POLL_TALLY_PLANT
enum Plant
{
	PLANT_TALLY_SKIPPED,         /* an event does not move the counts */
	PLANT_SEQ_BEFORE_LOCK,       /* the lane is read before it is locked */
	PLANT_LANE_RELEASED_EARLY,   /* the lane is free before the commit */
	PLANT_VOTER_NOTIFIES,        /* a voter's transaction sends NOTIFY */
	PLANT_CLOSE_NOT_CHECKED,     /* open or closed is not judged under lanes */
	PLANT_CLOSE_WITHOUT_WAITING, /* closing does not wait for the lanes */
	PLANT_DEADLINE_ONCE,         /* under the lane the clock stands still */
	PLANT_PAYLOAD_BY_LENGTH,     /* payloads of one size are identical */
	PLANT_SUBABORT_IGNORED,      /* ROLLBACK TO leaves the counts */
	PLANT_GUARD_MISSING,         /* the ledger can be changed */
	PLANT_TWIN_NOT_AWAITED,      /* a refusal does not look for the twin */
	PLANT_REPLACED_NOT_SUBTRACTED, /* the replaced vote still counts */
	PLANT_ATTEMPT_TOO_MANY,        /* one attempt more than allowed */
	PLANT_LIMIT_OFF_BY_ONE,        /* a count may be one above its limit */
	PLANT_RETRACTION_ADDS,         /* a retraction counts up */
	PLANT_OVERFLOW_WRAPS,          /* sums of tallies wrap around */
	PLANT_WIRE_UNCHECKED,          /* recv reads beyond the message */
	PLANT_BLANK_ALLOWED,           /* identifiers may hold blanks */
	PLANT_GRANT_TOO_MANY           /* submitters may read the ledger */
};

#define PLANT_OF(name) PLANT_##name
#define PLANT_CHOSEN(name) PLANT_OF(name)
#define PLANT(name) (PLANT_CHOSEN(POLL_TALLY_PLANT) == PLANT_##name)
#else
#define PLANT(name) false
#endif

#endif /* POLL_TALLY_PLANT_H */
