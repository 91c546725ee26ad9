/*
 * grants.c
 *		The four roles, as grants that the caller issues.
 *
 * What a role may do is one list below; nothing else grants anything.  The
 * statements run as the caller, who needs the grant option.  Objects are not
 * overloaded, so that a function's name is enough.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"

#include "plant.h"
#include "store.h"

/* Functions that values of our types, and the views, need. */
#define GRANTS_FUNCTIONS_OF_TYPES                                              \
	"add", "subtract", "negate", "equal", "not_equal", "get", "total", "each", \
		"make_tally", "lane", "seq", "version", "library_version", "tally_lt", \
		"tally_le", "tally_gt", "tally_ge", "tally_compare", "tally_hash",     \
		"tally_hash_extended", "tally_to_jsonb", "tally_to_json",              \
		"tally_from_jsonb", "sum", "tally_sum_transition",                     \
		"tally_sum_combine", "tally_sum_serialize", "tally_sum_deserialize",   \
		"tally_sum_final", "position_eq", "position_ne", "position_lt",        \
		"position_le", "position_gt", "position_ge", "position_compare",       \
		"position_hash", "position_hash_extended", "make_position"

static const char *const type_functions[] = {GRANTS_FUNCTIONS_OF_TYPES, NULL};

/*
 * For tables, views and functions of the role's own that hold such values.  Not
 * the types of rows: a column of one would keep an update from adding to it.
 */
static const char *const value_types[] = {"tally", "event_position", "outcome",
										  NULL};

static const char *const submitter_functions[] = {
	"accept_event",   "accept_event_or_raise", "accept_events",
	"accept_json",    "accept_rows",           "event_status",
	"advance_source", "source_position",       NULL};
static const char *const submitter_inboxes[] = {"inbox", NULL};

static const char *const viewer_functions[] = {
	"snapshot", "snapshot_message", "channel", "includes",
	"epoch_of", "observe_revision", NULL};
static const char *const viewer_views[] = {"published", "snapshots", NULL};

static const char *const auditor_functions[] = {
	"snapshot",        "snapshot_message", "channel",         "includes",
	"epoch_of",        "event_status",     "results_of",      "verify_poll",
	"pending_entries", "pending_count",    "pending_counts",  "pending_lane",
	"events_after",    "advance_frontier", "source_position", NULL};
static const char *const auditor_views[] = {
	"published", "snapshots", "polls", "choices", "results", "counted",
	"totals",    "events",    "lag",   "sources", NULL};

static const char *const admin_functions[] = {"create_poll",
											  "add_choice",
											  "close_poll",
											  "drop_poll",
											  "publish",
											  "renew_epoch",
											  "create_counter",
											  "alter_poll",
											  "set_eligible",
											  "retract_event",
											  "rebuild_tallies",
											  "reset_stats",
											  "stats_counters",
											  "worker_rows",
											  "publisher_counts",
											  "blocker_rows",
											  "stalled",
											  "observe_revision",
											  NULL};
static const char *const admin_views[] = {"stats", "workers", "blockers",
										  "metrics", NULL};

static void
grants_run(const char *sql)
{
	int result = SPI_execute(sql, false, 0);

	if (result < 0)
		elog(ERROR, "SPI_execute failed: %s", SPI_result_code_string(result));
}

/* GRANT or REVOKE a privilege on each object of a list that ends in NULL. */
static void
grants_each(bool grant, const char *privilege, const char *kind,
			const char *const *names, const char *role)
{
	for (; *names != NULL; names++)
	{
		char *sql =
			psprintf("%s %s ON %s " STORE_SCHEMA ".%s %s %s",
					 grant ? "GRANT" : "REVOKE", privilege, kind,
					 quote_identifier(*names), grant ? "TO" : "FROM", role);

		grants_run(sql);
		pfree(sql);
	}
}

static void
grants_functions(const char *const *names, const char *role)
{
	grants_each(true, "EXECUTE", "ROUTINE", names, role);
}

/* The role that an argument names, quoted; and SPI entered as the caller. */
static const char *
grants_begin(FunctionCallInfo fcinfo)
{
	Oid role = PG_GETARG_OID(0);
	const char *name = quote_identifier(GetUserNameFromId(role, false));

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	return name;
}

static Datum
grants_end(void)
{
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	PG_RETURN_VOID();
}

/* What every role needs: the schema, and the functions of our types. */
static void
grants_common(const char *role)
{
	grants_run(psprintf("GRANT USAGE ON SCHEMA " STORE_SCHEMA " TO %s", role));
	grants_functions(type_functions, role);
	grants_each(true, "USAGE", "TYPE", value_types, role);
}

/*
 * grant_submitter(role regrole), grant_viewer, grant_auditor, grant_admin,
 * revoke_from: all RETURNS void; 42704 for a role that is gone, 42501 when the
 * caller may not grant.
 */
PG_FUNCTION_INFO_V1(grant_submitter);
Datum
grant_submitter(PG_FUNCTION_ARGS)
{
	const char *role = grants_begin(fcinfo);

	grants_common(role);
	grants_functions(submitter_functions, role);
	grants_each(true, "INSERT", "TABLE", submitter_inboxes, role);
	if (PLANT(GRANT_TOO_MANY))
		grants_each(true, "SELECT", "TABLE", auditor_views, role);
	return grants_end();
}

PG_FUNCTION_INFO_V1(grant_viewer);
Datum
grant_viewer(PG_FUNCTION_ARGS)
{
	const char *role = grants_begin(fcinfo);

	grants_common(role);
	grants_functions(viewer_functions, role);
	grants_each(true, "SELECT", "TABLE", viewer_views, role);
	return grants_end();
}

static void
grants_audit(const char *role)
{
	grants_common(role);
	grants_functions(auditor_functions, role);
	grants_each(true, "SELECT", "TABLE", auditor_views, role);
}

PG_FUNCTION_INFO_V1(grant_auditor);
Datum
grant_auditor(PG_FUNCTION_ARGS)
{
	grants_audit(grants_begin(fcinfo));
	return grants_end();
}

PG_FUNCTION_INFO_V1(grant_admin);
Datum
grant_admin(PG_FUNCTION_ARGS)
{
	const char *role = grants_begin(fcinfo);

	grants_audit(role);
	grants_functions(admin_functions, role);
	grants_each(true, "SELECT", "TABLE", admin_views, role);
	return grants_end();
}

PG_FUNCTION_INFO_V1(revoke_from);
Datum
revoke_from(PG_FUNCTION_ARGS)
{
	const char *role = grants_begin(fcinfo);

	grants_run(psprintf(
		"REVOKE ALL ON ALL ROUTINES IN SCHEMA " STORE_SCHEMA " FROM %s", role));
	grants_run(psprintf(
		"REVOKE ALL ON ALL TABLES IN SCHEMA " STORE_SCHEMA " FROM %s", role));
	grants_each(false, "ALL", "TYPE", value_types, role);
	grants_run(psprintf("REVOKE ALL ON SCHEMA " STORE_SCHEMA " FROM %s", role));
	return grants_end();
}
