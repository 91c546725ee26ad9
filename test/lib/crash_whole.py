"""Load from many clients, and the whole server goes down in the middle of it; the books are those of crash.py.

usage: crash_whole.py DSN DATA LOG ROUNDS SEED          rounds take turns: postmaster killed -9, immediate stop

After every start the ledger is compared with what the clients know, the events in doubt are sent again, and the counts
are compared with the clients' own.
"""

import collections
import os
import random
import sys

import psycopg2

from crash import CHOICES, CLIENTS, POLLS, Books, Client, check_books, check_counts, reconnect, settle_open, until
from faults import Faults


def make_polls(dsn):
    connection = psycopg2.connect(dsn)
    cursor = connection.cursor()
    for poll, counting in POLLS.items():
        cursor.execute("SELECT poll_tally.create_poll(%s, %s, counting => %s, max_lanes => %s, publish_every => '200 milliseconds')",
                       (poll, list(CHOICES), counting, 1 if poll == "ordered" else None))
    connection.commit()
    connection.close()


def one_round(dsn, hit, books, rng, figures):
    goal = books.acks + rng.randint(100, 400)
    clients = [Client(dsn, number, books, random.Random(rng.getrandbits(64))) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    until(lambda: books.acks >= goal or not any(client.is_alive() for client in clients), "the load")
    hit()
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


def main(dsn, data, log, rounds, seed):
    rng, books, figures = random.Random(seed), Books(), collections.Counter()
    faults = Faults(dsn, os.path.realpath(data), log, seed, [])
    make_polls(dsn)
    for number in range(rounds):
        kind = "postmaster" if number % 2 == 0 else "stop"
        one_round(dsn, getattr(faults, kind), books, rng, figures)
        figures[kind] += 1
    for text in books.violations[:10]:
        print("# violation: " + " ".join(text.split()))
    for name in ("postmaster", "stop", "open_there", "open_absent"):
        print("%s=%d" % (name, figures[name]))
    print("acked=%d" % len(books.in_state("acked")))
    print("violations=%d" % len(books.violations))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
