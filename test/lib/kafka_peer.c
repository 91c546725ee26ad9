/*
 * kafka_peer.c
 *	  A Kafka cluster of one broker for the relay's tests: librdkafka's mock cluster, which speaks the protocol and
 *	  forgets everything when it ends.
 *
 * The first line of its output is the address to connect to. Then it takes commands, a line each, and answers each
 * with "ok":
 *
 *	topic NAME PARTITIONS		make a topic
 *	errors API CODE COUNT		the next COUNT requests of this kind (8 is OffsetCommit, 0 Produce) get this error
 *	forgive API					take the errors back that were not met
 *
 * It ends with its input, so with whoever started it.
 */
#include <stdio.h>
#include <stdlib.h>

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#define MAX_ERRORS 1000

static int
push_errors(rd_kafka_mock_cluster_t *cluster, int api, int code, int count)
{
	rd_kafka_resp_err_t errors[MAX_ERRORS];

	if (count < 1 || count > MAX_ERRORS)
		return -1;
	for (int i = 0; i < count; i++)
		errors[i] = (rd_kafka_resp_err_t) code;
	rd_kafka_mock_push_request_errors_array(cluster, (int16_t) api, (size_t) count, errors);
	return 0;
}

static int
obey(rd_kafka_mock_cluster_t *cluster, const char *line)
{
	char		name[100];
	int			api,
				code,
				count;

	if (sscanf(line, "topic %99s %d", name, &count) == 2)
		return rd_kafka_mock_topic_create(cluster, name, count, 1) == RD_KAFKA_RESP_ERR_NO_ERROR ? 0 : -1;
	if (sscanf(line, "errors %d %d %d", &api, &code, &count) == 3)
		return push_errors(cluster, api, code, count);
	if (sscanf(line, "forgive %d", &api) == 1)
	{
		rd_kafka_mock_clear_request_errors(cluster, (int16_t) api);
		return 0;
	}
	return -1;
}

int
main(void)
{
	char		line[200];
	char		reason[500];
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	rd_kafka_t *handle;
	rd_kafka_mock_cluster_t *cluster;

	/* That no address to connect to is given is no news. */
	rd_kafka_conf_set(conf, "log_level", "3", NULL, 0);
	handle = rd_kafka_new(RD_KAFKA_PRODUCER, conf, reason, sizeof(reason));
	if (handle == NULL)
	{
		fprintf(stderr, "kafka_peer: %s\n", reason);
		return EXIT_FAILURE;
	}
	cluster = rd_kafka_mock_cluster_new(handle, 1);
	printf("%s\n", rd_kafka_mock_cluster_bootstraps(cluster));
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) != NULL)
	{
		if (obey(cluster, line) != 0)
		{
			fprintf(stderr, "kafka_peer: cannot do: %s", line);
			return EXIT_FAILURE;
		}
		printf("ok\n");
		fflush(stdout);
	}
	rd_kafka_mock_cluster_destroy(cluster);
	rd_kafka_destroy(handle);
	return EXIT_SUCCESS;
}
