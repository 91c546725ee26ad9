/*
 * poll_tally.h
 *		The library as a whole.
 */
#ifndef POLL_TALLY_POLL_TALLY_H
#define POLL_TALLY_POLL_TALLY_H

/* The version of this library; the control file's default_version. */
#define POLL_TALLY_VERSION "0.1.0"

#endif /* POLL_TALLY_POLL_TALLY_H */
