/*
 * tally_number.c
 *		Reading a JSON number as a count.
 *
 * Invariant: the verdict depends on the number's value alone, not on how it is
 * written: 100, 100.0, 1e2 and 10000e-2 are one count.  It is exact, however
 * many digits there are, and plain C.
 */
#include "core.h"

#include "tally_number.h"

/* Digits of the largest bigint. */
#define TALLY_COUNT_DIGITS 19

/* An exponent beyond this is as good as it: no text has digits to make up. */
#define TALLY_EXPONENT_LIMIT (INT64_C(1) << 40)

/* A number digits * 10^exponent, the digits without zeros at either end. */
typedef struct TallyDecimal
{
	char digits[TALLY_COUNT_DIGITS];
	int64_t ndigits; /* all of them, also those beyond the array */
	int64_t exponent;
} TallyDecimal;

static bool
tally_number_is_digit(char character)
{
	return character >= '0' && character <= '9';
}

static void
tally_number_push(TallyDecimal *decimal, char digit)
{
	if (decimal->ndigits < TALLY_COUNT_DIGITS)
		decimal->digits[decimal->ndigits] = digit;
	decimal->ndigits++;
}

/* Read the digits before an exponent; returns where they end. */
static const char *
tally_number_read_digits(const char *at, TallyDecimal *decimal)
{
	bool fraction = false;
	int64_t zeros = 0; /* read, but perhaps the last ones */

	for (; tally_number_is_digit(*at) || *at == '.'; at++)
	{
		if (*at == '.')
		{
			fraction = true;
			continue;
		}
		if (fraction)
			decimal->exponent--;
		if (*at == '0')
		{
			zeros += decimal->ndigits > 0 ? 1 : 0;
			continue;
		}
		for (; zeros > 0; zeros--)
			tally_number_push(decimal, '0');
		tally_number_push(decimal, *at);
	}
	decimal->exponent += zeros;
	return at;
}

/* Read an exponent, if there is one; returns where it ends. */
static const char *
tally_number_read_exponent(const char *at, TallyDecimal *decimal)
{
	bool negative;
	int64_t exponent = 0;

	if (*at != 'e' && *at != 'E')
		return at;
	at++;
	negative = *at == '-';
	if (*at == '-' || *at == '+')
		at++;
	for (; tally_number_is_digit(*at); at++)
	{
		if (exponent < TALLY_EXPONENT_LIMIT)
			exponent = exponent * 10 + (*at - '0');
	}
	decimal->exponent += negative ? -exponent : exponent;
	return at;
}

/* The value of an integer of at most TALLY_COUNT_DIGITS digits. */
static TallyNumber
tally_number_convert(const TallyDecimal *decimal, bool negative, int64_t *count)
{
	uint64_t value = 0;
	uint64_t limit = negative ? UINT64_C(1) << 63 : (uint64_t) INT64_MAX;

	for (int64_t i = 0; i < decimal->ndigits + decimal->exponent; i++)
		value =
			value * 10 +
			(i < decimal->ndigits ? (uint64_t) (decimal->digits[i] - '0') : 0);
	if (value > limit)
		return TALLY_NUMBER_OUT_OF_RANGE;
	*count = (int64_t) (negative ? 0 - value : value);
	return TALLY_NUMBER_OK;
}

TallyNumber
tally_number_read(const char *token, int64_t *count)
{
	TallyDecimal decimal = {{0}, 0, 0};
	bool negative = *token == '-';
	const char *begin = token + (negative ? 1 : 0);
	const char *end = tally_number_read_digits(begin, &decimal);

	if (end == begin)
		return TALLY_NUMBER_NO_INTEGER;
	end = tally_number_read_exponent(end, &decimal);
	*count = 0;
	if (decimal.ndigits == 0)
		return TALLY_NUMBER_OK;
	if (decimal.exponent < 0 || *end != '\0')
		return TALLY_NUMBER_NO_INTEGER;
	if (decimal.ndigits + decimal.exponent > TALLY_COUNT_DIGITS)
		return TALLY_NUMBER_OUT_OF_RANGE;
	return tally_number_convert(&decimal, negative, count);
}
