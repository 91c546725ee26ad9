/*
 * batches.c
 *		Sends batches of new events to a server, as fast as it takes them.
 *
 * usage: batches CONNINFO STATEMENT CLIENTS EVENTS POLLS SECONDS BATCHES
 *
 * STATEMENT is the name of a file with one of
 *	- a statement that is prepared once and gets four arrays of EVENTS elements
 *	  in their binary form: $1 text[] ids, $2 text[] polls, $3 text[] choices,
 *	  $4 jsonb[] payloads.  It returns a row an event, with the verdict
 *	  "accepted" in its second column; any other one ends the program.
 *	- COPY ... FROM STDIN, which gets rows of poll number, position, id, votes
 *	  and payload.
 *
 * The ids are random UUIDs; event n of a batch goes to poll n mod POLLS + 1 and
 * to choice 0 or 1 in turn.  Each client sends for SECONDS, or BATCHES batches if
 * SECONDS is 0, one batch a transaction.  Prints how many events were sent, and
 * the seconds from the first batch to the end of the last one.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include <libpq-fe.h>

#define OID_TEXT 25
#define OID_JSONB 3802
#define OID_TEXT_ARRAY 1009
#define OID_JSONB_ARRAY 3807
#define ARRAYS 4
#define LONGEST_ELEMENT 100
#define LONGEST_STATEMENT 16384

typedef struct Buffer
{
	char *data;
	size_t length;
} Buffer;

typedef struct Client
{
	pthread_t thread;
	PGconn *connection;
	Buffer arrays[ARRAYS]; /* the first holds the rows of a COPY */
	uint64_t random;
	int64_t position;
	long sent;
	double started;
	double ended;
} Client;

static char statement[LONGEST_STATEMENT];
static bool is_copy;
static int events;
static int polls;
static double seconds;
static long batches;
static pthread_barrier_t all_ready;

static void
fail(const char *what, const char *why)
{
	fprintf(stderr, "batches: %s: %s\n", what, why);
	exit(1);
}

static double
now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double) now.tv_sec + now.tv_nsec / 1e9;
}

/* xorshift64*: good enough for ids that have to differ. */
static uint64_t
next_random(Client *client)
{
	client->random ^= client->random >> 12;
	client->random ^= client->random << 25;
	client->random ^= client->random >> 27;
	return client->random * UINT64_C(0x2545F4914F6CDD1D);
}

static int
print_id(Client *client, char *id)
{
	uint64_t high = next_random(client);
	uint64_t low = next_random(client);

	return sprintf(id, "%08x-%04x-4%03x-%04x-%012llx", (unsigned) (high >> 32),
				   (unsigned) (high >> 16 & 0xffff), (unsigned) (high & 0xfff),
				   (unsigned) (0x8000 | (low >> 48 & 0x3fff)),
				   (unsigned long long) (low & UINT64_C(0xffffffffffff)));
}

static int
print_payload(Client *client, char *payload)
{
	return sprintf(payload, "{\"device\": \"phone\", \"ms\": %u}",
				   (unsigned) (next_random(client) % 100000));
}

/* --- arrays in their binary form -------------------------------------------- */

static void
put_number(Buffer *buffer, uint32_t number)
{
	number = htonl(number);
	memcpy(buffer->data + buffer->length, &number, sizeof(number));
	buffer->length += sizeof(number);
}

static void
put_array_head(Buffer *buffer, uint32_t element_oid)
{
	buffer->length = 0;
	put_number(buffer, 1); /* dimensions */
	put_number(buffer, 0); /* no NULL */
	put_number(buffer, element_oid);
	put_number(buffer, (uint32_t) events);
	put_number(buffer, 1); /* lower bound */
}

static void
put_element(Buffer *buffer, const char *text, int length)
{
	put_number(buffer, (uint32_t) length);
	memcpy(buffer->data + buffer->length, text, (size_t) length);
	buffer->length += (size_t) length;
}

static void
fill_arrays(Client *client)
{
	char text[LONGEST_ELEMENT];
	int n;

	put_array_head(&client->arrays[0], OID_TEXT);
	put_array_head(&client->arrays[1], OID_TEXT);
	put_array_head(&client->arrays[2], OID_TEXT);
	put_array_head(&client->arrays[3], OID_JSONB);
	for (n = 0; n < events; n++)
	{
		put_element(&client->arrays[0], text, print_id(client, text));
		put_element(&client->arrays[1], text,
					sprintf(text, "%d", n % polls + 1));
		put_element(&client->arrays[2], n % 2 == 0 ? "0" : "1", 1);
		/* jsonb is sent as its text behind a version number. */
		text[0] = 1;
		put_element(&client->arrays[3], text,
					print_payload(client, text + 1) + 1);
	}
}

static void
fill_rows(Client *client)
{
	char *to = client->arrays[0].data;
	int n;

	for (n = 0; n < events; n++)
	{
		to += sprintf(to, "%d\t%lld\t", n % polls + 1,
					  (long long) client->position++);
		to += print_id(client, to);
		to += sprintf(to, "\t{\"%d\": 1}\t", n % 2);
		to += print_payload(client, to);
		*to++ = '\n';
	}
	client->arrays[0].length = (size_t) (to - client->arrays[0].data);
}

/* --- sending ---------------------------------------------------------------- */

static void
send_arrays(Client *client)
{
	const char *values[ARRAYS];
	int lengths[ARRAYS];
	const int binary[ARRAYS] = {1, 1, 1, 1};
	PGresult *result;
	int n;

	fill_arrays(client);
	for (n = 0; n < ARRAYS; n++)
	{
		values[n] = client->arrays[n].data;
		lengths[n] = (int) client->arrays[n].length;
	}
	result = PQexecPrepared(client->connection, "batch", ARRAYS, values,
							lengths, binary, 0);
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		fail("batch", PQerrorMessage(client->connection));
	if (PQntuples(result) != events)
		fail("batch", "not one row an event");
	for (n = 0; n < events; n++)
	{
		if (strcmp(PQgetvalue(result, n, 1), "accepted") != 0)
			fail("batch", PQgetvalue(result, n, 1));
	}
	PQclear(result);
}

static void
send_rows(Client *client)
{
	PGresult *result;

	fill_rows(client);
	result = PQexec(client->connection, statement);
	if (PQresultStatus(result) != PGRES_COPY_IN)
		fail("COPY", PQerrorMessage(client->connection));
	PQclear(result);
	if (PQputCopyData(client->connection, client->arrays[0].data,
					  (int) client->arrays[0].length) != 1 ||
		PQputCopyEnd(client->connection, NULL) != 1)
		fail("COPY", PQerrorMessage(client->connection));
	result = PQgetResult(client->connection);
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		fail("COPY", PQerrorMessage(client->connection));
	PQclear(result);
	while ((result = PQgetResult(client->connection)) != NULL)
		PQclear(result);
}

static void *
run_client(void *argument)
{
	Client *client = argument;
	long done = 0;

	pthread_barrier_wait(&all_ready);
	client->started = now_s();
	do
	{
		if (is_copy)
			send_rows(client);
		else
			send_arrays(client);
		done++;
		client->ended = now_s();
	} while (seconds > 0 ? client->ended < client->started + seconds
						 : done < batches);
	client->sent = done * events;
	return NULL;
}

static void
open_client(Client *client, const char *conninfo)
{
	const Oid types[ARRAYS] = {OID_TEXT_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY,
							   OID_JSONB_ARRAY};
	PGresult *result;
	int n;

	if (getrandom(&client->random, sizeof(client->random), 0) !=
		sizeof(client->random))
		fail("getrandom", "no random number");
	client->random |= 1;
	/* Positions of rows: a range of its own for each client and run. */
	client->position = (int64_t) (client->random >> 2 & ~UINT64_C(0xffffffff));
	for (n = 0; n < ARRAYS; n++)
	{
		client->arrays[n].data =
			malloc((size_t) (events + 1) * 2 * LONGEST_ELEMENT);
		if (client->arrays[n].data == NULL)
			fail("malloc", "out of memory");
	}
	client->connection = PQconnectdb(conninfo);
	if (PQstatus(client->connection) != CONNECTION_OK)
		fail("connection", PQerrorMessage(client->connection));
	if (is_copy)
		return;
	result = PQprepare(client->connection, "batch", statement, ARRAYS, types);
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		fail("prepare", PQerrorMessage(client->connection));
	PQclear(result);
}

static void
read_statement(const char *path)
{
	FILE *file = fopen(path, "r");
	const char *from = statement;

	if (file == NULL)
		fail(path, "cannot be read");
	if (fread(statement, 1, sizeof(statement) - 1, file) >=
		sizeof(statement) - 1)
		fail(path, "too long");
	fclose(file);
	/* Behind the comment at its top. */
	while (strncmp(from, "--", 2) == 0)
	{
		from = strchr(from, '\n');
		if (from == NULL)
			fail(path, "holds no statement");
		from++;
	}
	is_copy = strncmp(from, "COPY", 4) == 0;
}

int
main(int argc, char **argv)
{
	Client *clients;
	double started = 0;
	double ended = 0;
	long sent = 0;
	int count;
	int n;

	if (argc != 8)
		fail("usage",
			 "CONNINFO STATEMENT CLIENTS EVENTS POLLS SECONDS BATCHES");
	read_statement(argv[2]);
	count = atoi(argv[3]);
	events = atoi(argv[4]);
	polls = atoi(argv[5]);
	seconds = atof(argv[6]);
	batches = atol(argv[7]);
	if (count < 1 || events < 1 || polls < 1 || (seconds <= 0 && batches < 1))
		fail("usage", "nothing to do");
	clients = calloc((size_t) count, sizeof(Client));
	if (clients == NULL || pthread_barrier_init(&all_ready, NULL, count) != 0)
		fail("clients", "out of memory");
	for (n = 0; n < count; n++)
		open_client(&clients[n], argv[1]);
	for (n = 0; n < count; n++)
	{
		if (pthread_create(&clients[n].thread, NULL, run_client, &clients[n]) !=
			0)
			fail("clients", "no thread");
	}
	for (n = 0; n < count; n++)
	{
		pthread_join(clients[n].thread, NULL);
		sent += clients[n].sent;
		if (n == 0 || clients[n].started < started)
			started = clients[n].started;
		if (clients[n].ended > ended)
			ended = clients[n].ended;
		PQfinish(clients[n].connection);
	}
	printf("events %ld seconds %.6f\n", sent, ended - started);
	return 0;
}
