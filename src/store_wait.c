/*
 * store_wait.c
 *		Waiting for other transactions, or refusing to: see batch.c.
 */
#include "postgres.h"

#include "storage/lmgr.h"

#include "store.h"
#include "store_internal.h"

/* Where a batch wants to hear of a wait instead of waiting; see batch.c. */
StoreWait *store_instead = NULL;

void
store_wait_instead(StoreWait *wait)
{
	store_instead = wait;
	if (wait != NULL)
		memset(wait, 0, sizeof(StoreWait));
}

/* Raise, when there is to be no waiting.  The error never leaves batch.c. */
void
store_refuse_to_wait(const StoreWait *wait)
{
	if (store_instead == NULL)
		return;
	*store_instead = *wait;
	ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					errmsg("a batch has to wait for another transaction")));
}

void
store_refuse_to_wait_for_lane(int32 poll_id, bool all_lanes)
{
	StoreWait wait = {
		.kind = STORE_WAIT_LANE, .poll_id = poll_id, .all_lanes = all_lanes};

	store_refuse_to_wait(&wait);
}

void
store_wait(const StoreWait *wait)
{
	if (wait->kind != STORE_WAIT_OWNER)
		return;
	if (wait->speculative_token != 0)
		SpeculativeInsertionWait(wait->xid, wait->speculative_token);
	else
		XactLockTableWait(wait->xid, NULL, NULL, XLTW_None);
}
