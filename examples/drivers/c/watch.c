/*
 * Watches a poll with libpq: prints each state that it sees, and ends with the final one.
 *
 * usage: watch POLL        the server is that of PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE
 *
 * Any role can send on a channel and any message can be lost, so a notification only says that it is worth asking;
 * snapshot() tells what is true, after a notification as after a lost connection.
 */
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <libpq-fe.h>

/* Ask at least so often, should the connection be dead and not know it. */
#define ASK_MS 10000
#define FIRST_PAUSE_MS 50
#define LONGEST_PAUSE_MS 2000

/* What we have. As text, an epoch and a revision go back to the server as they came. */
static struct
{
	char epoch[65], revision[21];
	int gaps;
	bool final;
} state;
static int failures;

/* The client rule. True when there is another state to show. */
static bool
apply(const char *epoch, const char *revision, bool final)
{
	if (strcmp(epoch, state.epoch) == 0)
	{
		long long ours = atoll(state.revision), theirs = atoll(revision);

		if (theirs <= ours)
			return false; /* lower: late; equal: known */
		/* Counts are complete each time, so a gap is no loss. */
		if (theirs > ours + 1)
			state.gaps++;
	}
	snprintf(state.epoch, sizeof(state.epoch), "%s", epoch);
	snprintf(state.revision, sizeof(state.revision), "%s", revision);
	state.final = final;
	return true;
}

/* A statement's rows; NULL when the connection was lost. Other errors end the program. */
static PGresult *
query(PGconn *connection, const char *sql, int count, const char *const *values)
{
	PGresult *result =
		PQexecParams(connection, sql, count, NULL, values, NULL, NULL, 0);
	ExecStatusType status = PQresultStatus(result);

	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
		return result;
	PQclear(result);
	if (PQstatus(connection) == CONNECTION_OK)
	{
		fprintf(stderr, "watch: %s", PQerrorMessage(connection));
		exit(1);
	}
	return NULL;
}

/* False when the connection was lost. */
static bool
ask(PGconn *connection, const char *poll)
{
	const char *known[] = {poll, *state.epoch ? state.epoch : NULL,
						   *state.revision ? state.revision : NULL};
	PGresult *row = query(
		connection,
		"SELECT epoch, revision, final, included_position, counts, total"
		"  FROM poll_tally.snapshot(poll => $1, epoch => $2, after_revision => $3)",
		3, known);

	if (row == NULL)
		return false;
	failures = 0;
	/* No row: we have the newest. */
	if (PQntuples(row) == 1 &&
		apply(PQgetvalue(row, 0, 0), PQgetvalue(row, 0, 1),
			  *PQgetvalue(row, 0, 2) == 't'))
	{
		printf("revision %s, position %s: %s, total %s%s, gaps %d\n",
			   PQgetvalue(row, 0, 1), PQgetvalue(row, 0, 3),
			   PQgetvalue(row, 0, 4), PQgetvalue(row, 0, 5),
			   state.final ? ", final" : "", state.gaps);
		fflush(stdout);
	}
	PQclear(row);
	return true;
}

static bool
listen_to(PGconn *connection, const char *poll)
{
	char sql[128];
	PGresult *channel =
		query(connection, "SELECT poll_tally.channel($1)", 1, &poll);
	PGresult *done;

	if (channel == NULL)
		return false;
	/* A name that needs no quoting. */
	snprintf(sql, sizeof(sql), "LISTEN %s", PQgetvalue(channel, 0, 0));
	PQclear(channel);
	done = query(connection, sql, 0, NULL);
	PQclear(done);
	return done != NULL;
}

/* Until something was heard, or ASK_MS have passed; one question answers all that was heard. */
static void
wait_for_notification(PGconn *connection)
{
	struct pollfd socket = {PQsocket(connection), POLLIN, 0};
	PGnotify *heard;

	if ((heard = PQnotifies(connection)) == NULL)
		poll(&socket, 1, ASK_MS);
	else
		PQfreemem(heard);
	PQconsumeInput(connection); /* a lost connection shows when we ask */
	while ((heard = PQnotifies(connection)) != NULL)
		PQfreemem(heard);
}

/* Returns when the connection is lost, or the snapshot is the final one. */
static void
follow(PGconn *connection, const char *poll)
{
	/* Listen first, then ask: what is published in between is heard. */
	if (PQstatus(connection) != CONNECTION_OK || !listen_to(connection, poll))
		return;
	while (ask(connection, poll) && !state.final)
		wait_for_notification(connection);
}

/* Full jitter: those who failed together do not come back together. */
static void
pause_after(int count)
{
	double longest = FIRST_PAUSE_MS * (double) (1 << (count - 1));
	long ms =
		drand48() * (longest < LONGEST_PAUSE_MS ? longest : LONGEST_PAUSE_MS);

	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

int
main(int argc, char **argv)
{
	if (argc != 2)
	{
		fprintf(stderr, "usage: watch POLL\n");
		return 1;
	}
	srand48(time(NULL) ^ ((long) getpid() << 16));
	while (!state.final)
	{
		PGconn *connection = PQconnectdb("client_encoding=UTF8");

		follow(connection, argv[1]);
		if (!state.final)
		{
			fprintf(stderr, "watch: %s", PQerrorMessage(connection));
			failures = failures < 10 ? failures + 1 : 10;
			pause_after(failures);
		}
		PQfinish(connection);
	}
	return 0;
}
