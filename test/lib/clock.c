/*
 * clock.c
 *		A clock that a test can move: preloaded into a server, it adds to the time of day as many seconds as the file
 *		named by POLL_TALLY_CLOCK says, a signed decimal number in 16 bytes.  The monotonic clock stays as it is.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long
clock_offset(void)
{
	static const char *text;
	const char *name;
	char copy[17] = {0};

	if (text == NULL)
	{
		int file = -1;

		name = getenv("POLL_TALLY_CLOCK");
		if (name != NULL)
			file = open(name, O_RDONLY);
		if (file < 0)
			return 0;
		text = mmap(NULL, 16, PROT_READ, MAP_SHARED, file, 0);
		close(file);
		if (text == MAP_FAILED)
			abort();
	}
	for (int i = 0; i < 16; i++)
		copy[i] = text[i];
	return atol(copy);
}

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	static int (*real)(struct timeval *, void *);
	int result;

	if (real == NULL)
		real = (int (*)(struct timeval *, void *)) dlsym(RTLD_NEXT, "gettimeofday");
	result = real(now, zone);
	now->tv_sec += clock_offset();
	return result;
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	static int (*real)(clockid_t, struct timespec *);
	int result;

	if (real == NULL)
		real = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
	result = real(clock, now);
	if (clock == CLOCK_REALTIME)
		now->tv_sec += clock_offset();
	return result;
}

time_t
time(time_t *result)
{
	struct timeval now;

	gettimeofday(&now, NULL);
	if (result != NULL)
		*result = now.tv_sec;
	return now.tv_sec;
}
