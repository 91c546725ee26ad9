/*
 * slow_disk.c
 *		Preloaded into a server: fdatasync() becomes a sleep of a length that is known.
 *
 * For a write-ahead log on tmpfs, where a flush costs nothing, so that the disk of
 * the day's neighbours is not what is measured.  All that leads to the flush, and
 * who waits for whom, stays real; unlike a disk, a sleep never queues.
 *
 * The file named by SLOW_DISK holds three 64-bit numbers: the length in
 * nanoseconds, which may be changed at any time, how often was slept, and for how
 * long in all.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)

typedef struct SlowDisk
{
	_Atomic int64_t length_ns;
	_Atomic int64_t sleeps;
	_Atomic int64_t slept_ns;
} SlowDisk;

static SlowDisk *slow_disk;

/* A program that was to have a slow disk and has none must not be measured. */
static void
slow_disk_fail(const char *what)
{
	perror(what);
	_exit(127);
}

__attribute__((constructor)) static void
slow_disk_open(void)
{
	const char *path = getenv("SLOW_DISK");
	int file;

	if (path == NULL)
		slow_disk_fail("SLOW_DISK is not set");
	file = open(path, O_RDWR | O_CLOEXEC);
	if (file < 0)
		slow_disk_fail(path);
	slow_disk = mmap(NULL, sizeof(SlowDisk), PROT_READ | PROT_WRITE, MAP_SHARED,
					 file, 0);
	if (slow_disk == MAP_FAILED)
		slow_disk_fail(path);
	close(file);
	/* Without this the kernel may add 50 us to each sleep. */
	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
}

static int64_t
slow_disk_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

int
fdatasync(int fd)
{
	int64_t start = slow_disk_now_ns();
	int64_t end = start + slow_disk->length_ns;
	struct timespec until = {end / NS_PER_S, end % NS_PER_S};

	(void) fd;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) ==
		   EINTR)
		;
	slow_disk->sleeps++;
	slow_disk->slept_ns += slow_disk_now_ns() - start;
	return 0;
}
