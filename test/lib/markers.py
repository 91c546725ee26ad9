"""Principals and payloads with unmistakable text, through everything that can go wrong; then everywhere is looked for them.

usage: markers.py DSN LOG

Values are bound parameters. Provoked are all outcomes, by every way of sending, all faults that our functions raise,
races for one id and one principal with lock waits logged, a serialization failure, a deadlock, lock and statement
timeouts, a cancelled wait and a prepared transaction. Searched are the errors, notices and details that clients get,
the server's LOG at debug level with verbose errors, every message on every channel, all statistics views of the
server, and what submitters and viewers may read. Only where the rules of the design say so (the ledger, for auditors
and admins) may they be, and there they must be.

What leaks nevertheless is made to leak here, so that the list in SECURITY.md is true. Prints NAME=VALUE lines.
"""

import collections
import io
import re
import sys
import threading
import time

import psycopg2

import libpq
import matrix

MARK = "m4rk"                       # in every principal and payload
PRINCIPALS = ["princ1pal-%s-%d" % (MARK, number) for number in range(9)]
PAYLOAD = '{"answer": "payl0ad-%s"}' % MARK
EVENT = ("$1, $2, $3, principal => $4, payload => $5")

POLLS = """
SELECT poll_tally.create_poll('one', '{a,b}', publish_every => '50 milliseconds');
SELECT poll_tally.create_poll('latest', '{a,b}', counting => 'latest', max_attempts => 2);
SELECT poll_tally.create_poll('roll', '{a,b}', restricted => true);
SELECT poll_tally.create_poll('later', '{a,b}', opens_at => '2999-01-01');
SELECT poll_tally.create_poll('over', '{a,b}');
SELECT poll_tally.create_poll('limited', '{a,b}', max_count => 0);
SELECT poll_tally.create_poll('other', '{a,b}');
SELECT poll_tally.create_poll('ordered', '{a,b}', counting => 'every', max_lanes => 1);
SELECT (poll_tally.close_poll('over')).revision;
"""

# Events by the outcome they meet; each is sent by every way of sending. A stands for principal 0, B for a new one.
OUTCOMES = [
    ("accepted", "one", "first", "a", 0), ("duplicate", "one", "first", "a", 0), ("conflict", "one", "first", "b", 0),
    ("conflict", "one", "first", "a", 1), ("already_responded", "one", "second", "a", 0), ("invalid", "one", "", "a", 0),
    ("invalid", "one", "third", "a", None), ("unknown_poll", "nowhere", "third", "a", 1), ("closed", "over", "third", "a", 1),
    ("not_open", "later", "third", "a", 1), ("not_eligible", "roll", "third", "a", 1), ("unknown_choice", "one", "third", "x", 1),
    ("limit_reached", "limited", "third", "a", 1),
]
WAYS = {
    "accept_event": ("SELECT outcome, detail, differs FROM poll_tally.accept_event(%s)" % EVENT, None),
    "accept_event_or_raise": ("SELECT outcome, detail FROM poll_tally.accept_event_or_raise(%s)" % EVENT, None),
    "accept_events": ("SELECT outcome, detail FROM poll_tally.accept_events($1, ARRAY[$2], ARRAY[$3], principals => ARRAY[$4],"
                      " payloads => ARRAY[$5::jsonb])", None),
    "all or nothing": ("SELECT outcome, detail FROM poll_tally.accept_events(NULL, ARRAY[$2], ARRAY[$3], ARRAY[$4],"
                       " payloads => ARRAY[$5::jsonb], polls => ARRAY[$1], all_or_nothing => true)", None),
    "inbox": ("INSERT INTO poll_tally.inbox (poll, event_id, choice, principal, payload) VALUES ($1, $2, $3, $4, $5)", None),
    "accept_rows": ("INSERT INTO public.mine VALUES ($1, $2, $3, $4, $5)", None),
    "accept_json": ("SELECT outcome, detail FROM poll_tally.accept_json(jsonb_build_object('poll_id', $1::text, 'event_id', $2::text,"
                    " 'candidate_id', $3::text)::text, $4) WHERE $5::text IS NOT NULL", None),
}
P, Q = PRINCIPALS[2:4]

# Faults, and verdicts that no event above meets: (statement, values).
FAULTS = [
    ("SELECT outcome, detail FROM poll_tally.accept_event('one', 'f1', 'a', $1)", [P + "\\"]),
    ("SELECT outcome, detail FROM poll_tally.accept_event('one', 'f1', 'a', $1)", [P * 9]),
    ("SELECT outcome, detail FROM poll_tally.accept_event('one', 'f1', 'a', $1, payload => $2)", [P, '{"x": "%s"}' % (MARK * 500000)]),
    ("SELECT outcome, detail FROM poll_tally.accept_event('one', 'f1', 'a', $1, payload => $2, occurred_at => 'infinity')", [P, PAYLOAD]),
    ("SELECT outcome, detail FROM poll_tally.accept_event('one', 'f1', 'a', $1, payload => $2, source => 's')", [P, PAYLOAD]),
    ("SELECT outcome, detail FROM poll_tally.accept_event('one', 'f1', votes => '{\"a\": 9223372036854775808}', principal => $1)", [P]),
    ("SELECT outcome, detail FROM poll_tally.accept_event('other', 'f2', 'a', $1, payload => $2, source => 's', source_partition => 0,"
     " source_offset => 1)", [P, PAYLOAD]),
    ("SELECT outcome, detail FROM poll_tally.accept_event('other', 'f3', 'a', $1, payload => $2, source => 's', source_partition => 0,"
     " source_offset => 1)", [Q, PAYLOAD]),
    ("SELECT outcome, detail FROM poll_tally.accept_event_or_raise('other', 'f3', 'a', $1, payload => $2, source => 's',"
     " source_partition => 0, source_offset => 1)", [Q, PAYLOAD]),
    ("SELECT outcome, detail FROM poll_tally.accept_events('one', '{f4,f5}', '{a}', ARRAY[$1, $1])", [P]),
    ("SELECT outcome, detail FROM poll_tally.accept_events('one', NULL, '{a}', ARRAY[$1])", [P]),
    ("SELECT outcome, detail FROM poll_tally.accept_events('one', '{f4}', '{a}', ARRAY[ARRAY[$1]])", [P]),
    ("SELECT outcome, detail FROM poll_tally.accept_events('one', array_fill('x'::text, '{10001}'), principals => array_fill($1::text, '{10001}'))", [P]),
    ("SELECT outcome, detail FROM poll_tally.accept_json($2, $1)", [P, PAYLOAD]),
    ("SELECT outcome, detail FROM poll_tally.accept_json($2, $1)", [P, PAYLOAD * 500]),
    ("SELECT outcome, detail FROM poll_tally.retract_event('one', 'first', 'back', $1)", ["reason"]),
    ("SELECT outcome, detail FROM poll_tally.retract_event('one', 'first', 'back2', $1)", ["reason"]),
    ("SELECT outcome, detail FROM poll_tally.accept_event('one', 'first', 'a', $1, payload => $2)", [PRINCIPALS[0], PAYLOAD]),
    ("SELECT poll_tally.set_eligible('one', ARRAY[$1])", [P]), ("SELECT poll_tally.set_eligible('roll', ARRAY[$1, NULL])", [P]),
    ("SELECT poll_tally.set_eligible('roll', ARRAY[$1, $1 || '\\'])", [P]), ("SELECT poll_tally.set_eligible('roll', ARRAY[$1])", [P]),
    ("SELECT poll_tally.set_eligible('over', ARRAY[$1])", [P]), ("SELECT poll_tally.set_eligible('nowhere', ARRAY[$1])", [P]),
    ("INSERT INTO poll_tally.ledger (poll_id, position, accepted_at, event_id, votes, principal, payload) VALUES (1, '0/1', now(), 'x', '{}', $1, $2)",
     [P + "\\", PAYLOAD]),
    ("UPDATE poll_tally.ledger SET principal = $1 WHERE payload = $2", [P, PAYLOAD]),
    ("DELETE FROM poll_tally.ledger WHERE principal = $1 OR payload = $2", [P, PAYLOAD]),
    ("SELECT poll_tally.accept_rows()", []),
]


class Searched:
    """Everything that came out, by where; and where the mark was found."""

    def __init__(self):
        self.places, self.found, self.messages = collections.Counter(), [], set()

    def look(self, place, text):
        self.places[place] += 1
        if MARK in text:
            self.found.append("%s: %s" % (place, text[max(0, text.index(MARK) - 120):text.index(MARK) + 80]))

    def result(self, place, result):
        for name, text in result.fields.items():
            self.look("field of an error", "%s %s: %s" % (place, name, text))
        if "message" in result.fields:
            self.messages.add((result.state, re.sub(r"\d+|\"[^\"]*\"", "*", result.fields["message"])))
        for row in result.rows:
            self.look("verdict", "%s: %r" % (place, row))
        return result


def provoke(dsn, searched):
    connection = libpq.Connection(dsn)
    for number, (way, (statement, _)) in enumerate(WAYS.items()):
        connection.must("BEGIN")            # each way meets the same state
        for outcome, poll, event, choice, who in OUTCOMES:
            connection.must("SAVEPOINT s")
            result = searched.result(way, connection.run(statement, [poll, event, choice, who if who is None else PRINCIPALS[who], PAYLOAD]))
            if result.state != "00000":
                connection.must("ROLLBACK TO SAVEPOINT s")
            elif way == "accept_event" and result.rows[0][0] != outcome.encode():
                raise RuntimeError("%s, not %s: %s %s" % (result.rows, outcome, poll, event))
        connection.must("COMMIT" if number == len(WAYS) - 1 else "ROLLBACK")
    connection.must("SELECT outcome FROM poll_tally.accept_event('other', 'kept', 'a', $1, payload => $2)", [PRINCIPALS[0], PAYLOAD])
    for statement, values in FAULTS:
        searched.result(statement[:60], connection.run(statement, values))
    for notice in connection.notices:
        searched.look("notice", notice)
    connection.close()


def waiting(dsn, searched, first, second, ending, then=None, gives_up=False):
    """Two sessions: the second waits for the first, which ends by ending; what the second got is searched.

    then is done meanwhile. If the second gives up, the first ends after that.
    """
    one, two, watch = (libpq.Connection(dsn) for _ in range(3))
    for statement, values in first:
        one.must(statement, values)
    got = []

    def wait():
        for statement, values in second:
            got.append(searched.result("a wait", two.run(statement, values)))

    thread = threading.Thread(target=wait)
    thread.start()
    blocked = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'"
    while thread.is_alive() and watch.must(blocked, [str(libpq.PQ.PQbackendPID(two.pointer))])[0][0] == b"0":
        thread.join(0.01)
    if then:
        then(one, two, watch)
    if gives_up:
        thread.join()
    searched.result("the end of a wait", one.run(ending))
    thread.join()
    for connection in (one, two, watch):
        connection.close()
    return got[-1].state


def races(dsn, searched):
    vote = "SELECT outcome, detail FROM poll_tally.accept_event($1, $2, 'a', $3, payload => $4)"
    log_wait = lambda *_: threading.Event().wait(0.05)      # longer than deadlock_timeout, so that the wait is logged
    begin = ("BEGIN", [])
    states = collections.Counter()

    def race(*arguments, **how):
        states[waiting(dsn, searched, *arguments, **how)] += 1

    race([begin, (vote, ["other", "r1", P, PAYLOAD])], [(vote, ["other", "r1", Q, PAYLOAD])], "COMMIT", log_wait)
    race([begin, (vote, ["other", "r2", Q, PAYLOAD])], [(vote, ["other", "r3", Q, PAYLOAD])], "COMMIT", log_wait)
    race([begin, (vote, ["ordered", "r4", P, PAYLOAD])], [(vote, ["ordered", "r5", Q, PAYLOAD])], "ROLLBACK", log_wait)
    for level in ("REPEATABLE READ", "SERIALIZABLE"):
        race([begin, (vote, ["other", "r6" + level[0], PRINCIPALS[4 + (level[0] == "S")], PAYLOAD])],
             [("BEGIN ISOLATION LEVEL " + level, []), ("SELECT 1", []),
              (vote, ["other", "r6" + level[0], PRINCIPALS[4 + (level[0] == "S")], PAYLOAD])], "COMMIT", log_wait)
    race([begin, (vote, ["ordered", "r7", P, PAYLOAD])],
         [("SET lock_timeout = '50ms'", []), (vote, ["ordered", "r8", Q, PAYLOAD])], "ROLLBACK", gives_up=True)
    race([begin, (vote, ["ordered", "r7", P, PAYLOAD])],
         [("SET statement_timeout = '50ms'", []), (vote, ["ordered", "r8", Q, PAYLOAD])], "ROLLBACK", gives_up=True)
    race([begin, (vote, ["ordered", "r7", P, PAYLOAD])], [(vote, ["ordered", "r8", Q, PAYLOAD])], "ROLLBACK",
         lambda one, two, watch: watch.must("SELECT pg_terminate_backend($1)", [str(libpq.PQ.PQbackendPID(two.pointer))]),
         gives_up=True)
    race([begin, (vote, ["other", "d1", PRINCIPALS[6], PAYLOAD])],
         [begin, (vote, ["other", "d2", PRINCIPALS[7], PAYLOAD]), (vote, ["other", "d1", PRINCIPALS[6], PAYLOAD])], "ROLLBACK",
         # One of them is the victim.
         lambda one, *_: states.update([searched.result("a deadlock", one.run(vote, ["other", "d2", PRINCIPALS[7], PAYLOAD])).state]))
    return states


def statistics(dsn, searched):
    """All that the server says about itself, as a role with pg_monitor, and as one without anything."""
    for role in ("watcher", "outsider"):
        connection = libpq.Connection(dsn + " user=" + role)
        views = connection.must("SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class AS c JOIN pg_namespace AS n"
                                " ON n.oid = c.relnamespace WHERE c.relkind = 'v' AND c.relname ~ '^pg_(stat|locks|prepared|shmem|cursors)'")
        for (view,) in views:
            result = connection.run("SELECT v::text FROM %s AS v" % view.decode())
            for (row,) in result.rows:
                searched.look("statistics", "%s: %s" % (view.decode(), row.decode(errors="replace")))
        connection.close()
    return len(views)


def readable(dsn, searched):
    """What submitters and viewers may read or ask."""
    for letter, role in (("s", "site"), ("v", "screen")):
        connection = libpq.Connection(dsn + " user=" + role)
        cursor = libpq.Connection(dsn)
        for name, who in matrix.VIEWS.items():
            if letter in who:
                for row in connection.must("SELECT * FROM poll_tally.%s" % name):
                    searched.look("view for " + role, "%s: %r" % (name, row))
        for event in ("first", "kept", "f2", "back", "nowhere") if letter == "s" else ():
            for row in connection.must("SELECT * FROM poll_tally.event_status($1)", [event]):
                searched.look("view for " + role, "event_status: %r" % (row,))
        for poll in ("one", "other") if letter == "v" else ():
            for row in connection.must("SELECT s.*, poll_tally.snapshot_message($1) FROM poll_tally.snapshot($1) AS s", [poll]):
                searched.look("view for " + role, "snapshot: %r" % (row,))
        connection.close()
        cursor.close()
    admin = libpq.Connection(dsn + " user=organiser")
    for name in ("stats", "metrics", "workers", "blockers", "lag", "stalled()"):
        for row in admin.must("SELECT * FROM poll_tally.%s" % name):
            searched.look("view for watching", "%s: %r" % (name, row))
    ledger = admin.must("SELECT count(*) FROM poll_tally.events WHERE principal LIKE $1 AND payload::text LIKE $1", ["%" + MARK + "%"])
    admin.close()
    return int(ledger[0][0])


def leaks(dsn, heard, log):
    """What SECURITY.md says anybody, or a submitter, can learn."""
    outsider = libpq.Connection(dsn + " user=outsider")
    site = libpq.Connection(dsn + " user=site")
    superuser = libpq.Connection(dsn)
    superuser.must("SELECT pg_stat_force_next_flush()")
    ask = lambda connection, sql, *values: connection.must(sql, values)[0][0]
    true_count = int(ask(superuser, "SELECT count(*) FROM poll_tally.events"))
    size = ("SELECT pg_relation_size(c.oid) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
            " WHERE n.nspname = 'poll_tally' AND c.relname = 'ledger'")
    superuser.must("SELECT poll_tally.create_poll('probed', '{a}')")
    superuser.must("SELECT outcome FROM poll_tally.accept_event('probed', 'hers', 'a', 'anne')")
    plain = libpq.Result(libpq.PQ.PQexec(superuser.pointer, b"INSERT INTO poll_tally.inbox (poll, event_id, choice, principal)"
                                        b" VALUES ('nowhere', 'literal', 'a', 'literal-principal')"))
    with psycopg2.connect(dsn) as copying:
        try:
            copying.cursor().copy_expert("COPY poll_tally.inbox (poll, event_id, choice, principal) FROM STDIN",
                                         io.StringIO("nowhere\tcopied\ta\tcopied-principal\n"))
            copied = ""
        except psycopg2.Error as error:
            copied = error.diag.context or ""
            copying.rollback()
    logged = open(log, errors="replace").read()
    shown = {
        "inserts into the ledger, by pg_stat_user_tables": int(ask(outsider, "SELECT n_tup_ins FROM pg_stat_user_tables WHERE"
                                                                   " schemaname = 'poll_tally' AND relname = 'ledger'")) >= true_count,
        "its size": int(ask(outsider, size)) > 0,
        "counts, by LISTEN": any('"counts": {' in payload for _, payload in heard),
        "how many events a poll has, by a receipt's position": int(ask(site, "SELECT poll_tally.seq(position) FROM poll_tally.accept_event("
                                                                      "'ordered', 'turnout', 'a', 'me')")) > 0,
        "whether an id is used, by event_status": ask(site, "SELECT status FROM poll_tally.event_status('kept')") == b"accepted",
        "whether a principal has responded, by responding for it": ask(site, "SELECT outcome FROM poll_tally.accept_event('probed', 'probe', 'a',"
                                                                      " 'anne')") == b"already_responded",
        "what a statement says itself, by its own line in the log": plain.state == "P0002" and "literal-principal" in logged,
        "the line of a COPY into inbox that is refused, by the error's context": "copied-principal" in copied and "copied-principal" in logged,
    }
    for connection in (outsider, site, superuser):
        connection.close()
    return shown


def hear_final(listener):
    heard, deadline = [], time.monotonic() + 180
    while not any('"final": true' in payload for _, payload in heard):
        if time.monotonic() > deadline:
            raise RuntimeError("no final message came")
        heard += listener.notifications()
        time.sleep(0.01)
    return heard


def run(dsn, log):
    superuser = libpq.Connection(dsn)
    for statement in ("CREATE EXTENSION pg_stat_statements", "CREATE EXTENSION poll_tally", "CREATE ROLE watcher LOGIN IN ROLE pg_monitor",
                      *map(matrix.role_sql, ("site", "screen", "organiser", "outsider")),
                      "SELECT poll_tally.grant_submitter('site'), poll_tally.grant_viewer('screen'), poll_tally.grant_admin('organiser')",
                      "CREATE TABLE public.mine (poll text, id text, choice text, who text, answers jsonb)",
                      "CREATE TRIGGER t AFTER INSERT ON public.mine REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION"
                      " poll_tally.accept_rows('poll=poll', 'event_id=id', 'choice=choice', 'principal=who', 'payload=answers')"):
        superuser.must(statement)
    for statement in filter(str.strip, POLLS.split(";")):
        superuser.must(statement)
    listener = libpq.Connection(dsn + " user=outsider")
    listener.must("LISTEN poll_tally")
    listener.must("LISTEN " + superuser.must("SELECT poll_tally.channel('other')")[0][0].decode())
    searched = Searched()
    provoke(dsn, searched)
    states = races(dsn, searched)
    superuser.must("BEGIN")
    superuser.must("SELECT outcome FROM poll_tally.accept_event('latest', 'prepared', 'a', $1, payload => $2)", [PRINCIPALS[8], PAYLOAD])
    superuser.must("PREPARE TRANSACTION 'forgotten'")
    superuser.must("ANALYZE")
    views = statistics(dsn, searched)
    ledger = readable(dsn, searched)
    superuser.must("ROLLBACK PREPARED 'forgotten'")
    superuser.must("SELECT (poll_tally.close_poll('other')).revision")
    heard = hear_final(listener)
    for channel, payload in heard:
        searched.look("message", channel + ": " + payload)
    for line in open(log, errors="replace"):
        searched.look("line of the log", line)
    shown = leaks(dsn, heard, log)
    for line in searched.found[:20]:
        print("# found: " + line)
    for what, is_so in shown.items():
        print("# %s: %s" % ("leaks, as documented" if is_so else "does not leak", what))
    print("# searched: " + ", ".join("%d times %s" % (count, place) for place, count in searched.places.items()))
    print("# races ended with: " + ", ".join("%s %d" % pair for pair in sorted(states.items())))
    print("places=%d\nsearched=%d\nfound=%d" % (len(searched.places), sum(searched.places.values()), len(searched.found)))
    print("errors=%d\nraces=%s\nviews=%d\nledger=%d" % (len(searched.messages), " ".join(sorted(states)), views, ledger))
    print("leaks=%d\nleaks_shown=%d" % (len(shown), sum(shown.values())))


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2])
