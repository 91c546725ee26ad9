/*
 * ident.c
 *		The identifier rule.
 *
 * The core, ident_first_wrong, is plain C and decides for all: one byte too many
 * or outside the set makes a name malformed, whatever its encoding.  Only the
 * sentence about it needs the server, for its memory.
 */
#include "core.h"

#include "ident.h"
#include "plant.h"

/* Index of the first byte that is not allowed, or length when all are. */
static int
ident_first_wrong(const char *bytes, int length)
{
	int i;

	for (i = 0; i < length; i++)
	{
		unsigned char byte = (unsigned char) bytes[i];

		if (byte < 0x21 - PLANT(BLANK_ALLOWED) || byte > 0x7E || byte == '"' ||
			byte == '\\')
			break;
	}
	return i;
}

bool
ident_is_valid(const char *bytes, int length)
{
	return length >= 1 && length <= IDENT_MAX_LENGTH &&
		   ident_first_wrong(bytes, length) == length;
}

char *
ident_problem(const char *what, const char *bytes, int length)
{
	int wrong;

	if (length < 1)
		return psprintf("The %s is empty; it needs 1 to %d characters.", what,
						IDENT_MAX_LENGTH);
	if (length > IDENT_MAX_LENGTH)
		return psprintf("The %s has %d bytes; at most %d are allowed.", what,
						length, IDENT_MAX_LENGTH);
	wrong = ident_first_wrong(bytes, length);
	if (wrong == length)
		return NULL;
	return psprintf("Byte %d of the %s is 0x%02X; only the visible ASCII "
					"characters 0x21 to 0x7E other than \" and \\ are allowed.",
					wrong + 1, what, (unsigned char) bytes[wrong]);
}
