#!/usr/bin/python3
"""A month of shopping baskets as weighted events of a counter, through everything that at-least-once delivery does.

usage: groceries.py [DSN [FILE]]

FILE has one basket a line, item names separated by commas; without it, the small baskets.csv beside this script. A
basket is one event: its items are the keys, its line number the id. Four clients feed batches of 500. One batch in ten
is delivered twice, and one client is killed in the middle of a batch, so that nobody knows what became of it until
another client sends it again. Then one basket in twenty is given back, as an event of negative counts whose id comes
from the basket's, so that a return can be sent again as safely. Last, the same baskets are counted by day, one counter
a day; what is older than a week is closed, noted down and dropped.

The three figures to watch: events received, duplicates caught, unknown results resolved by a retry. The end is a recount
of the file, which asks nothing of the database; differences make the script fail.
"""

import collections
import json
import multiprocessing
import multiprocessing.connection
import os
import random
import re
import signal
import sys
import time

import psycopg2

CLIENTS = 4
BATCH = 500
REDELIVERED = 0.1
RETURNED = 20                   # one basket in so many comes back
DAYS = 30
KEPT_DAYS = 7
SEED = 2013

ACCEPT = ("SELECT r.outcome::text, count(*) FROM poll_tally.accept_events(%s, %s, votes => %s::jsonb[]) AS r GROUP BY 1")


def key(name):
    """An item's name as an identifier: trimmed, and what an identifier cannot hold replaced."""
    return re.sub(r'[^!-~]|["\\]', "-", name.strip())


def read_baskets(file):
    """Line number -> items with their counts."""
    with open(file, encoding="utf-8") as lines:
        return {number: collections.Counter(key(name) for name in line.rstrip("\n").split(","))
                for number, line in enumerate(lines, 1) if line.strip()}


def batches_of(events):
    """events: pairs of id and counts. A batch is two arrays."""
    for first in range(0, len(events), BATCH):
        some = events[first:first + BATCH]
        yield [name for name, _ in some], [json.dumps(counts) for _, counts in some]


def send(cursor, poll, batch):
    """Outcomes of a batch. A consumer would store its cursor in the same transaction, with advance_source."""
    cursor.execute(ACCEPT, (poll,) + batch)
    outcomes = dict(cursor.fetchall())
    if outcomes.keys() - {"accepted", "duplicate"}:
        raise RuntimeError("refused: %s" % outcomes)
    return outcomes


# --- four clients, one of which is killed ---------------------------------------------------------------------------

def client(dsn, poll, pipe):
    """Batches come by the pipe; what was committed is acknowledged, and nothing before."""
    connection = psycopg2.connect(dsn)
    cursor = connection.cursor()
    while True:
        number, batch = pipe.recv()
        pipe.send(("begins", number, None))
        outcomes = send(cursor, poll, batch)
        connection.commit()
        pipe.send(("acknowledged", number, outcomes))


class Delivery:
    """Delivers batches at least once, and keeps the figures."""

    def __init__(self, dsn, poll, batches, rng):
        self.batches, self.rng = dict(enumerate(batches)), rng
        again = [number for number in self.batches if rng.random() < REDELIVERED] or [0]
        self.queue = list(self.batches) + again
        self.queue.sort(key=lambda number: number + rng.random() * 8)
        self.kill_at = len(self.queue) // 2
        self.figures = collections.Counter()
        self.unknown, self.busy, self.tries = set(), {}, 0
        self.clients = dict(self.start(dsn, poll) for _ in range(CLIENTS))

    def start(self, dsn, poll):
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.Process(target=client, args=(dsn, poll, theirs), daemon=True)
        process.start()
        theirs.close()
        return ours, process

    def give(self, pipe):
        if self.queue:
            number = self.queue.pop(0)
            self.busy[pipe] = number
            pipe.send((number, self.batches[number]))

    def kill(self, pipe):
        """Kill a client that is at a batch. Nobody knows what became of it, so it is sent again.

        One that has answered meanwhile is let go, and the next is caught a little sooner.
        """
        self.tries += 1
        time.sleep(self.rng.random() * 0.02 / self.tries)
        os.kill(self.clients[pipe].pid, signal.SIGSTOP)
        if pipe.poll():
            os.kill(self.clients[pipe].pid, signal.SIGCONT)
            return
        os.kill(self.clients[pipe].pid, signal.SIGKILL)
        self.clients.pop(pipe).join()
        number = self.busy.pop(pipe)
        try:
            while True:
                message = pipe.recv()
                if message[0] == "acknowledged":
                    self.acknowledged(*message[1:])
                    return
        except EOFError:
            self.unknown.add(number)
            self.queue.insert(0, number)
            self.figures["unknown"] += len(self.batches[number][0])

    def acknowledged(self, number, outcomes):
        self.figures["received"] += sum(outcomes.values())
        self.figures["duplicates"] += outcomes.get("duplicate", 0)
        if number in self.unknown:
            self.unknown.remove(number)
            self.figures["resolved"] += sum(outcomes.values())
            self.figures["were_there"] += outcomes.get("duplicate", 0)

    def hear(self, pipe):
        what, number, outcomes = pipe.recv()
        if what == "acknowledged":
            del self.busy[pipe]
            self.acknowledged(number, outcomes)
            self.give(pipe)
        # Among the batches of the second half, until the answer of one is really lost.
        elif len(self.queue) <= self.kill_at and not self.figures["unknown"] and len(self.clients) > 1:
            self.kill(pipe)
            for idle in [other for other in self.clients if other not in self.busy]:
                self.give(idle)

    def run(self):
        for pipe in self.clients:
            self.give(pipe)
        while self.busy:
            for pipe in multiprocessing.connection.wait(list(self.busy)):
                if pipe in self.busy:
                    self.hear(pipe)
        for process in self.clients.values():
            process.terminate()
        return self.figures


# --- counters by day ------------------------------------------------------------------------------------------------

def count_by_day(cursor, baskets):
    """A counter a day; the oldest is closed, its final counts are noted down, and it is dropped. Returns the notes."""
    notes, last = {}, max(baskets)
    for day in range(1, DAYS + 1):
        poll = "groceries-day-%02d" % day
        cursor.execute("SELECT poll_tally.create_counter(%s)", (poll,))
        events = [("day-%d/basket-%d" % (day, number), counts) for number, counts in baskets.items()
                  if 1 + (number - 1) * DAYS // last == day]
        for batch in batches_of(events):
            send(cursor, poll, batch)
        if day > KEPT_DAYS:
            old = "groceries-day-%02d" % (day - KEPT_DAYS)
            cursor.execute("SELECT counts::jsonb FROM poll_tally.close_poll(%s)", (old,))
            notes[old] = cursor.fetchone()[0]
            cursor.execute("SELECT poll_tally.drop_poll(%s)", (old,))
    return notes


# --- the recount ----------------------------------------------------------------------------------------------------

def recount(file):
    """Sales and returns as the file has them."""
    sales, returns = collections.Counter(), collections.Counter()
    with open(file, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            for name in line.split(",") if line.strip() else ():
                item = "".join(c if "!" <= c <= "~" and c not in '"\\' else "-" for c in name.strip())
                sales[item] += 1
                returns[item] += number % RETURNED == 0
    return sales, returns


def results(cursor, poll):
    cursor.execute("SELECT choice, count FROM poll_tally.results WHERE poll = %s AND count <> 0", (poll,))
    return dict(cursor.fetchall())


def differences(expected, actual):
    return sum(expected.get(item, 0) != actual.get(item, 0) for item in expected.keys() | actual.keys())


def say(name, value):
    print("%-36s %s" % (name + ":", value))


def top_five(title, counts):
    best = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:5]
    say(title, ", ".join("%s %d" % pair for pair in best))


def run(dsn="", file=os.path.join(os.path.dirname(os.path.abspath(__file__)), "baskets.csv")):
    baskets = read_baskets(file)
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute("SELECT poll_tally.create_counter('groceries', 'items sold')")

    sold = [("basket-%d" % number, counts) for number, counts in baskets.items()]
    figures = Delivery(dsn, "groceries", list(batches_of(sold)), random.Random(SEED)).run()
    say("baskets", len(baskets))
    say("received", figures["received"])
    say("duplicates caught", figures["duplicates"])
    say("unknown results resolved by retry", "%d of %d (%d were there)"
        % (figures["resolved"], figures["unknown"], figures["were_there"]))
    before = results(cursor, "groceries")
    top_five("before returns", before)

    back = [("return-of-basket-%d" % number, {item: -count for item, count in counts.items()})
            for number, counts in baskets.items() if number % RETURNED == 0]
    caught = 0
    for _ in range(2):                  # nobody heard the first answer, so all of them are sent again
        for batch in batches_of(back):
            caught += send(cursor, "groceries", batch).get("duplicate", 0)
    after = results(cursor, "groceries")
    say("returns", "%d, sent twice, %d duplicates caught" % (len(back), caught))
    top_five("after returns", after)

    notes = count_by_day(cursor, baskets)
    days = sum((collections.Counter(note) for note in notes.values()), collections.Counter())
    cursor.execute("SELECT poll FROM poll_tally.polls WHERE poll LIKE 'groceries-day-%'")
    kept = [row[0] for row in cursor.fetchall()]
    for poll in kept:
        days.update(results(cursor, poll))
    say("days", "%d counted, %d closed and dropped, %d kept" % (DAYS, len(notes), len(kept)))

    sales, returns = recount(file)
    wrong = [differences(sales, before), differences({item: sales[item] - returns[item] for item in sales}, after),
             differences(sales, days)]
    say("recount", "%d items, %d entries; differences: %d sold, %d after returns, %d by day"
        % ((len(sales), sum(sales.values())) + tuple(wrong)))
    return int(any(wrong) or figures["resolved"] != figures["unknown"])


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
