/*
 * tally_text.h
 *		Reading the text form of a tally, which is JSON.
 */
#ifndef POLL_TALLY_TALLY_TEXT_H
#define POLL_TALLY_TALLY_TEXT_H

#include "core.h"

#include "tally_entry.h"

/* What is wrong with a tally in JSON. */
typedef enum TallyFault
{
	TALLY_FINE,
	TALLY_MALFORMED,      /* no JSON, or a key that is no identifier */
	TALLY_NO_INTEGER,     /* a number with a fraction */
	TALLY_WRONG_TYPE,     /* no object, or a count that is no number */
	TALLY_COUNT_TOO_LARGE /* outside bigint, on either side */
} TallyFault;

typedef struct TallyProblem
{
	TallyFault fault;
	char *detail; /* a palloc'd sentence, where there is a fault */
} TallyProblem;

/*
 * Who is told of the first problem of a text, and where in it that is.  It may
 * leave the reader for good (in 15 nothing else stops the parser, which then
 * recurses as deep as the text nests) or return.
 */
typedef struct TallyTextReport
{
	void (*report)(void *arg, TallyProblem problem, const char *text,
				   const char *place);
	void *arg;
} TallyTextReport;

/*
 * Read a text of that length in that encoding, with a NUL behind it.  Returns
 * palloc'd entries in the text's order, or NULL when a problem was reported.
 */
extern TallyEntry *tally_text_read(const char *text, int length, int encoding,
								   TallyTextReport report, int *count);

/* Judge the count of a choice, given as a JSON number. */
extern TallyProblem tally_text_count(const char *token, TallyEntry *entry);

/* The value as a whole (entry is NULL), or a count, is of the wrong type. */
extern TallyProblem tally_text_wrong_type(const TallyEntry *entry,
										  const char *type);

#endif /* POLL_TALLY_TALLY_TEXT_H */
