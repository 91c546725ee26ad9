/*
 * fuzz.h
 *		What the fuzz targets share.
 *
 * A target reads one input with one reader of src/, without a server, and
 * checks what the reader promised of what it accepted.  Memory is the readers'
 * palloc, each piece a malloc of its own, so that the sanitizer sees every byte
 * beyond it; all of it goes after each input.
 */
#ifndef POLL_TALLY_FUZZ_H
#define POLL_TALLY_FUZZ_H

#include "core.h"

#include "tally_entry.h"

/* A copy of the input with a NUL behind it, of exactly that size. */
extern char *fuzz_text(const uint8_t *data, size_t size);

/* The same bytes without the NUL. */
extern char *fuzz_bytes(const uint8_t *data, size_t size);

/* A promise was broken: says which and ends the run, as a crash does. */
extern void fuzz_check(bool holds, const char *promise);

/* Free what palloc gave since the last call. */
extern void fuzz_free_all(void);

extern int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif /* POLL_TALLY_FUZZ_H */
