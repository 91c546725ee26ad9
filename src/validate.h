/*
 * validate.h
 *		Pure checks of an event: row 1 of DESIGN section 4.
 */
#ifndef POLL_TALLY_VALIDATE_H
#define POLL_TALLY_VALIDATE_H

#include "event.h"

/*
 * Check the event's form and set its votes.  Returns NULL when it is well
 * formed, else a palloc'd sentence that says what is not.  Knows no table.
 */
extern char *validate_event(Event *event);

/* The same for one identifier; "noun" is what it names.  NULL is a problem. */
extern char *validate_ident(const char *noun, const text *value);

#endif /* POLL_TALLY_VALIDATE_H */
