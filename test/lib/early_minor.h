/*
 * early_minor.h
 *		For a build with the headers of a late minor release of 15 that an early
 *		one is to load: what only the late server has, on top of what both have.
 */
#include <stddef.h>

extern void *palloc(size_t size);

#define palloc_mul early_palloc_mul

__attribute__((weak)) void *early_palloc_mul(size_t size, size_t count);

__attribute__((weak)) void *
early_palloc_mul(size_t size, size_t count)
{
	size_t bytes;

	if (__builtin_mul_overflow(size, count, &bytes))
		__builtin_trap();
	return palloc(bytes);
}
