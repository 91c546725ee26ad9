"""The extension is dropped and created anew under load.

usage: replace.py DSN ROUNDS SEED

Eight clients vote all the while, each event in a transaction of its own, some in batches, and two sessions read; one
more session drops the extension and creates it, with a poll of another name each time. A client may be told that what
it asks for is not there, is gone, or that it is the victim of a deadlock with the drop; nothing else. What was
acknowledged for a poll is in its ledger as long as the poll is there, once; the last poll's ledger holds what was
acknowledged for it and no more than what was sent. Prints NAME=VALUE lines.
"""

import collections
import random
import sys
import threading

import psycopg2

import crash

CLIENTS, READERS = 8, 2
EVENTS = 60                         # acknowledged in each round, before the extension goes

# What a client may be told while the extension comes and goes, with the reason.
TOLD = {
    "3F000": "no schema", "42883": "no function", "42P01": "no relation", "42704": "no type", "40P01": "deadlock with the drop",
    "55000": "not in this state", "XX000": "gone while it was used",
}
GONE = ("could not open relation with OID", "cache lookup failed", "does not exist", "were renamed", "tuple concurrently")


class Load:
    def __init__(self, dsn, seed):
        self.dsn, self.rng = dsn, random.Random(seed)
        self.poll = None
        self.acked, self.sent = collections.defaultdict(list), collections.Counter()
        self.told, self.wrong = collections.Counter(), []
        self.done, self.lock = threading.Event(), threading.Lock()

    def note(self, error):
        state = error.pgcode or "lost"
        with self.lock:
            self.told[state] += 1
            known = state in TOLD and (state != "XX000" or any(text in str(error) for text in GONE))
            if not known:
                self.wrong.append("%s %s" % (state, str(error).strip()))

    def vote(self, rng):
        connection = psycopg2.connect(self.dsn)
        cursor = connection.cursor()
        while not self.done.is_set():
            poll = self.poll
            ids = ["%s-%012x" % (poll, rng.getrandbits(48)) for _ in range(rng.choice((1, 1, 1, 10)))]
            try:
                with self.lock:
                    self.sent[poll] += len(ids)
                if len(ids) == 1:
                    cursor.execute("SELECT outcome::text FROM poll_tally.accept_event(%s, %s, 'red')", (poll, ids[0]))
                else:
                    cursor.execute("SELECT outcome::text FROM poll_tally.accept_events(%s, %s, array_fill('red'::text, ARRAY[%s]))",
                                   (poll, ids, len(ids)))
                outcomes = [row[0] for row in cursor.fetchall()]
                connection.commit()
                with self.lock:
                    for event, outcome in zip(ids, outcomes):
                        self.told[outcome] += 1
                        if outcome == "accepted":
                            self.acked[poll].append(event)
                        elif outcome != "unknown_poll":
                            self.wrong.append("%s for a new event" % outcome)
            except psycopg2.Error as error:
                connection.rollback()
                self.note(error)
                self.done.wait(0.01)        # as a client would, before it tries again
        connection.close()

    def read(self):
        connection = psycopg2.connect(self.dsn)
        connection.autocommit = True
        cursor = connection.cursor()
        while not self.done.is_set():
            try:
                cursor.execute("SELECT sum(count), (SELECT count(*) FROM poll_tally.events) FROM poll_tally.results")
                total, events = cursor.fetchone()
                if (total or 0) != events:
                    self.wrong.append("results %s, ledger %s" % (total, events))
                cursor.execute("SELECT revision FROM poll_tally.snapshot(%s)", (self.poll,))
                self.told["read"] += 1
            except psycopg2.Error as error:
                self.note(error)
                self.done.wait(0.01)
        connection.close()

    def check(self, cursor):
        """The poll that is there, in one snapshot, against what was acknowledged before it was taken."""
        with self.lock:
            acked = list(self.acked[self.poll])
        cursor.execute("SELECT event_id FROM poll_tally.events WHERE poll = %s", (self.poll,))
        there = [row[0] for row in cursor.fetchall()]
        if len(there) != len(set(there)):
            self.wrong.append("%s: an id is there twice" % self.poll)
        missing = set(acked) - set(there)
        if missing:
            self.wrong.append("%s: %d acknowledged events are missing" % (self.poll, len(missing)))
        cursor.execute("SELECT check_name, expected, actual FROM poll_tally.verify_poll(%s) WHERE NOT ok", (self.poll,))
        self.wrong += ["%s: %s" % (self.poll, row) for row in cursor.fetchall()]
        return len(acked), len(there)


def replace(cursor, number):
    """Dropped and created, tried again when it is the victim; returns how often it was."""
    victim = 0
    for statement in ("DROP EXTENSION IF EXISTS poll_tally CASCADE", "CREATE EXTENSION poll_tally",
                      "SELECT poll_tally.create_poll('gen-%d', '{red}', counting => 'every', publish_every => '50 milliseconds')" % number):
        while True:
            try:
                cursor.execute(statement)
                break
            except psycopg2.errors.DeadlockDetected:
                victim += 1
    return victim


def run(dsn, rounds, seed):
    load = Load(dsn, seed)
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    cursor = connection.cursor()
    replace(cursor, 0)
    load.poll = "gen-0"
    threads = [threading.Thread(target=load.vote, args=(random.Random(load.rng.getrandbits(64)),)) for _ in range(CLIENTS)]
    threads += [threading.Thread(target=load.read) for _ in range(READERS)]
    for thread in threads:
        thread.start()
    victim = unpublished = 0
    for number in range(1, rounds + 1):
        crash.until(lambda: len(load.acked[load.poll]) >= EVENTS or load.wrong, "the load")
        load.check(cursor)
        cursor.execute("SELECT revision FROM poll_tally.snapshot(%s)", (load.poll,))
        unpublished += cursor.fetchone()[0] < 2
        victim += replace(cursor, number)
        load.poll = "gen-%d" % number
    crash.until(lambda: len(load.acked[load.poll]) >= EVENTS or load.wrong, "the load")
    load.done.set()
    for thread in threads:
        thread.join()
    acked, there = load.check(cursor)
    if there > load.sent[load.poll]:
        load.wrong.append("more events than were sent")
    for line in load.wrong[:10]:
        print("# wrong: " + " ".join(line.split()))
    print("# told: " + ", ".join("%s %d" % pair for pair in sorted(load.told.items())))
    print("rounds=%d\nacked=%d\nlast_acked=%d\nlast_there=%d\nwrong=%d" % (rounds, sum(map(len, load.acked.values())), acked, there, len(load.wrong)))
    print("victim=%d\nunpublished=%d\nkinds=%d" % (victim, unpublished, len(load.told)))


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
