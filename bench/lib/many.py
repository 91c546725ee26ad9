"""Scenarios of many rows, many lanes or a long time: 11, 12, 14 and 15."""

import contextlib
import subprocess
import time

from lib.measure import Batches, Pgbench, Reader, in_turn
from lib.place import connect
from lib.rows import of_clients, row

COPY_LEDGER = """
INSERT INTO usual.event (event_id, poll, choice, payload, accepted_at)
SELECT l.event_id, '1', CASE poll_tally.get(l.votes, '0') WHEN 1 THEN '0' ELSE '1' END, l.payload, l.accepted_at
FROM poll_tally.ledger AS l"""


# --- 11 and 15 ------------------------------------------------------------------------------------------------------

def fill(database, count, usual):
    """count events with random ids, all in poll 1; on request the same for the usual SQL."""
    batch = min(count, 10000)
    Batches(database, "ours", "ours/batch_one.sql", 1, batch, batches=count // batch)(0)
    if usual:
        # Foreign keys hold, since ours did: no need to look each row up.
        database.run("SET session_replication_role = replica")
        database.run(COPY_LEDGER)
        database.run("UPDATE usual.count AS c SET count = e.count FROM (SELECT choice, count(*) FROM usual.event GROUP BY 1)"
                     " AS e WHERE c.poll = '1' AND c.choice = e.choice")
        database.run("RESET session_replication_role")
        database.sent["usual"] = database.sent["ours"]
    database.run("VACUUM ANALYZE")
    database.run("CHECKPOINT")


class Query:
    """A contender: how long a statement takes, in ms, and what it returns."""

    def __init__(self, database, sql):
        self.database, self.sql, self.answer = database, sql, None

    def __call__(self, _):
        start = time.perf_counter()
        self.database.run(self.sql)
        self.answer = self.database.cursor.fetchall()
        return (time.perf_counter() - start) * 1000


def large(place, chosen):
    """11: calls into a large ledger. 15: counting it anew."""
    count, polls = place.form.pick((2000, 20), (200000, 1000), (10000000, 1000))
    rows = []
    with place.database("11, 15") as database:
        database.make_polls(polls)
        fill(database, count, 15 in chosen)
        if 15 in chosen:
            rows += recounts(place, database, count)
        if 11 in chosen:
            rows += into_large(place, database, count, polls)
    return sorted(rows, key=lambda one: one["scenario"])


def into_large(place, full, count, polls):
    clients, rows = place.form.pick(2, 8, 8), []
    for kind, script, target in (("time-ordered ids", "ours/single_ordered.sql", 0.9), ("random ids", "ours/single.sql", 0.6)):
        with place.database("11") as empty:
            empty.make_polls(polls)
            contenders = {"full": Pgbench(full, "ours", script, clients, polls=polls),
                          "empty": Pgbench(empty, "ours", script, clients, polls=polls)}
            for contender in contenders.values():
                contender(0)                    # the first pages of a table that no cache holds may take seconds
            found = in_turn(place.form, contenders)
        rows.append(row(11, "ledger of %s rows, %s, %s" % (format(count, ","), kind, of_clients(clients)), "events/s",
                        found["full"], found["empty"], target, peer_name="an empty ledger"))
    return rows


def recounts(place, database, count):
    contenders = {
        "recount": Query(database, "SELECT poll_tally.sum(effect)::jsonb FROM poll_tally.events WHERE poll = '1'"),
        "verify": Query(database, "SELECT check_name, ok FROM poll_tally.verify_poll('1')"),
        "usual": Query(database, "SELECT choice, count(*) FROM usual.event WHERE poll = '1' GROUP BY choice ORDER BY choice")}
    found = in_turn(place.form, contenders)
    if contenders["recount"].answer[0][0] != dict(contenders["usual"].answer):
        raise ValueError("the recounts differ: %s" % {name: one.answer for name, one in contenders.items()})
    group = "count(*) ... GROUP BY choice of the usual table"
    what = "of %s events" % format(count, ",")
    return [row(15, "recount %s" % what, "ms", found["recount"], found["usual"], 1.5, sense="at most", peer_name=group),
            row(15, "verify_poll %s" % what, "ms", found["verify"], found["usual"], 4, sense="at most", peer_name=group)]


# --- 12 -------------------------------------------------------------------------------------------------------------

def last_part(place, old_transaction, clients, before_s, last_s):
    """Events a second of a hot poll at the end of a time in which the oldest snapshot stood still, or did not."""
    with place.database("12") as database:
        database.make_polls(1)
        calls = Pgbench(database, "ours", "ours/single.sql", clients, polls=1)
        with contextlib.closing(connect(place.host, place.port, database.name)) as holder:
            if old_transaction:
                holder.cursor().execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM poll_tally.polls")
            calls(before_s)
            return calls(last_s)


def held_back(place, _):
    """12: a repeatable-read transaction left open under hot load."""
    clients, before_s, last_s = place.form.pick((2, 0, 0), (32, 10, 3), (32, 240, 60))
    found = [last_part(place, old_transaction, clients, before_s, last_s) for old_transaction in (True, False)]
    return [row(12, "one poll, %s, a transaction open for %d s" % (of_clients(clients), before_s + last_s), "events/s",
                found[:1], found[1:], 0.8, peer_name="without it")]


# --- 14 -------------------------------------------------------------------------------------------------------------

def open_lanes(place, database, lanes, choices):
    """As many lanes as transactions are open at the same time; each counts every choice."""
    with contextlib.ExitStack() as stack:
        for lane in range(lanes):
            connection = stack.enter_context(contextlib.closing(connect(place.host, place.port, database.name)))
            cursor = connection.cursor()
            cursor.execute("BEGIN")
            cursor.execute("SELECT count(*) FROM poll_tally.accept_events('1', %s, %s) WHERE outcome = 'accepted'",
                           (["%d-%d" % (lane, choice) for choice in range(choices)],
                            [str(choice) for choice in range(choices)]))
            database.sent["ours"] += cursor.fetchone()[0]
            stack.callback(cursor.execute, "COMMIT")
    found = database.value("SELECT cardinality(l.frontier) FROM (SELECT poll_tally.frontier_of(1)) AS l (frontier)")
    if found != lanes:
        raise ValueError("%d lanes instead of %d" % (found, lanes))


class UnderWriters:
    """A contender: how long a reader waits for its rows, in us, while others write at a given rate."""

    def __init__(self, reader, writers, rate):
        self.reader, self.writers, self.rate = reader, writers, rate

    def __call__(self, seconds):
        command = self.writers.command(seconds + 1)
        command[1:1] = ["--rate", str(self.rate)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as writing:
            self.reader(seconds)
            output = writing.communicate()[0]
        if writing.returncode != 0:
            raise RuntimeError("the writers failed: " + output)
        self.writers.note(output)
        return self.reader.latency_ms * 1000


def results(place, _):
    """14: the live result of a poll of many lanes and choices, read while it moves."""
    lanes, choices, writers, rate = place.form.pick((8, 10, 4, 200), (64, 50, 16, 1000), (64, 50, 16, 1000))
    with place.database("14") as database:
        database.make_polls(1, choices, max_lanes=lanes)
        open_lanes(place, database, lanes, choices)
        found = in_turn(place.form, {
            "ours": UnderWriters(
                Reader(database, "ours", "ours/results.sql", 1),
                Pgbench(database, "ours", "ours/single.sql", writers, polls=1, last=choices - 1), rate),
            "usual": UnderWriters(
                Reader(database, "usual", "peers/usual_results.sql", 1),
                Pgbench(database, "usual", "peers/usual_single.sql", writers, polls=1, last=choices - 1), rate)})
    return [row(14, "results, %d lanes x %d choices, %d writers with %d events/s" % (lanes, choices, writers, rate), "us",
                found["ours"], found["usual"], 3, sense="at most", peer_name="one row a choice")]
