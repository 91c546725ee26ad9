"""A storm on polls with one lane: seats that run out while transactions commit, roll back, are cancelled and die.

usage: seats.py DSN CONNECTIONS SEATS SEED

Every connection sends events to a poll with a seat limit until it is told limit_reached by a transaction that has ended:
single calls, calls in a savepoint that is rolled back or not, calls that are rolled back as a whole, calls under a
statement_timeout that is too short, under a lock_timeout, and now and then one whose backend is terminated by itself.
What is unknown afterwards (a lost connection) is sent again. Prints figures as name=value.
"""

import collections
import random
import sys
import threading

import psycopg2
from psycopg2 import errors

CALL = "SELECT outcome::text FROM poll_tally.accept_event('seats', %s, %s)"
ENDS = ("commit",) * 6 + ("rollback", "savepoint", "kept", "cancel", "lock_timeout", "die")


class Client(threading.Thread):
    def __init__(self, dsn, number, seed):
        super().__init__()
        self.dsn, self.number = dsn, number
        self.random = random.Random("%d/%d" % (seed, number))
        self.figures = collections.Counter()
        self.accepted, self.error = set(), None
        self.connection = None

    def connect(self):
        self.connection = psycopg2.connect(self.dsn)
        return self.connection.cursor()

    def send(self, cursor, event_id, end):
        """One transaction; returns the outcome that holds once it has ended, or None where there is none."""
        if end == "cancel":
            cursor.execute("SET LOCAL statement_timeout = '2ms'")
        elif end == "lock_timeout":
            cursor.execute("SET LOCAL lock_timeout = '2ms'")
        elif end in ("savepoint", "kept"):
            cursor.execute("SAVEPOINT here")
        cursor.execute(CALL, (event_id, self.random.choice("ab")))
        outcome = cursor.fetchone()[0]
        if end == "savepoint":
            cursor.execute("ROLLBACK TO here")
            outcome = None
        elif end == "rollback":
            self.connection.rollback()
            return None
        elif end == "die":
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        self.connection.commit()
        return outcome

    def attempt(self, cursor, event_id, end):
        """The same, where errors are what they may be; returns cursor and outcome."""
        try:
            return cursor, self.send(cursor, event_id, end)
        except (errors.QueryCanceled, errors.LockNotAvailable):
            self.figures["cancelled"] += 1
            self.connection.rollback()
        except (errors.AdminShutdown, psycopg2.InterfaceError, psycopg2.OperationalError):
            if end != "die":
                raise
            self.figures["died"] += 1
            cursor = self.connect()
        return cursor, None

    def run(self):
        try:
            cursor = self.connect()
            number = 0
            while True:
                event_id = "%d-%d" % (self.number, number)
                cursor, outcome = self.attempt(cursor, event_id, self.random.choice(ENDS))
                self.figures["calls"] += 1
                if outcome == "limit_reached":
                    return
                if outcome == "accepted":
                    self.accepted.add(event_id)
                    number += 1
        except Exception as error:  # told to the main thread, which raises it
            self.error = error


def main(dsn, connections, seats, seed):
    setup = psycopg2.connect(dsn)
    setup.autocommit = True
    setup.cursor().execute("SELECT poll_tally.create_poll('seats', '{a,b}', counting => 'every', max_count => %s)", (seats,))
    clients = [Client(dsn, number, seed) for number in range(connections)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(600)
        if client.is_alive():
            raise RuntimeError("client %d has been waiting for ten minutes" % client.number)
        if client.error is not None:
            raise client.error
    figures = collections.Counter()
    for client in clients:
        figures.update(client.figures)
    told = set().union(*(client.accepted for client in clients))
    cursor = setup.cursor()
    cursor.execute("SELECT event_id FROM poll_tally.events WHERE poll = 'seats'")
    stored = {event_id for event_id, in cursor}
    cursor.execute("SELECT choice, count FROM poll_tally.results WHERE poll = 'seats'")
    counts = dict(cursor)
    figures.update(told=len(told), stored=len(stored), missing=len(told - stored), phantom=len(stored - told))
    for choice in "ab":
        figures["count_" + choice] = counts[choice]
    for name, value in figures.items():
        print("%s=%s" % (name, value))


if __name__ == "__main__":
    main(sys.argv[1], *(int(argument) for argument in sys.argv[2:5]))
