/*
 * tally_text_target.c
 *		Fuzzes the text form of a tally.
 *
 * Promises: each choice accepted is an identifier; the canonical text of what
 * was accepted reads back as the same; a refusal has a reason and a place
 * within the text.
 */
#include "fuzz.h"

#include <setjmp.h>

#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"

#include "ident.h"
#include "tally_text.h"

static jmp_buf refused;

/* As the server does in 15: the first problem leaves the reader. */
static void
target_report(void *arg, TallyProblem problem, const char *text,
			  const char *place)
{
	fuzz_check(problem.fault != TALLY_FINE && problem.detail != NULL &&
				   problem.detail[0] != '\0',
			   "a refusal has a reason");
	fuzz_check(place >= text && place <= text + strlen(text),
			   "a refusal has a place");
	longjmp(refused, 1);
}

static void
target_append(StringInfo out, const TallyEntry *entries, int count)
{
	appendStringInfoChar(out, '{');
	for (int i = 0; i < count; i++)
		appendStringInfo(out, "%s\"%.*s\": " INT64_FORMAT, i > 0 ? ", " : "",
						 entries[i].length, entries[i].choice,
						 entries[i].count);
	appendStringInfoChar(out, '}');
}

static void
target_read(const char *text)
{
	TallyTextReport report = {target_report, NULL};
	TallyEntry *entries, *again;
	StringInfoData out;
	int count, count_again;

	entries = tally_text_read(text, strlen(text), PG_UTF8, report, &count);
	fuzz_check(entries != NULL, "what is not refused is accepted");
	initStringInfo(&out);
	target_append(&out, entries, count);
	again =
		tally_text_read(out.data, out.len, PG_UTF8, report, &count_again);
	fuzz_check(count == count_again, "the canonical text reads back");
	for (int i = 0; i < count; i++)
	{
		fuzz_check(ident_is_valid(entries[i].choice, entries[i].length),
				   "a choice is an identifier");
		fuzz_check(tally_compare_entries(&entries[i], &again[i]) == 0 &&
					   entries[i].count == again[i].count,
				   "the canonical text reads back");
	}
	(void) tally_sort(entries, count);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (setjmp(refused) == 0)
		target_read(fuzz_text(data, size));
	fuzz_free_all();
	return 0;
}
