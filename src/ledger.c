/*
 * ledger.c
 *		The ledger: the append-only table of accepted events and retractions.
 *
 * Rows are only ever inserted.  Its unique indexes are the arbiters of races:
 *
 *		ledger_event_id_key		an id counts once
 *		ledger_principal_key	a principal's entries form one chain
 *		ledger_source_key		a source coordinate carries one event
 *		ledger_retracts_key		an event is taken back once
 *
 * The primary key (poll_id, position) needs none: the lane's lock guards it.
 *
 * The entries of a batch are written many at a time; until then, look-ups find
 * them staged (ledger_stage.c).  Where a batch trusts its events to be new, only
 * staged ones are looked up, and it is for the indexes to tell if it was wrong.
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "ledger.h"
#include "ledger_stage.h"
#include "plant.h"
#include "poll.h"
#include "store.h"

/*
 * What every entry has comes first, what few have last: NULLs at the end of a
 * row take no room, and up to 8 columns the row's header is 8 bytes smaller.
 */
enum LedgerColumn
{
	LEDGER_POLL_ID = 1,
	LEDGER_LINK,
	LEDGER_POSITION,
	LEDGER_ACCEPTED_AT,
	LEDGER_EVENT_ID,
	LEDGER_VOTES,
	LEDGER_PRINCIPAL,
	LEDGER_EFFECT,
	LEDGER_ATTEMPT,
	LEDGER_GRANTED,
	LEDGER_BARRED,
	LEDGER_OCCURRED_AT,
	LEDGER_PAYLOAD,
	LEDGER_SOURCE,
	LEDGER_SOURCE_PARTITION,
	LEDGER_SOURCE_OFFSET,
	LEDGER_RETRACTS,
	LEDGER_REASON,
	LEDGER_MAY_RESPOND_AGAIN
};

static Datum
ledger_get(Store *store, AttrNumber attribute, Datum otherwise)
{
	bool isnull;
	Datum value = store_get(store, attribute, &isnull);

	return isnull ? otherwise : value;
}

/* A copy of a varlena column that does not outlive the slot; NULL for NULL. */
static struct varlena *
ledger_get_copy(Store *store, AttrNumber attribute)
{
	Datum value = ledger_get(store, attribute, (Datum) 0);

	if (value == (Datum) 0)
		return NULL;
	return PG_DETOAST_DATUM_COPY(value);
}

static void
ledger_deform(Store *store, LedgerEntry *entry)
{
	entry->poll_id = DatumGetInt32(store_get_notnull(store, LEDGER_POLL_ID));
	entry->position =
		DatumGetEventPosition(store_get_notnull(store, LEDGER_POSITION));
	entry->accepted_at =
		DatumGetTimestampTz(store_get_notnull(store, LEDGER_ACCEPTED_AT));
	entry->event_id = store_get_text(store, LEDGER_EVENT_ID);
	entry->votes = ledger_get_copy(store, LEDGER_VOTES);
	entry->effect = ledger_get_copy(store, LEDGER_EFFECT);
	if (entry->effect == NULL)
		entry->effect = entry->votes;
	entry->principal = store_get_text(store, LEDGER_PRINCIPAL);
	(void) store_get(store, LEDGER_OCCURRED_AT, &entry->has_occurred_at);
	entry->has_occurred_at = !entry->has_occurred_at;
	entry->occurred_at =
		DatumGetTimestampTz(ledger_get(store, LEDGER_OCCURRED_AT, 0));
	entry->payload = (Jsonb *) ledger_get_copy(store, LEDGER_PAYLOAD);
	entry->retracts = store_get_text(store, LEDGER_RETRACTS);
	entry->reason = store_get_text(store, LEDGER_REASON);
	entry->may_respond_again =
		DatumGetBool(ledger_get(store, LEDGER_MAY_RESPOND_AGAIN, 0));
	entry->link = DatumGetInt32(ledger_get(store, LEDGER_LINK, 0));
	entry->attempt = DatumGetInt32(
		ledger_get(store, LEDGER_ATTEMPT, Int32GetDatum(entry->link)));
	entry->granted = DatumGetInt32(ledger_get(store, LEDGER_GRANTED, 0));
	entry->barred = DatumGetBool(ledger_get(store, LEDGER_BARRED, 0));
}

static void
ledger_open(Store *store, const char *index)
{
	store_open(store, "ledger", index, AccessShareLock);
}

/* The owner of a key, copied; the store is closed again. */
static bool
ledger_find_by(const char *index, StoreKey *key, ScanDirection direction,
			   const char *noun, LedgerEntry *entry)
{
	Store store;
	bool found;

	ledger_open(&store, index);
	found = store_find_owner(&store, key, direction, noun);
	if (found)
		ledger_deform(&store, entry);
	store_close(&store);
	return found;
}

bool
ledger_find(const text *event_id, LedgerEntry *entry)
{
	StoreKey key;
	Store staged;

	if (ledger_stage_find_id(event_id, &staged))
	{
		ledger_deform(&staged, entry);
		return true;
	}
	if (ledger_stage_trusts())
		return false;
	store_key_init(&key);
	store_key_text(&key, event_id);
	return ledger_find_by("ledger_event_id_key", &key, ForwardScanDirection,
						  "event id", entry);
}

bool
ledger_is_known(const text *event_id)
{
	Store store;
	StoreKey key;
	bool known;

	store_key_init(&key);
	store_key_text(&key, event_id);
	ledger_open(&store, "ledger_event_id_key");
	known = store_is_owned(&store, &key);
	store_close(&store);
	return known;
}

bool
ledger_find_visible(const text *event_id, LedgerEntry *entry)
{
	Store store;
	StoreKey key;
	bool found;

	store_key_init(&key);
	store_key_text(&key, event_id);
	ledger_open(&store, "ledger_event_id_key");
	found = store_find_visible(&store, &key);
	if (found)
		ledger_deform(&store, entry);
	store_close(&store);
	return found;
}

text *
ledger_find_source(const text *source, int32 partition, int64 offset)
{
	StoreKey key;
	LedgerEntry entry;
	Store staged;

	if (ledger_stage_find_source(source, partition, offset, &staged))
		return store_get_text(&staged, LEDGER_EVENT_ID);
	if (ledger_stage_trusts())
		return NULL;
	store_key_init(&key);
	store_key_text(&key, source);
	store_key_int4(&key, partition);
	store_key_int8(&key, offset);
	if (!ledger_find_by("ledger_source_key", &key, ForwardScanDirection,
						"source coordinate", &entry))
		return NULL;
	return entry.event_id;
}

bool
ledger_find_tail(int32 poll_id, const text *principal, bool once,
				 LedgerEntry *entry)
{
	StoreKey key;
	Store staged;

	if (ledger_stage_find_tail(poll_id, principal, &staged))
	{
		ledger_deform(&staged, entry);
		return true;
	}
	if (once && ledger_stage_trusts())
		return false;
	store_key_init(&key);
	store_key_int4(&key, poll_id);
	store_key_text(&key, principal);
	return ledger_find_by("ledger_principal_key", &key, BackwardScanDirection,
						  "principal's response", entry);
}

text *
ledger_last_attempt(int32 poll_id, const text *principal,
					const LedgerEntry *tail)
{
	LedgerEntry entry;

	if (tail->retracts == NULL)
		return tail->event_id;
	/* What a batch has staged is never a retraction, so it is all in the table. */
	for (int32 link = tail->link - 1; link > 0; link--)
	{
		StoreKey key;

		CHECK_FOR_INTERRUPTS();
		store_key_init(&key);
		store_key_int4(&key, poll_id);
		store_key_text(&key, principal);
		store_key_int4(&key, link);
		if (ledger_find_by("ledger_principal_key", &key, ForwardScanDirection,
						   "principal's response", &entry) &&
			entry.retracts == NULL)
			return entry.event_id;
	}
	if (poll_name(poll_id) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the ledger lacks the events of principal \"%s\"",
						text_to_cstring(principal)),
				 errhint("Compare with poll_tally.verify_poll(), and restore "
						 "what is damaged from a backup.")));
	return NULL;
}

int32
ledger_next_link(const LedgerEntry *tail)
{
	if (tail->link == PG_INT32_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a principal cannot have more than %d entries of a "
						"poll",
						PG_INT32_MAX)));
	return tail->link + 1;
}

bool
ledger_find_retraction(const text *event_id, LedgerEntry *entry)
{
	StoreKey key;

	store_key_init(&key);
	store_key_text(&key, event_id);
	return ledger_find_by("ledger_retracts_key", &key, ForwardScanDirection,
						  "retraction", entry);
}

text *
ledger_visible_retraction(const text *event_id)
{
	text *retraction_id = NULL;
	Store store;
	StoreKey key;

	store_key_init(&key);
	store_key_text(&key, event_id);
	ledger_open(&store, "ledger_retracts_key");
	if (store_find_visible(&store, &key))
		retraction_id = store_get_text(&store, LEDGER_EVENT_ID);
	store_close(&store);
	return retraction_id;
}

/* Equal as jsonb: by value, not by spelling. */
static bool
ledger_equal_payload(Jsonb *stored, const Event *event)
{
	Jsonb *payload;
	bool equal;

	if (stored == NULL || !event->has_payload)
		return stored == NULL && !event->has_payload;
	payload = DatumGetJsonbP(event->payload);
	if (PLANT(PAYLOAD_BY_LENGTH))
		return VARSIZE(stored) == VARSIZE(payload);
	equal = VARSIZE(stored) == VARSIZE(payload) &&
			memcmp(stored, payload, VARSIZE(stored)) == 0;
	return equal || compareJsonbContainers(&stored->root, &payload->root) == 0;
}

int
ledger_compare(const LedgerEntry *entry, int32 poll_id, const Event *event)
{
	int differs = 0;

	if (entry->poll_id != poll_id)
		differs |= DIFFERS_POLL;
	if (!tally_equal(entry->votes, event->votes))
		differs |= DIFFERS_VOTES;
	if (!event_text_equal(entry->principal, event->principal))
		differs |= DIFFERS_PRINCIPAL;
	if (!ledger_equal_payload(entry->payload, event))
		differs |= DIFFERS_PAYLOAD;
	if (entry->has_occurred_at != event->has_occurred_at ||
		(entry->has_occurred_at && entry->occurred_at != event->occurred_at))
		differs |= DIFFERS_OCCURRED_AT;
	return differs;
}

static void
ledger_set_text(TupleTableSlot *slot, AttrNumber attribute, const text *value)
{
	if (value != NULL)
		store_slot_set(slot, attribute, PointerGetDatum(value));
}

/* Columns of an event that are no content of it, and its payload. */
static void
ledger_set_event(TupleTableSlot *slot, const Event *event)
{
	if (event->has_payload)
		store_slot_set(slot, LEDGER_PAYLOAD, event->payload);
	if (event->source == NULL)
		return;
	store_slot_set(slot, LEDGER_SOURCE, PointerGetDatum(event->source));
	store_slot_set(slot, LEDGER_SOURCE_PARTITION,
				   Int32GetDatum(event->source_partition));
	store_slot_set(slot, LEDGER_SOURCE_OFFSET,
				   Int64GetDatum(event->source_offset));
}

void
ledger_form(TupleTableSlot *slot, const LedgerEntry *entry, const Event *event)
{
	store_slot_set(slot, LEDGER_POLL_ID, Int32GetDatum(entry->poll_id));
	store_slot_set(slot, LEDGER_POSITION,
				   EventPositionGetDatum(entry->position));
	store_slot_set(slot, LEDGER_ACCEPTED_AT,
				   TimestampTzGetDatum(entry->accepted_at));
	store_slot_set(slot, LEDGER_EVENT_ID, PointerGetDatum(entry->event_id));
	store_slot_set(slot, LEDGER_VOTES, TallyGetDatum(entry->votes));
	if (entry->effect != entry->votes)
		store_slot_set(slot, LEDGER_EFFECT, TallyGetDatum(entry->effect));
	if (entry->principal != NULL)
	{
		store_slot_set(slot, LEDGER_PRINCIPAL,
					   PointerGetDatum(entry->principal));
		store_slot_set(slot, LEDGER_LINK, Int32GetDatum(entry->link));
		if (entry->attempt != entry->link)
			store_slot_set(slot, LEDGER_ATTEMPT, Int32GetDatum(entry->attempt));
	}
	if (entry->granted != 0)
		store_slot_set(slot, LEDGER_GRANTED, Int32GetDatum(entry->granted));
	if (entry->barred)
		store_slot_set(slot, LEDGER_BARRED, BoolGetDatum(true));
	if (entry->has_occurred_at)
		store_slot_set(slot, LEDGER_OCCURRED_AT,
					   TimestampTzGetDatum(entry->occurred_at));
	ledger_set_text(slot, LEDGER_RETRACTS, entry->retracts);
	ledger_set_text(slot, LEDGER_REASON, entry->reason);
	if (entry->retracts != NULL)
		store_slot_set(slot, LEDGER_MAY_RESPOND_AGAIN,
					   BoolGetDatum(entry->may_respond_again));
	if (event != NULL)
		ledger_set_event(slot, event);
}

/* The indexes whose owners are looked up in judging anew. */
static const char *const ledger_arbiters[] = {
	"ledger_event_id_key", "ledger_principal_key", "ledger_source_key",
	"ledger_retracts_key", NULL};

bool
ledger_insert(const LedgerEntry *entry, const Event *event)
{
	StoreWriter writer;
	bool inserted;

	if (ledger_is_staging())
	{
		ledger_stage_add(entry, event);
		return true;
	}
	store_writer_open(&writer, "ledger");
	store_writer_clear(&writer);
	ledger_form(writer.slot, entry, event);
	inserted = store_insert_unless_owned(&writer, ledger_arbiters);
	store_writer_close(&writer);
	return inserted;
}

void
ledger_insert_many(StoreWriter *writer, HeapTuple *rows, int count,
				   const StoreOrder *orders)
{
	store_insert_many(writer, rows, count, orders, ledger_arbiters);
}

/* Set while a closed poll is dropped. */
static bool ledger_guard_lifted = false;

void
ledger_unguarded(void (*remove)(int32 poll_id), int32 poll_id)
{
	Assert(!ledger_guard_lifted);
	ledger_guard_lifted = true;
	PG_TRY();
	{
		remove(poll_id);
	}
	PG_FINALLY();
	{
		ledger_guard_lifted = false;
	}
	PG_END_TRY();
}

/*
 * The guard trigger: the ledger is append-only, for a superuser too.
 * TG: BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger FOR EACH STATEMENT.
 */
PG_FUNCTION_INFO_V1(ledger_guard);
Datum
ledger_guard(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(
			ERROR,
			(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
			 errmsg(
				 "function \"ledger_guard\" was not called by trigger manager")));
	if (ledger_guard_lifted || PLANT(GUARD_MISSING))
		return PointerGetDatum(NULL);
	ereport(
		ERROR,
		(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
		 errmsg("the ledger of poll_tally is append-only"),
		 errdetail("Its entries cannot be updated, deleted or truncated."),
		 errhint("Use poll_tally.retract_event() to take an event back, and "
				 "poll_tally.drop_poll() to remove a closed poll.")));
}
