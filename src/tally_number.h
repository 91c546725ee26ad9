/*
 * tally_number.h
 *		Reading a JSON number as a count.
 *
 * Pure: no memory is allocated and no error is raised.
 */
#ifndef POLL_TALLY_TALLY_NUMBER_H
#define POLL_TALLY_TALLY_NUMBER_H

#include <stdint.h>

typedef enum TallyNumber
{
	TALLY_NUMBER_OK,
	TALLY_NUMBER_NO_INTEGER,  /* a fraction, or no number at all */
	TALLY_NUMBER_OUT_OF_RANGE /* an integer outside bigint */
} TallyNumber;

/*
 * Read the NUL-terminated token as JSON writes numbers; 1.0 and 1e2 are
 * integers.  *count is set when the result is TALLY_NUMBER_OK.
 */
extern TallyNumber tally_number_read(const char *token, int64_t *count);

#endif /* POLL_TALLY_TALLY_NUMBER_H */
