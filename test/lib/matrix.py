"""Who may do what: the one table that test/lib/roles.py tries in full, and sample arguments for every function.

A role is a letter: s submitter, v viewer, u auditor, a admin, o owner of the extension, who is no superuser. Two more
are never named, since they may do nothing: a stranger, who has USAGE of the schema, and an outsider, who has not.
"""

EVERY_ROLE = "svuao"

# Function -> (who may call it, arguments). Arguments are text, cast to the declared types; None is NULL. SETUP below
# makes what they speak of.
FUNCTIONS = {
    # of types
    "add": (EVERY_ROLE, ['{"a": 1}', '{"a": 2}']),
    "subtract": (EVERY_ROLE, ['{"a": 1}', '{"a": 2}']),
    "negate": (EVERY_ROLE, ['{"a": 1}']),
    "equal": (EVERY_ROLE, ['{"a": 1}', '{"a": 2}']),
    "not_equal": (EVERY_ROLE, ['{"a": 1}', '{"a": 2}']),
    "get": (EVERY_ROLE, ['{"a": 1}', "a"]),
    "total": (EVERY_ROLE, ['{"a": 1}']),
    "each": (EVERY_ROLE, ['{"a": 1}']),
    "make_tally": (EVERY_ROLE, ["{a,b}", "{1,2}"]),
    "tally_lt": (EVERY_ROLE, ['{"a": 1}', '{"a": 2}']),
    "tally_le": (EVERY_ROLE, ['{"a": 1}', '{"a": 2}']),
    "tally_gt": (EVERY_ROLE, ['{"a": 1}', '{"a": 2}']),
    "tally_ge": (EVERY_ROLE, ['{"a": 1}', '{"a": 2}']),
    "tally_compare": (EVERY_ROLE, ['{"a": 1}', '{"a": 2}']),
    "tally_hash": (EVERY_ROLE, ['{"a": 1}']),
    "tally_hash_extended": (EVERY_ROLE, ['{"a": 1}', "7"]),
    "tally_to_jsonb": (EVERY_ROLE, ['{"a": 1}']),
    "tally_to_json": (EVERY_ROLE, ['{"a": 1}']),
    "tally_from_jsonb": (EVERY_ROLE, ['{"a": 1}']),
    "sum": (EVERY_ROLE, ['{"a": 1}']),
    "sum_part": ("o", ['{"a": 1}']),
    "sum_parts": ("o", ["\\x00000000"]),
    "lane": (EVERY_ROLE, ["0/1"]),
    "seq": (EVERY_ROLE, ["0/1"]),
    "make_position": (EVERY_ROLE, ["0", "1"]),
    "position_eq": (EVERY_ROLE, ["0/1", "0/2"]),
    "position_ne": (EVERY_ROLE, ["0/1", "0/2"]),
    "position_lt": (EVERY_ROLE, ["0/1", "0/2"]),
    "position_le": (EVERY_ROLE, ["0/1", "0/2"]),
    "position_gt": (EVERY_ROLE, ["0/1", "0/2"]),
    "position_ge": (EVERY_ROLE, ["0/1", "0/2"]),
    "position_compare": (EVERY_ROLE, ["0/1", "0/2"]),
    "position_hash": (EVERY_ROLE, ["0/1"]),
    "position_hash_extended": (EVERY_ROLE, ["0/1", "7"]),
    "version": (EVERY_ROLE, []),
    "library_version": (EVERY_ROLE, []),
    # their text and binary forms are called by the server, not by name
    "tally_in": ("o", ['{"a": 1}']),
    "tally_out": ("o", ['{"a": 1}']),
    "tally_send": ("o", ['{"a": 1}']),
    "position_in": ("o", ["0/1"]),
    "position_out": ("o", ["0/1"]),
    "position_send": ("o", ["0/1"]),
    # events
    "accept_event": ("so", ["p", "new", "a", "otto", None, '{"k": 1}', "stream", "0", "7", "2020-01-01 00:00:00+00"]),
    "accept_event_or_raise": ("so", ["p", "new", "a", "otto", None, '{"k": 1}', "stream", "0", "7",
                                     "2020-01-01 00:00:00+00"]),
    "accept_events": ("so", ["p", "{new,newer}", "{a,b}", "{otto,olga}", None, '{"{}","{}"}', "stream", "0", "{7,8}",
                             '{"2020-01-01 00:00:00+00","2020-01-01 00:00:00+00"}', None, "false"]),
    "accept_json": ("so", ['{"event_id": "new", "poll_id": "p", "candidate_id": "a"}', "otto"]),
    "event_status": ("suao", ["e"]),
    "advance_source": ("so", ["stream", "0", "8"]),
    "source_position": ("suao", ["stream", "0"]),
    "events_after": ("uao", ["p", "{0}", "10"]),
    "advance_frontier": ("uao", ["{0}", "0/1"]),
    "retract_event": ("ao", ["p", "e", "back", "no reason", "true"]),
    # what is published
    "snapshot": ("vuao", ["p", "0000000000000000", "1"]),
    "snapshot_message": ("vuao", ["p"]),
    "channel": ("vuao", ["p"]),
    "includes": ("vuao", ["{1}", "0/1"]),
    "epoch_of": ("vuao", ["1"]),
    "observe_revision": ("vao", ["p", "gateway", "1"]),
    # live
    "results_of": ("uao", ["p", "{a}"]),
    "verify_poll": ("uao", ["p"]),
    "pending_entries": ("uao", ["1"]),
    "pending_count": ("uao", ["1", "a"]),
    "pending_counts": ("uao", ["1"]),
    "pending_lane": ("uao", ["1"]),
    "counts_of": ("o", ["1"]),
    "frontier_of": ("o", ["1"]),
    "is_wide": ("o", ["1"]),
    "total_if_fits": ("o", ['{"a": 1}']),
    # polls
    "create_poll": ("ao", ["made", "{a,b}", "a title", "once", None, "1", "1", "1", "false", "false", None, None,
                           "2020-01-01 00:00:00+00", "2999-01-01 00:00:00+00", "false", "1 second", "1", "snapshot", "4"]),
    "create_counter": ("ao", ["made", "a title", "false", "1 second", "1", "snapshot"]),
    "alter_poll": ("ao", ["p", "a title", "2999-01-01 00:00:00+00", None, "2 seconds", "2", "pointer", None]),
    "add_choice": ("ao", ["p", "c", "a label"]),
    "set_eligible": ("ao", ["roll", "{otto,olga}", "true"]),
    "close_poll": ("ao", ["p"]),
    "drop_poll": ("ao", ["closed"]),
    "publish": ("ao", ["p", "true"]),
    "rebuild_tallies": ("ao", ["p"]),
    "renew_epoch": ("ao", []),
    # watching
    "stalled": ("ao", ["10 seconds"]),
    "stats_counters": ("ao", []),
    "worker_rows": ("ao", []),
    "publisher_counts": ("ao", []),
    "blocker_rows": ("ao", []),
    "reset_stats": ("ao", []),
    # roles
    "grant_submitter": ("o", ["screen"]),
    "grant_viewer": ("o", ["screen"]),
    "grant_auditor": ("o", ["screen"]),
    "grant_admin": ("o", ["screen"]),
    "revoke_from": ("o", ["screen"]),
}

# Trigger functions: tried by CREATE TRIGGER on a table of the role's own.
TRIGGER_FUNCTIONS = {"accept_rows": "so", "inbox_insert": "o", "ledger_guard": "o"}

# Functions that take or give internal values: SQL cannot call them, so the catalog is asked.
INTERNAL_FUNCTIONS = {
    "tally_recv": "o", "position_recv": "o",
    "tally_sum_transition": EVERY_ROLE, "tally_sum_combine": EVERY_ROLE, "tally_sum_serialize": EVERY_ROLE,
    "tally_sum_deserialize": EVERY_ROLE, "tally_sum_final": EVERY_ROLE, "tally_sum_add_part": "o",
}

# View -> who may read it. Into inbox submitters insert; every other verb on every view is the owner's.
VIEWS = {
    "published": "vuao", "snapshots": "vuao",
    "polls": "uao", "choices": "uao", "results": "uao", "counted": "uao", "totals": "uao", "events": "uao", "lag": "uao",
    "sources": "uao",
    "stats": "ao", "workers": "ao", "blockers": "ao", "metrics": "ao",
    "inbox": "o", "message": "o", "poll_key": "o", "progress": "o",
}
INBOX_INSERT = "so"

# Every verb on every table and sequence is the owner's.
TABLES = ["audience", "choice", "epoch_salt", "lane", "lane_count", "ledger", "poll", "publication", "roll", "snapshot",
          "source"]
SEQUENCES = ["poll_id_seq"]
# Who may make columns and arguments of a type.
TYPES = {"tally": EVERY_ROLE, "event_position": EVERY_ROLE, "outcome": EVERY_ROLE, "ident": "o", "receipt": "o", "batch_receipt": "o"}

# Settings that nobody but a superuser may change in a session.
SETTINGS = ["poll_tally.max_body", "poll_tally.max_payload", "poll_tally.max_batch", "poll_tally.max_keys",
            "poll_tally.keep_snapshots", "poll_tally.databases", "poll_tally.worker_role", "poll_tally.publish",
            "poll_tally.log_publications", "session_replication_role"]

SETUP = """
SELECT poll_tally.create_poll('p', '{a,b}', publish_every => '1 day');
SELECT poll_tally.create_poll('hidden', '{a,b}', hidden_until_close => true);
SELECT poll_tally.create_poll('roll', '{a,b}', restricted => true, publish_every => '1 day');
SELECT poll_tally.create_poll('closed', '{a,b}');
SELECT (poll_tally.close_poll('closed')).revision;
SELECT outcome FROM poll_tally.accept_event('p', 'e', 'a', 'anne', payload => '{"secret": 1}');
SELECT outcome FROM poll_tally.accept_event('hidden', 'h', 'a', 'anne');
SELECT (poll_tally.publish('p', true)).revision;
SELECT poll_tally.advance_source('stream', 0, 7);
"""


def role_sql(name):
    """Roles are the server's: another program may have made it."""
    return ("DO $$BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '%s') THEN CREATE ROLE %s LOGIN; END IF; END$$"
            % (name, name))


def arguments_of(cursor, name):
    """(name, type) of each argument of a function of ours; the type with its schema."""
    cursor.execute("SELECT coalesce(p.proargnames[a.place], ''), format('%%I.%%I', n.nspname, t.typname) FROM pg_proc AS p"
                   " CROSS JOIN LATERAL unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (type, place)"
                   " JOIN pg_type AS t ON t.oid = a.type JOIN pg_namespace AS n ON n.oid = t.typnamespace"
                   " WHERE p.pronamespace = 'poll_tally'::regnamespace AND p.proname = %s ORDER BY a.place", (name,))
    return cursor.fetchall()


def call_of(name, types):
    """SQL that calls a function with as many placeholders as it has arguments."""
    arguments = ", ".join("CAST(%s AS " + type_name + ")" for type_name in types)
    if name in ("sum", "sum_part", "sum_parts"):
        return "SELECT poll_tally.%s(v) FROM (SELECT %s) AS one (v)" % (name, arguments)
    return "SELECT * FROM poll_tally.%s(%s)" % (name, arguments)
