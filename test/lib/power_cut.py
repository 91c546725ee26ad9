"""The load before a power cut: transactions, each with its id, what it entered, and the receipts.

usage: power_cut.py DSN SEED TRANSACTIONS FILE

Writes a line "xid id position" for each event of a committed transaction, and "xid -" for one that entered nothing.
"""

import random
import sys
import threading

import psycopg2

CLIENTS = 8
CHOICES = ["red", "green", "blue"]
POLLS = {"once": "counting => 'once'", "latest": "counting => 'latest'", "every": "counting => 'every'",
         "ordered": "counting => 'every', max_lanes => 1"}
ACCEPT = "SELECT outcome::text, position::text FROM poll_tally.accept_event(%s, %s, %s, %s)"
BATCH = ("SELECT event_id, position::text FROM poll_tally.accept_events(%s, %s, %s) WHERE outcome = 'accepted' ORDER BY ord")


def one_transaction(cursor, rng, name):
    """Some events, a batch, a savepoint that is rolled back to; returns (id, position) of what stays."""
    entered = []
    for number in range(rng.randint(1, 3)):
        undo = rng.random() < 0.2
        poll = rng.choice(sorted(POLLS))
        if undo:
            cursor.execute("SAVEPOINT here")
        identifier = "%s-%d" % (name, number)
        cursor.execute(ACCEPT, (poll, identifier, rng.choice(CHOICES), "p%d" % rng.randrange(300)))
        outcome, position = cursor.fetchone()
        if undo:
            cursor.execute("ROLLBACK TO here")
        elif outcome == "accepted":
            entered.append((identifier, position))
    if rng.random() < 0.15:
        count = rng.randint(5, 60)
        cursor.execute(BATCH, ("every", ["%s-b%d" % (name, number) for number in range(count)],
                               [rng.choice(CHOICES) for _ in range(count)]))
        entered += cursor.fetchall()
    return entered


def client(dsn, rng, number, count, lines, lock):
    connection = psycopg2.connect(dsn)
    cursor = connection.cursor()
    for step in range(count):
        try:
            entered = one_transaction(cursor, rng, "c%d-%d" % (number, step))
            cursor.execute("SELECT pg_current_xact_id_if_assigned()::text")
            xid = cursor.fetchone()[0]
            connection.commit()
        except psycopg2.extensions.TransactionRollbackError:
            connection.rollback()
            continue
        with lock:
            if xid is not None:
                lines += ["%s %s %s" % ((xid,) + entry) for entry in entered] or [xid + " -"]


def main(dsn, seed, transactions, path):
    rng = random.Random(seed)
    connection = psycopg2.connect(dsn)
    cursor = connection.cursor()
    for poll, rules in POLLS.items():
        cursor.execute("SELECT poll_tally.create_poll(%%s, %%s, publish_every => '100 milliseconds', %s)" % rules, (poll, CHOICES))
    connection.commit()
    lines, lock = [], threading.Lock()
    threads = [threading.Thread(target=client, args=(dsn, random.Random(rng.getrandbits(64)), number, transactions // CLIENTS, lines, lock))
               for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open(path, "w", encoding="ascii") as file:
        file.write("".join(line + "\n" for line in lines))
    print("transactions=%d" % len({line.split()[0] for line in lines}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
