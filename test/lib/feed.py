"""Writers with every kind of transaction, and a reader of the feed that is killed again and again.

usage: feed.py DSN READER WRITERS SECONDS SEED

READER is examples/feed/reader.py, run as a program of its own for each of two polls: one with as many lanes as there
are commits that overlap, one with a single lane. The writers commit at once or late, roll back, roll back to savepoints,
send batches, and prepare transactions that are decided later, in another order. What they committed is their books; in
the end each reader's copy is held against books and ledger.
"""

import collections
import random
import signal
import subprocess
import sys
import threading
import time

import psycopg2

POLLS = {"feed-many": "counting => 'every'", "feed-one": "counting => 'every', max_lanes => 1"}
PREPARED = 10                   # prepared transactions at a time


class Writer(threading.Thread):
    def __init__(self, dsn, number, rng, until, prepared):
        super().__init__()
        self.connection = psycopg2.connect(dsn)
        self.connection.autocommit = True
        self.cursor = self.connection.cursor()
        self.name_, self.rng, self.until, self.prepared = "w%d" % number, rng, until, prepared
        self.count, self.committed, self.figures, self.failed = 0, [], collections.Counter(), []

    def send(self, poll, size):
        ids = []
        for _ in range(size):
            self.count += 1
            ids.append("%s-%d" % (self.name_, self.count))
        self.cursor.execute("SELECT count(*) FROM poll_tally.accept_events(%s, %s, array_fill('a'::text, ARRAY[%s])) AS r"
                            " WHERE r.outcome = 'accepted'", (poll, ids, size))
        if self.cursor.fetchone()[0] != size:
            self.failed.append("a new event was not accepted")
        return [(poll, name) for name in ids]

    def decide(self):
        """COMMIT or ROLLBACK PREPARED of any that stands, whoever prepared it."""
        try:
            name, events = self.prepared.pop(self.rng.randrange(len(self.prepared)))
        except (IndexError, ValueError):
            return
        if self.rng.random() < 0.7:
            self.cursor.execute("COMMIT PREPARED %s", (name,))
            self.committed += events
        else:
            self.cursor.execute("ROLLBACK PREPARED %s", (name,))

    def transaction(self):
        kind = self.rng.choice(("at once", "late", "rollback", "savepoint", "prepared"))
        # The single lane is left to short transactions: one that is prepared would keep all others waiting.
        poll = "feed-one" if kind in ("at once", "savepoint") and self.rng.random() < 0.4 else "feed-many"
        self.cursor.execute("BEGIN")
        events = self.send(poll, self.rng.randint(1, 4))
        if kind == "savepoint":
            self.cursor.execute("SAVEPOINT s")
            self.send(poll, self.rng.randint(1, 4))
            self.cursor.execute("ROLLBACK TO s")
            events += self.send(poll, self.rng.randint(0, 2) or 1)
        if kind == "late":
            time.sleep(self.rng.random() * 0.5)
        self.figures[kind] += 1
        if kind == "rollback":
            self.cursor.execute("ROLLBACK")
        elif kind == "prepared" and len(self.prepared) < PREPARED:
            name = "%s-%d" % (self.name_, self.count)
            self.cursor.execute("PREPARE TRANSACTION %s", (name,))
            self.prepared.append((name, events))
        else:
            self.cursor.execute("COMMIT")
            self.committed += events

    def run(self):
        try:
            while time.monotonic() < self.until:
                self.transaction()
                if self.rng.random() < 0.3:
                    self.decide()
        except Exception as error:
            self.failed.append(repr(error))


class Readers:
    """A program for each poll, killed and started again."""

    def __init__(self, dsn, program):
        self.dsn, self.program, self.running, self.kills = dsn, program, {}, 0
        for poll in POLLS:
            self.start(poll)

    def start(self, poll):
        self.running[poll] = subprocess.Popen(["/usr/bin/python3", "-B", self.program, self.dsn, poll, "reader-" + poll])

    def kill(self, poll):
        process = self.running[poll]
        if process.poll() is not None:
            raise RuntimeError("the reader of %s ended by itself: %s" % (poll, process.returncode))
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.kills += 1


def finish(readers, cursor):
    """Wait until the copies are as long as the ledger, then stop the readers for good."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        cursor.execute("SELECT (SELECT count(*) FROM mirror) >= (SELECT count(*) FROM poll_tally.events)")
        if cursor.fetchone()[0]:
            break
        time.sleep(0.1)
    for poll in POLLS:
        readers.kill(poll)
        readers.kills -= 1


def check(cursor, poll, committed):
    """What is wrong with the copy of a poll: against the books, the ledger, and the order of its lanes."""
    cursor.execute("SELECT event_id, lane, seq, effect::text FROM mirror WHERE reader = %s ORDER BY ord", ("reader-" + poll,))
    copy = cursor.fetchall()
    cursor.execute("SELECT event_id, poll_tally.lane(position), poll_tally.seq(position), effect::jsonb::text"
                   " FROM poll_tally.events WHERE poll = %s", (poll,))
    ledger = cursor.fetchall()
    missing = len(set(ledger) - set(copy)) + len(committed - {row[0] for row in copy})
    twice = len(copy) - len(set(copy))
    strange = len(set(copy) - set(ledger)) + len({row[0] for row in copy} - committed)
    last, disorder = collections.Counter(), 0
    for _, lane, seq, _ in copy:
        disorder += seq != last[lane] + 1
        last[lane] = seq
    return {"entries": len(copy), "lanes": len(last), "missing": missing, "twice": twice, "strange": strange, "disorder": disorder}


def run(dsn, program, count, seconds, seed):
    rng = random.Random(seed)
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    cursor = connection.cursor()
    for poll, rules in POLLS.items():
        cursor.execute("SELECT poll_tally.create_poll(%%s, '{a}', %s)" % rules, (poll,))
    # Before both readers start at once: IF NOT EXISTS is no protection against a twin.
    sys.path.insert(0, program.rsplit("/", 1)[0])
    cursor.execute(__import__("reader").TABLE)
    until, prepared = time.monotonic() + seconds, []
    readers = Readers(dsn, program)
    writers = [Writer(dsn, number, random.Random(rng.getrandbits(64)), until, prepared) for number in range(count)]
    for writer in writers:
        writer.start()
    while time.monotonic() < until:
        time.sleep(rng.random() * 0.4)
        poll = rng.choice(list(POLLS))
        readers.kill(poll)
        readers.start(poll)
    for writer in writers:
        writer.join()
    while prepared:
        writers[0].decide()
    finish(readers, cursor)
    for line in [line for writer in writers for line in writer.failed][:10]:
        print("# " + " ".join(line.split()))
    print("failed=%d" % sum(len(writer.failed) for writer in writers))
    print("kills=%d" % readers.kills)
    figures = sum((writer.figures for writer in writers), collections.Counter())
    for kind, number in figures.items():
        print("%s=%d" % (kind.replace(" ", "_"), number))
    for poll in POLLS:
        committed = {name for writer in writers for where, name in writer.committed if where == poll}
        for name, number in check(cursor, poll, committed).items():
            print("%s_%s=%d" % (poll[5:], name, number))


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
