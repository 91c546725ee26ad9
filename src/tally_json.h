/*
 * tally_json.h
 *		Tallies as JSON: reading text and jsonb, writing both.
 *
 * Text and jsonb accept the same objects: a count may be written as any JSON
 * number that is integral (1, 1.0, 1e2) and lies within bigint.
 */
#ifndef POLL_TALLY_TALLY_JSON_H
#define POLL_TALLY_TALLY_JSON_H

#include "postgres.h"
#include "lib/stringinfo.h"
#include "nodes/nodes.h"
#include "utils/jsonb.h"

#include "tally_type.h"

/*
 * Read the text form.  Raises 22P02 or 22003, or where escontext (16 and up)
 * takes soft errors, reports there and returns NULL.
 */
extern Tally *tally_from_text(const char *text, Node *escontext);

/*
 * Read a jsonb.  Never raises for what it contains: returns false, with a
 * palloc'd sentence in *detail, when it is no object of integer counts within
 * bigint or a key is no identifier.  The tally may be empty.
 */
extern bool tally_from_jsonb(Jsonb *jsonb, Tally **tally, char **detail);

/* Append the canonical text form, spaced as jsonb is. */
extern void tally_append_json(StringInfo out, const Tally *tally);

/* The same as a palloc'd jsonb. */
extern Jsonb *tally_to_jsonb(const Tally *tally);

#endif /* POLL_TALLY_TALLY_JSON_H */
