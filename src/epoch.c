/*
 * epoch.c
 *		Epochs: text that changes whenever revisions could run backwards.
 *
 * Computed when read, from what changes at each such event and at no other:
 *
 *		system identifier	pg_upgrade, restore of a dump into another server
 *		timeline			promotion, point-in-time recovery
 *		database			restore of a dump into another database
 *		oid of table poll	the extension dropped and created anew
 *		poll's number		the poll dropped and created anew
 *		salt				renew_epoch()
 *
 * Nothing is stored but the salt, so a standby agrees with its primary.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"

#include "epoch.h"
#include "store.h"

enum EpochSaltColumn
{
	EPOCH_SALT_ONLY_ROW = 1,
	EPOCH_SALT_SALT
};

/* The timeline that WAL is written to, or replayed from. */
static TimeLineID
epoch_timeline(void)
{
	TimeLineID timeline;

	if (!RecoveryInProgress())
		return GetWALInsertionTimeLine();
	(void) GetXLogReplayRecPtr(&timeline);
	return timeline;
}

/* What renew_epoch() drew last, as the active snapshot sees it; or empty. */
static char *
epoch_salt(void)
{
	Store store;
	StoreKey key;
	char *salt = "";

	store_open(&store, "epoch_salt", "epoch_salt_pkey", AccessShareLock);
	store_key_init(&key);
	store_key_bool(&key, true);
	if (store_find_visible(&store, &key))
		salt = TextDatumGetCString(store_get_notnull(&store, EPOCH_SALT_SALT));
	store_close(&store);
	return salt;
}

char *
epoch_of_poll(int32 poll_id)
{
	StringInfoData input;

	initStringInfo(&input);
	appendStringInfo(&input, UINT64_FORMAT "/%u/%u/%u/%d/%s",
					 GetSystemIdentifier(), epoch_timeline(), MyDatabaseId,
					 store_relation_oid("poll"), poll_id, epoch_salt());
	return psprintf("%016llx",
					(unsigned long long) hash_bytes_extended(
						(const unsigned char *) input.data, input.len, 0));
}

/* epoch_of(poll_id integer) RETURNS text */
PG_FUNCTION_INFO_V1(epoch_of);
Datum
epoch_of(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(epoch_of_poll(PG_GETARG_INT32(0))));
}

static StoreStatement renew_salt = {
	"INSERT INTO poll_tally.epoch_salt (salt) VALUES (gen_random_uuid()::text)"
	" ON CONFLICT (only_row) DO UPDATE SET salt = excluded.salt",
	0,
	{0},
	NULL};

/* renew_epoch() RETURNS void: every poll has another epoch from its commit on. */
PG_FUNCTION_INFO_V1(renew_epoch);
Datum
renew_epoch(PG_FUNCTION_ARGS)
{
	StoreSqlState sql;

	PreventCommandIfReadOnly("renew_epoch()");
	store_begin_sql(&sql);
	(void) store_run(&renew_salt, NULL, NULL);
	store_end_sql(&sql);
	PG_RETURN_VOID();
}
