"""Scenarios of many events a transaction: 7 to 10."""

import os
import time

from lib.measure import BATCH, Batches, Redis, in_turn
from lib.rows import of_clients, row

SETS = "set-based SQL that compares"
COPY = "COPY into such a table (the limit)"


def begun(place, contenders):
    """The same contenders, behind their first batches: plans that were made for empty tables would stay."""
    for contender in contenders.values():
        if isinstance(contender, Batches):
            contender.send(0, place.form.pick(2, 20, 20))
            contender.database.run("ANALYZE usual.event, usual.count, bare.ledger, poll_tally.ledger")
    return contenders


def against_sets(place, scenario, clients, polls, targets):
    statement = "ours/batch_one.sql" if polls == 1 else "ours/batch_many.sql"
    with place.database(str(scenario)) as database:
        database.make_polls(polls)
        found = in_turn(place.form, begun(place, {
            "ours": Batches(database, "ours", statement, clients, polls=polls),
            "sets": Batches(database, "usual", "peers/usual_batch.sql", clients, polls=polls),
            "copy": Batches(database, "bare", "peers/bare_copy.sql", clients, polls=polls)}))
    what = "batches of %d, %s, %s" % (
        BATCH, "one poll" if polls == 1 else "%d polls" % polls, of_clients(clients))
    return [row(scenario, what, "events/s", found["ours"], found["sets"], targets[0], peer_name=SETS),
            row(scenario, what, "events/s", found["ours"], found["copy"], targets[1], peer_name=COPY)]


def one_poll(place, _):
    """7: batches for one poll."""
    rows = []
    for clients in place.form.pick([2], [1], [1, 2]):
        rows += against_sets(place, 7, clients, 1, (2.0, 0.8))
    return rows


def many_polls(place, _):
    """8: batches over 1,000 polls, each of them once."""
    return against_sets(place, 8, 1, place.form.pick(50, 1000, 1000), (1.6, 0.6))


def redis(place, _):
    """9: batches for one poll, against Redis."""
    rows = []
    for clients, target in place.form.pick({2: 1.8}, {1: 1.0}, {1: 1.0, 2: 1.8}).items():
        with place.database("9") as database:
            database.make_polls(1)
            found = in_turn(place.form, begun(place, {
                "ours": Batches(database, "ours", "ours/batch_one.sql", clients),
                "redis": Redis(place, clients)}))
        rows.append(row(9, "batches of %d, one poll, %s" % (BATCH, of_clients(clients)), "events/s",
                        found["ours"], found["redis"], target, peer_name="Redis, Lua, appendfsync always"))
    return rows


class OneTransaction:
    """Events in one transaction, by statements of a part each; remembers how long each part took."""

    def __init__(self, database, sql, events, part):
        self.database, self.sql, self.events, self.part = database, sql, events, part
        self.parts_s = []

    def __call__(self, _):
        prefix, parts = os.urandom(16).hex() + "-", []
        start = time.perf_counter()
        self.database.run("BEGIN")
        for first in range(0, self.events, self.part):
            began = time.perf_counter()
            accepted = self.database.value(self.sql, first + 1, first + self.part, prefix)
            if accepted != self.part:
                raise ValueError("%d of %d events were accepted" % (accepted, self.part))
            parts.append(time.perf_counter() - began)
        self.database.run("COMMIT")
        self.database.sent["ours"] += self.events
        self.parts_s.append(parts)
        return self.events / (time.perf_counter() - start)


CALLS = """EXECUTE calls(%s, %s, %s)"""
PREPARE_CALLS = """
PREPARE calls(int, int, text) AS
SELECT count(*) FROM generate_series($1, $2) AS g, poll_tally.accept_event('1', $3 || g, (g % 2)::text) AS a
WHERE a.outcome = 'accepted'"""
BATCHES = """EXECUTE batches(%s, %s, %s)"""
PREPARE_BATCHES = """
PREPARE batches(int, int, text) AS
SELECT count(*)
FROM poll_tally.accept_events('1', (SELECT array_agg($3 || g ORDER BY g) FROM generate_series($1, $2) AS g),
                              (SELECT array_agg((g % 2)::text ORDER BY g) FROM generate_series($1, $2) AS g)) AS a
WHERE a.outcome = 'accepted'"""


def one_transaction(place, _):
    """10: many single calls in one transaction, and whether the last ones cost more than the first."""
    events = place.form.pick(600, 30000, 30000)
    with place.database("10") as database:
        database.make_polls(1)
        database.run(PREPARE_CALLS)
        database.run(PREPARE_BATCHES)
        calls = OneTransaction(database, CALLS, events, events // 3)
        found = in_turn(place.form, {"calls": calls, "batches": OneTransaction(database, BATCHES, events, events // 10)})
    first, last = ([part_s[number] for part_s in calls.parts_s[-place.form.rounds:]] for number in (0, 2))
    return [row(10, "%d calls in one transaction" % events, "events/s", found["calls"], found["batches"], 0.4,
                peer_name="10 batches of %d" % (events // 10)),
            row(10, "first third of these calls against the last", "s", first, last, 0.8, peer_name="the last third",
                note="1 is linear")]
