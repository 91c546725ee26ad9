/*
 * store_sql.c
 *		The seam to the tables, by SQL: what happens once a poll or a second.
 *
 * Statements are constants, prepared once a session, and run as the owner of the
 * ledger with a search path that holds nothing but the system's schema.
 */
#include "postgres.h"

#include "access/table.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

#include "store.h"
#include "store_internal.h"

Oid
store_owner(void)
{
	Relation ledger =
		table_open(store_require_relation("ledger"), AccessShareLock);
	Oid owner = ledger->rd_rel->relowner;

	table_close(ledger, AccessShareLock);
	return owner;
}

static void
store_set_locally(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

void
store_begin_sql(StoreSqlState *state)
{
	Oid owner = store_owner();

	GetUserIdAndSecContext(&state->user, &state->security_context);
	SetUserIdAndSecContext(owner, state->security_context |
									  SECURITY_LOCAL_USERID_CHANGE);
	state->guc_level = NewGUCNestLevel();
	store_set_locally("search_path", "pg_catalog, pg_temp");
	/* Compiling a statement of many expressions takes a second or two. */
	store_set_locally("jit", "off");
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
}

void
store_end_sql(StoreSqlState *state)
{
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	AtEOXact_GUC(false, state->guc_level);
	SetUserIdAndSecContext(state->user, state->security_context);
}

static SPIPlanPtr
store_prepare(StoreStatement *statement)
{
	SPIPlanPtr plan;

	if (statement->plan != NULL)
		return statement->plan;
	plan = SPI_prepare(statement->sql, statement->nargs, statement->argtypes);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s",
			 SPI_result_code_string(SPI_result));
	SPI_keepplan(plan);
	statement->plan = plan;
	return plan;
}

/* A snapshot of InvalidSnapshot is the one that is usual. */
static uint64
store_execute(StoreStatement *statement, Datum *values, const char *nulls,
			  Snapshot snapshot)
{
	int result =
		SPI_execute_snapshot(store_prepare(statement), values, nulls, snapshot,
							 InvalidSnapshot, false, true, 0);

	if (result < 0)
		elog(ERROR, "SPI_execute_snapshot failed: %s",
			 SPI_result_code_string(result));
	return SPI_processed;
}

uint64
store_run(StoreStatement *statement, Datum *values, const char *nulls)
{
	return store_execute(statement, values, nulls, InvalidSnapshot);
}

uint64
store_run_latest(StoreStatement *statement, Datum *values, const char *nulls)
{
	return store_execute(statement, values, nulls, GetLatestSnapshot());
}
