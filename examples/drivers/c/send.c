/*
 * Sends events to a poll with libpq, and gets each counted once, whatever is lost on the way.
 *
 * usage: send POLL        the server is that of PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE
 *
 * An event is made once, id and time included, and sent with the same content until there is an answer. When the
 * connection is lost before the answer, nobody knows whether the event was committed; the retry knows: it gets
 * "duplicate", and the same receipt.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include <libpq-fe.h>

#define TRIES 8
#define FIRST_PAUSE_MS 50
#define LONGEST_PAUSE_MS 2000
#define lengthof(array) (sizeof(array) / sizeof((array)[0]))

/* Parameters have no type of their own here, so no cast is needed: they take the type of the argument. */
static const char *const accept_event =
	"SELECT outcome, event_id, position, attempt, accepted_at, retryable, differs, detail"
	"  FROM poll_tally.accept_event(poll => $1, event_id => $2, choice => $3, principal => $4, votes => $5,"
	"                               payload => $6, occurred_at => $7)";
static const char *const accept_events =
	"SELECT outcome, event_id, position, attempt, accepted_at, retryable, differs, detail, ord"
	"  FROM poll_tally.accept_events(poll => $1, event_ids => $2, principals => $3, votes => $4, payloads => $5,"
	"                                occurred_ats => $6)";
enum
{
	OUTCOME,
	EVENT_ID,
	POSITION,
	ATTEMPT,
	ACCEPTED_AT,
	RETRYABLE,
	DIFFERS,
	DETAIL,
	ORD
};

/* choice, or votes: counts per choice. In a real system, the sender stores this before it sends it. */
typedef struct Event
{
	const char *poll, *principal, *choice, *votes, *payload;
	char event_id[37], occurred_at[32];
} Event;

static PGconn *connection;

static void
die(const char *what, const char *why)
{
	fprintf(stderr, "send: %s: %s\n", what, why);
	exit(1);
}

/* The event with an id, a random UUID, and a time. */
static Event
new_event(Event event)
{
	unsigned char r[16];
	time_t now = time(NULL);

	if (getrandom(r, sizeof(r), 0) != sizeof(r))
		die("getrandom", strerror(errno));
	snprintf(
		event.event_id, sizeof(event.event_id),
		"%02x%02x%02x%02x-%02x%02x-4%x%02x-%x%x%02x-%02x%02x%02x%02x%02x%02x",
		r[0], r[1], r[2], r[3], r[4], r[5], r[6] & 15, r[7], 8 + (r[8] & 3),
		r[8] >> 4, r[9], r[10], r[11], r[12], r[13], r[14], r[15]);
	strftime(event.occurred_at, sizeof(event.occurred_at), "%FT%TZ",
			 gmtime(&now));
	return event;
}

/* Full jitter: those who failed together do not come back together. */
static void
pause_after(int failures)
{
	double longest = FIRST_PAUSE_MS * (double) (1 << (failures - 1));
	long ms =
		drand48() * (longest < LONGEST_PAUSE_MS ? longest : LONGEST_PAUSE_MS);

	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/*
 * The rows of a statement, which outside of BEGIN is a transaction of its own. After a serialization failure (40001), a
 * deadlock (40P01) or a lost connection it is done again with the same values.
 */
static PGresult *
transaction(const char *sql, int count, const char *const *values)
{
	for (int failures = 1;; failures++)
	{
		PGresult *result = NULL;
		const char *code;

		if (connection == NULL)
			connection = PQconnectdb("client_encoding=UTF8");
		if (PQstatus(connection) == CONNECTION_OK)
		{
			result = PQexecParams(connection, sql, count, NULL, values, NULL,
								  NULL, 0);
			if (PQresultStatus(result) == PGRES_TUPLES_OK)
				return result;
		}
		code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
		if (failures == TRIES || (PQstatus(connection) == CONNECTION_OK &&
								  (code == NULL || (strcmp(code, "40001") &&
													strcmp(code, "40P01")))))
			die("no answer", PQerrorMessage(connection));
		PQclear(result);
		if (PQstatus(connection) != CONNECTION_OK)
		{
			PQfinish(connection);
			connection = NULL;
		}
		pause_after(failures);
	}
}

/* True when the event of this row is counted, now or by an earlier try; whatever else the outcome is, it is not. */
static bool
counted(const PGresult *rows, int row)
{
	const char *outcome = PQgetvalue(rows, row, OUTCOME);

	return strcmp(outcome, "accepted") == 0 ||
		   strcmp(outcome, "duplicate") == 0;
}

static void
show(const char *name, const PGresult *rows, int row)
{
	const char *outcome = PQgetvalue(rows, row, OUTCOME),
			   *detail = PQgetvalue(rows, row, DETAIL);
	bool retryable = strcmp(PQgetvalue(rows, row, RETRYABLE), "t") == 0;

	if (counted(rows, row))
		printf("%s: %s at %s, attempt %s\n", name, outcome,
			   PQgetvalue(rows, row, POSITION), PQgetvalue(rows, row, ATTEMPT));
	else
	{
		printf("%s: refused, %s: %s", name,
			   retryable ? "try later" : "for good", outcome);
		if (!PQgetisnull(rows, row, DIFFERS))
		{
			/* {votes,payload} */
			const char *fields = PQgetvalue(rows, row, DIFFERS);

			printf(" of %.*s", (int) strlen(fields) - 2, fields + 1);
		}
		if (*detail)
			printf(" (%s)", detail);
		putchar('\n');
	}
}

/* True when the event is counted. */
static bool
send_event(const char *name, const Event *e)
{
	bool is_counted;
	const char *values[] = {e->poll,  e->event_id, e->choice,     e->principal,
							e->votes, e->payload,  e->occurred_at};
	PGresult *rows = transaction(accept_event, lengthof(values), values);

	show(name, rows, 0);
	is_counted = counted(rows, 0);
	PQclear(rows);
	return is_counted;
}

/* Appends an element to the text of an array: {"a","b",NULL}. */
static void
append_element(char **array, const char *element)
{
	size_t length = *array ? strlen(*array) : 0;
	char *to;

	*array = realloc(*array, length + (element ? 2 * strlen(element) : 0) +
								 sizeof("{NULL,}"));
	if (*array == NULL)
		die("realloc", strerror(errno));
	to = *array + (length ? length - 1 : 0);
	*to++ = length ? ',' : '{';
	if (element == NULL)
		to = stpcpy(to, "NULL");
	else
	{
		*to++ = '"';
		for (; *element; *to++ = *element++)
		{
			if (*element == '"' || *element == '\\')
				*to++ = '\\';
		}
		*to++ = '"';
	}
	strcpy(to, "}");
}

/* One receipt an event, in their order. Each has its own outcome: look at every one. */
static void
send_batch(const char *poll, const Event *events, int count)
{
	char *arrays[5] = {NULL};
	PGresult *rows;

	for (const Event *e = events; e < events + count; e++)
	{
		const char *elements[] = {e->event_id, e->principal, e->votes,
								  e->payload, e->occurred_at};

		for (size_t i = 0; i < lengthof(elements); i++)
			append_element(&arrays[i], elements[i]);
	}
	rows = transaction(accept_events, 6,
					   (const char *[]){poll, arrays[0], arrays[1], arrays[2],
										arrays[3], arrays[4]});
	for (int row = 0; row < PQntuples(rows); row++)
	{
		char name[32];

		snprintf(name, sizeof(name), "batch %s", PQgetvalue(rows, row, ORD));
		show(name, rows, row);
	}
	PQclear(rows);
	for (size_t i = 0; i < lengthof(arrays); i++)
		free(arrays[i]);
}

int
main(int argc, char **argv)
{
	char other_poll[80];
	const char *poll = argc == 2 ? argv[1] : NULL;
	long seed;
	Event ann, bob, batch[4];

	if (poll == NULL)
		die("usage", "send POLL");
	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		die("getrandom", strerror(errno));
	srand48(seed);
	ann = new_event((Event){poll, "ann", .choice = "soup"});
	bob = new_event((Event){
		poll, "bob", .votes = "{\"soup\": 2, \"pasta\": 1}",
		.payload =
			"{\"table\": 7, \"note\": \"no \\\"salt\\\" \\\\ très chaud\"}"});
	send_event("one choice", &ann);
	send_event("the same again", &ann);
	send_event("votes and payload", &bob);
	bob.votes = "{\"pasta\": 3}";
	send_event("other votes, same id", &bob);
	ann = new_event((Event){poll, "cyd", .choice = "stew"});
	send_event("unknown choice", &ann);
	snprintf(other_poll, sizeof(other_poll), "no-%s", poll);
	ann = new_event((Event){other_poll, "cyd", .choice = "soup"});
	send_event("unknown poll", &ann);
	batch[0] = batch[2] = new_event(
		(Event){poll, "dan", .votes = "{\"salad\": 1}", .payload = "[]"});
	batch[1] = new_event((Event){poll, "eve", .votes = "{\"salad\": 4}",
								 .payload = "[\"a \\\"list\\\"\", null]"});
	batch[3] = new_event((Event){poll, "eve", .votes = "{\"salad\": 11}"});
	send_batch(poll, batch, lengthof(batch));
	PQfinish(connection);
	return 0;
}
