"""Load from many clients, a backend killed in the middle of it, and the books that the clients kept themselves.

usage: crash.py DSN KILLS SEED

Each client sends units: one event on its own, several in one transaction, with a savepoint rolled back to, or rolled
back as a whole; and now and then it repeats an event that was acknowledged. What becomes of each event is written
down when the server says so, and not before:

    acked    COMMIT was acknowledged: the event is in the ledger, with this receipt, for ever
    gone     rolled back, or refused, and that was acknowledged: the event is not in the ledger
    open     the connection was lost first: nobody knows, and a retry has to tell

After every kill the ledger, read by a plain SELECT, is compared with these books; then the open events are sent again.
"""

import collections
import os
import random
import signal
import sys
import threading
import time

import psycopg2

CLIENTS = 16
CHOICES = ("red", "green", "blue", "white")
POLLS = {"survey": "once", "clicks": "every", "ordered": "every"}
DEADLINE = 120
VOTE = ("SELECT outcome::text, position::text, attempt, accepted_at"
        " FROM poll_tally.accept_event(%(poll)s, %(id)s, %(choice)s, %(principal)s, payload => %(payload)s::jsonb)")


class Books:
    """What the clients know, and what was found wrong."""

    def __init__(self):
        self.lock = threading.Lock()
        self.events = {}                # id -> event
        self.violations = []
        self.acks = 0

    def violation(self, text):
        with self.lock:
            self.violations.append(text)

    def enter(self, events, state):
        with self.lock:
            for event in events:
                event["state"] = state
                self.events[event["id"]] = event
            if state == "acked":
                self.acks += len(events)

    def in_state(self, state):
        return [event for event in self.events.values() if event["state"] == state]


class Client(threading.Thread):
    """Sends units until its connection is lost."""

    def __init__(self, dsn, number, books, rng):
        super().__init__()
        self.dsn, self.number, self.books, self.rng = dsn, number, books, rng
        self.connection = psycopg2.connect(dsn)
        self.pid = self.connection.get_backend_pid()
        self.cursor = self.connection.cursor()
        self.mine = []

    def new_event(self, poll, unit):
        number = self.rng.getrandbits(48)
        return {
            "poll": poll,
            "id": "%012x" % number,
            "choice": self.rng.choice(CHOICES),
            "principal": "p%d" % self.rng.randrange(40000) if poll == "survey" else None,
            "payload": '{"n": %d}' % number if number % 3 == 0 else None,
            "unit": unit,
        }

    def send(self, event):
        """Send one event of the running transaction: was it accepted?"""
        self.cursor.execute(VOTE, event)
        outcome, *receipt = self.cursor.fetchone()
        if outcome == "accepted":
            event["receipt"] = tuple(receipt)
            return True
        if outcome != "already_responded" or event["poll"] != "survey":
            self.books.violation("new event %s got %s" % (event["id"], outcome))
        return False

    def repeat(self):
        event = self.rng.choice(self.mine)
        self.cursor.execute(VOTE, event)
        outcome, *receipt = self.cursor.fetchone()
        self.connection.rollback()
        if outcome != "duplicate" or tuple(receipt) != event["receipt"]:
            self.books.violation("repeat of %s got %s %s, not duplicate %s"
                                 % (event["id"], outcome, receipt, event["receipt"]))

    def transaction(self, kept, gone):
        """One transaction; each event goes to the list of what its commit will make of it."""
        poll = self.rng.choice(list(POLLS))
        unit = object()
        kind = self.rng.choice(("single", "single", "several", "savepoint", "rollback"))
        for number in range(1 if kind == "single" else self.rng.randint(2, 5)):
            event = self.new_event(poll, unit)
            back = kind == "savepoint" and number % 2 == 1
            if back:
                self.cursor.execute("SAVEPOINT here")
            kept.append(event)          # in doubt while it is sent
            accepted = self.send(event)
            if back:
                self.cursor.execute("ROLLBACK TO SAVEPOINT here")
            if back or not accepted:
                gone.append(kept.pop())
        return kind == "rollback"

    def one_unit(self):
        kept, gone = [], []
        try:
            undo = self.transaction(kept, gone)
            if undo:
                self.connection.rollback()
            else:
                self.connection.commit()
        except psycopg2.extensions.TransactionRollbackError:
            self.connection.rollback()
            undo = True
        except psycopg2.Error:
            self.books.enter(kept, "open")
            self.books.enter(gone, "gone")
            raise
        self.books.enter(gone, "gone")
        self.books.enter(kept, "gone" if undo else "acked")
        if not undo:
            self.mine += kept

    def run(self):
        try:
            while True:
                self.one_unit()
                if self.mine and self.rng.random() < 0.1:
                    self.repeat()
        except psycopg2.Error as error:
            # Whatever the server itself says has an SQLSTATE; of those, class 57 is its shutdown after the kill.
            if error.pgcode is not None and not error.pgcode.startswith("57"):
                self.books.violation("client %d: %s %s" % (self.number, error.pgcode, error))
        except Exception as error:
            self.books.violation("client %d: %r" % (self.number, error))
        finally:
            self.connection.close()


def until(condition, what):
    deadline = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("waited too long for " + what)
        time.sleep(0.005)


def reconnect(dsn):
    """A connection, once the server is up again."""
    found = []

    def attempt():
        try:
            found.append(psycopg2.connect(dsn))
        except psycopg2.OperationalError:
            return False
        return True

    until(attempt, "the server to come back")
    return found[0]


def kill_one(dsn, clients, rng):
    """kill -9 of one client's backend, which is looked up first."""
    connection = psycopg2.connect(dsn)
    cursor = connection.cursor()
    cursor.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid = ANY (%s)",
                   ([client.pid for client in clients],))
    victim = rng.choice(sorted(row[0] for row in cursor.fetchall()))
    os.kill(victim, signal.SIGKILL)
    connection.close()


def read_ledger(cursor):
    cursor.execute("SELECT event_id, poll, votes::text, principal, position::text, attempt, accepted_at"
                   " FROM poll_tally.events")
    rows = cursor.fetchall()
    return len(rows), {row[0]: row[1:] for row in rows}


def check_books(books, cursor):
    """The ledger against the books: acked and right, gone and absent, a unit whole or not at all."""
    count, ledger = read_ledger(cursor)
    if count != len(ledger):
        books.violation("%d rows for %d ids" % (count, len(ledger)))
    for event in books.in_state("acked"):
        expected = (event["poll"], '{"%s": 1}' % event["choice"], event["principal"]) + event["receipt"]
        if ledger.get(event["id"]) != expected:
            books.violation("acknowledged %s: %s, not %s" % (event["id"], ledger.get(event["id"]), expected))
    for event in books.in_state("gone"):
        if event["id"] in ledger:
            books.violation("rolled back or refused %s is in the ledger" % event["id"])
    for identifier in ledger.keys() - books.events.keys():
        books.violation("nobody sent %s" % identifier)
    units = collections.defaultdict(set)
    for event in books.in_state("open"):
        units[event["unit"]].add(event["id"] in ledger)
    for states in units.values():
        if len(states) > 1:
            books.violation("a transaction is in the ledger by half")
    return ledger


def settle_open(books, cursor, ledger, figures):
    """Send the open events again: the answer has to be what the ledger shows."""
    responded = {(row[0], row[2]) for row in ledger.values()}
    for event in books.in_state("open"):
        stored = ledger.get(event["id"])
        cursor.execute(VOTE, event)
        outcome, *receipt = cursor.fetchone()
        figures["open_there" if stored else "open_absent"] += 1
        if stored:
            right = outcome == "duplicate" and tuple(receipt) == stored[3:]
        elif event["principal"] and (event["poll"], event["principal"]) in responded:
            right = outcome == "already_responded"
        else:
            right = outcome == "accepted"
        if not right:
            books.violation("retry of %s (%s) got %s %s" % (event["id"], stored, outcome, receipt))
        event["receipt"] = tuple(receipt)
        books.enter([event], "gone" if outcome == "already_responded" else "acked")
        if outcome == "accepted":
            responded.add((event["poll"], event["principal"]))


def check_counts(books, cursor):
    """What the clients counted themselves, against results and the ledger's effects."""
    expected = {(poll, choice): 0 for poll in POLLS for choice in CHOICES}
    for event in books.in_state("acked"):
        expected[event["poll"], event["choice"]] += 1
    cursor.execute("SELECT poll, choice, count FROM poll_tally.results")
    results = {row[:2]: row[2] for row in cursor.fetchall()}
    cursor.execute("SELECT e.poll, c.choice, coalesce(sum((e.effect::text::json ->> c.choice)::bigint), 0)"
                   " FROM poll_tally.events AS e JOIN poll_tally.choices AS c ON c.poll = e.poll GROUP BY 1, 2")
    effects = {row[:2]: int(row[2]) for row in cursor.fetchall()}
    for key, count in expected.items():
        if results.get(key) != count or effects.get(key, 0) != count:
            books.violation("%s: clients %d, results %s, effects %s" % (key, count, results.get(key), effects.get(key)))


def one_kill(dsn, books, rng, figures):
    goal = books.acks + rng.randint(100, 600)
    clients = [Client(dsn, number, books, random.Random(rng.getrandbits(64))) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    until(lambda: books.acks >= goal or not any(client.is_alive() for client in clients), "the load")
    kill_one(dsn, clients, rng)
    for client in clients:
        client.join()
    connection = reconnect(dsn)
    cursor = connection.cursor()
    ledger = check_books(books, cursor)
    settle_open(books, cursor, ledger, figures)
    connection.commit()
    check_books(books, cursor)
    check_counts(books, cursor)
    connection.close()


def run(dsn, kills, seed):
    rng = random.Random(seed)
    books = Books()
    figures = collections.Counter()
    connection = psycopg2.connect(dsn)
    cursor = connection.cursor()
    for poll, counting in POLLS.items():
        cursor.execute("SELECT poll_tally.create_poll(%s, %s, counting => %s, max_lanes => %s,"
                       " publish_every => '200 milliseconds')",
                       (poll, list(CHOICES), counting, 1 if poll == "ordered" else None))
    connection.commit()
    connection.close()
    for _ in range(kills):
        one_kill(dsn, books, rng, figures)
        figures["kills"] += 1
    for text in books.violations[:10]:
        print("# violation: " + " ".join(text.split()))
    print("kills=%d" % figures["kills"])
    print("acked=%d" % len(books.in_state("acked")))
    print("open=%d" % (figures["open_there"] + figures["open_absent"]))
    print("open_there=%d" % figures["open_there"])
    print("open_absent=%d" % figures["open_absent"])
    print("violations=%d" % len(books.violations))


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
