/*
 * fuzz.c
 *		What the fuzz targets share: memory and checks.
 *
 * Defines all that PostgreSQL's own fe_memutils.c does, which is thereby left
 * out of the library that it is in.
 */
#include "fuzz.h"

#include "common/jsonapi.h"

#define FUZZ_MAX_ENTRIES (1024 * 1024)

typedef struct FuzzPiece
{
	struct FuzzPiece *next;
	void *memory;
} FuzzPiece;

static FuzzPiece *pieces;

static void *
fuzz_take(size_t size)
{
	FuzzPiece *piece = malloc(sizeof(FuzzPiece));
	void *memory = malloc(size);

	if (piece == NULL || memory == NULL)
		abort();
	piece->memory = memory;
	piece->next = pieces;
	pieces = piece;
	return memory;
}

static FuzzPiece **
fuzz_find(void *memory)
{
	FuzzPiece **at = &pieces;

	while (*at != NULL && (*at)->memory != memory)
		at = &(*at)->next;
	if (*at == NULL)
		abort(); /* freed twice, or never taken */
	return at;
}

void
fuzz_free_all(void)
{
	while (pieces != NULL)
		pfree(pieces->memory);
}

void
pfree(void *memory)
{
	FuzzPiece **at = fuzz_find(memory);
	FuzzPiece *piece = *at;

	*at = piece->next;
	free(piece->memory);
	free(piece);
}

void *
repalloc(void *memory, Size size)
{
	FuzzPiece *piece = *fuzz_find(memory);

	piece->memory = realloc(memory, size);
	if (piece->memory == NULL)
		abort();
	return piece->memory;
}

void *
palloc(Size size)
{
	return fuzz_take(size);
}

void *
palloc0(Size size)
{
	return memset(fuzz_take(size), 0, size);
}

void *
palloc_extended(Size size, int flags)
{
	return palloc0(size);
}

char *
pnstrdup(const char *text, Size size)
{
	size_t length = strnlen(text, size);
	char *copy = fuzz_take(length + 1);

	memcpy(copy, text, length);
	copy[length] = '\0';
	return copy;
}

char *
pstrdup(const char *text)
{
	return pnstrdup(text, strlen(text));
}

void *
pg_malloc(size_t size)
{
	return palloc(size);
}

void *
pg_malloc0(size_t size)
{
	return palloc0(size);
}

void *
pg_malloc_extended(size_t size, int flags)
{
	return palloc0(size);
}

void *
pg_realloc(void *memory, size_t size)
{
	return memory == NULL ? palloc(size) : repalloc(memory, size);
}

char *
pg_strdup(const char *text)
{
	return pstrdup(text);
}

void
pg_free(void *memory)
{
	if (memory != NULL)
		pfree(memory);
}

/* The parser's words for an error, which 15 has in the server only. */
char *
json_errdetail(JsonParseErrorType error, JsonLexContext *lexer)
{
	char *words = palloc(32);

	snprintf(words, 32, "JSON error %d", (int) error);
	return words;
}

/* Beyond what an input of the fuzzer's can need. */
TallyEntry *
tally_alloc_entries(int64 count)
{
	fuzz_check(count >= 0 && count <= FUZZ_MAX_ENTRIES,
			   "no more entries than the input holds");
	return palloc(sizeof(TallyEntry) * count);
}

char *
fuzz_bytes(const uint8_t *data, size_t size)
{
	char *bytes = palloc(size);

	if (size > 0)
		memcpy(bytes, data, size);
	return bytes;
}

char *
fuzz_text(const uint8_t *data, size_t size)
{
	char *text = palloc(size + 1);

	if (size > 0)
		memcpy(text, data, size);
	text[size] = '\0';
	return text;
}

void
fuzz_check(bool holds, const char *promise)
{
	if (holds)
		return;
	fprintf(stderr, "broken promise: %s\n", promise);
	abort();
}
