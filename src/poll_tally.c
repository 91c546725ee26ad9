/*
 * poll_tally.c
 *		The library: what is done once when it is loaded.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "fault.h"
#include "key.h"
#include "lane.h"
#include "pending.h"
#include "poll_tally.h"
#include "settings.h"
#include "shared.h"
#include "snapshot.h"
#include "store.h"
#include "worker.h"

PG_MODULE_MAGIC;

void _PG_init(void);

/* Pending counts are written just before the transaction's fate is sealed. */
static void
poll_tally_at_xact_event(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			pending_flush();
			FAULT_POINT("flushed-at-end");
			break;
		case XACT_EVENT_COMMIT:
			FAULT_POINT("committed");
			if (pending_was_written())
				shared_note_moved();
			snapshot_at_commit();
			lane_at_commit();
			pending_at_end();
			lane_at_end();
			break;
		case XACT_EVENT_ABORT:
			store_session_drop();
			store_plans_at_abort(0);
			/* FALLTHROUGH */
		case XACT_EVENT_PREPARE:
			if (event == XACT_EVENT_PREPARE)
				FAULT_POINT("prepared");
			key_forget();
			snapshot_at_end();
			pending_at_end();
			lane_at_end();
			break;
		default:
			break;
	}
}

static void
poll_tally_at_subxact_event(SubXactEvent event, SubTransactionId self,
							SubTransactionId parent, void *arg)
{
	int nest_level = GetCurrentTransactionNestLevel();

	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		pending_at_subcommit(nest_level);
		lane_at_subcommit(nest_level);
		snapshot_at_subcommit(nest_level);
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		key_forget();
		pending_at_subabort(nest_level);
		lane_at_subabort(nest_level);
		snapshot_at_subabort(nest_level);
		store_session_drop();
		store_plans_at_abort(nest_level);
	}
}

void
_PG_init(void)
{
	FAULT_DEFINE_SETTING();
	settings_define();
	RegisterXactCallback(poll_tally_at_xact_event, NULL);
	RegisterSubXactCallback(poll_tally_at_subxact_event, NULL);
	if (process_shared_preload_libraries_in_progress)
		shared_register();
	if (process_shared_preload_libraries_in_progress && !IsBinaryUpgrade)
		launcher_register();
}

/*
 * library_version() RETURNS text
 *
 * The install script calls it at its end, so that the launcher hears of the
 * extension.
 */
PG_FUNCTION_INFO_V1(poll_tally_library_version);
Datum
poll_tally_library_version(PG_FUNCTION_ARGS)
{
	(void) shared_slot();
	PG_RETURN_TEXT_P(cstring_to_text(POLL_TALLY_VERSION));
}
