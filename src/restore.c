/*
 * restore.c
 *		Is a dump being restored into this database?
 *
 * A parallel restore brings our tables in any order: a poll past its deadline can
 * be there before its counts.  Whoever published or closed it then would do so
 * with what has arrived.  A restore in turn brings counts before polls.
 *
 * It is told by the name that pg_restore gives itself, of a role with the rights
 * of the ledger's owner, so that nobody else can hold up publication with it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/backend_status.h"

#include "compat.h"
#include "restore.h"
#include "store.h"

bool
restore_is_running(void)
{
	Oid owner = store_owner();
	int backends = pgstat_fetch_stat_numbackends();

	for (int i = 1; i <= backends; i++)
	{
		LocalPgBackendStatus *local = compat_backend_status(i);
		PgBackendStatus *backend = local != NULL ? &local->backendStatus : NULL;

		if (backend != NULL && backend->st_procpid > 0 &&
			backend->st_databaseid == MyDatabaseId &&
			strcmp(backend->st_appname, "pg_restore") == 0 &&
			OidIsValid(backend->st_userid) &&
			has_privs_of_role(backend->st_userid, owner))
			return true;
	}
	return false;
}
