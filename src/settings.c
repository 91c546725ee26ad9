/*
 * settings.c
 *		The settings poll_tally.*.
 *
 * A setting that weakens a limit is for superusers; one of the worker is read
 * from the configuration files.
 */
#include "postgres.h"

#include <limits.h>

#include "utils/guc.h"
#include "utils/varlena.h"

#include "settings.h"

int settings_max_body;
int settings_max_payload;
int settings_max_batch;
int settings_max_keys;
int settings_keep_snapshots;
char *settings_databases;
char *settings_worker_role;
bool settings_publish;
bool settings_log_publications;

/* A list of names as the server writes them: comma-separated, quoted if need be. */
static bool
settings_check_databases(char **newval, void **extra, GucSource source)
{
	char *copy = pstrdup(*newval);
	List *names;
	bool valid = SplitIdentifierString(copy, ',', &names);

	if (!valid)
		GUC_check_errdetail("List syntax is invalid.");
	list_free(names);
	pfree(copy);
	return valid;
}

static void
settings_define_limits(void)
{
	DefineCustomIntVariable("poll_tally.max_body",
							"Largest body that accept_json reads, in bytes.",
							NULL, &settings_max_body, 4096, 64, 1048576,
							PGC_SUSET, GUC_UNIT_BYTE, NULL, NULL, NULL);
	DefineCustomIntVariable("poll_tally.max_payload",
							"Largest payload of an event, in bytes of the "
							"detoasted jsonb value.",
							NULL, &settings_max_payload, 1048576, 0, 268435456,
							PGC_SUSET, GUC_UNIT_BYTE, NULL, NULL, NULL);
	DefineCustomIntVariable("poll_tally.max_batch", "Most events of a batch.",
							NULL, &settings_max_batch, 10000, 1, 1000000,
							PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("poll_tally.max_keys",
							"Most choices that an open-choice poll can hold.",
							NULL, &settings_max_keys, 1000000, 1, INT_MAX,
							PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("poll_tally.keep_snapshots",
							"Newest snapshots that are kept of each poll.",
							NULL, &settings_keep_snapshots, 100, 1, INT_MAX,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
}

static void
settings_define_worker(void)
{
	DefineCustomStringVariable(
		"poll_tally.databases", "Databases whose polls the worker publishes.",
		"A comma-separated list of names; * stands for all that have the extension.",
		&settings_databases, "*", PGC_SIGHUP, GUC_LIST_INPUT,
		settings_check_databases, NULL, NULL);
	DefineCustomStringVariable(
		"poll_tally.worker_role", "Role that the worker acts as.",
		"Empty: the owner of the extension's tables.", &settings_worker_role,
		"", PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable(
		"poll_tally.publish", "Whether the worker publishes snapshots.", NULL,
		&settings_publish, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable(
		"poll_tally.log_publications",
		"Whether a line is logged for each publication and close.", NULL,
		&settings_log_publications, false, PGC_SIGHUP, 0, NULL, NULL, NULL);
}

void
settings_define(void)
{
	settings_define_limits();
	settings_define_worker();
	MarkGUCPrefixReserved("poll_tally");
}
