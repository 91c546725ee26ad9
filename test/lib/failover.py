"""The load of a failover, the books of its clients, and readers on the standby; the other half of test/t/085_failover.pl.

usage: failover.py SEED, then one JSON object a line on standard input; each is answered by one line.

    {"do": "load", "primary": DSN, "standby": DSN, "acks": N, "at_once": BOOL}   N more events acknowledged, load goes on
    {"do": "more", "acks": N}                                     N more, counted from here
    {"do": "join"}                                                the primary is gone: wait for the clients to notice
    {"do": "check", "primary": DSN, "may_lose": BOOL}             the promoted server against the books
    {"do": "end"}                                                 that was the last round

Clients and books are those of crash.py. What was acknowledged and is not there is lost: never allowed behind a
synchronous standby. Behind an asynchronous one it is counted, and must be the end of what was committed: nothing that
was sent after a lost event had been acknowledged may be there. Lost events are then in doubt like those whose commit
was not acknowledged: of a transaction all or none are there, and a retry of each has to tell the truth.

On the standby one session reads all the while, and keeps reading through the promotion: in every statement ledger,
results and positions agree; snapshots keep the client rule and are complete; what a client was told with
synchronous_commit = remote_apply (at_once) is there.
"""

import collections
import json
import random
import sys
import threading
import time

import psycopg2

import crash

COUNTED = ("SELECT p.poll, p.accepted_position, (SELECT count(*) FROM poll_tally.events AS e WHERE e.poll = p.poll),"
           " (SELECT sum(r.count) FROM poll_tally.results AS r WHERE r.poll = p.poll) FROM poll_tally.polls AS p")


class Books(crash.Books):
    """The books, with the time at which each client was told."""

    def __init__(self):
        super().__init__()
        self.newest = None              # an event of the newest acknowledged transaction

    def enter(self, events, state):
        for event in events:
            event["told_at"] = time.monotonic()
        super().enter(events, state)
        if state == "acked" and events:
            self.newest = events[-1]


class Client(crash.Client):
    def new_event(self, poll, unit):
        return dict(super().new_event(poll, unit), sent_at=time.monotonic())


class Reader(threading.Thread):
    """Reads on the standby until it is told to stop."""

    def __init__(self, dsn, books, figures, at_once):
        super().__init__()
        self.connection = psycopg2.connect(dsn)
        self.connection.autocommit = True
        self.cursor = self.connection.cursor()
        self.books, self.figures, self.at_once = books, figures, at_once
        self.known = {}                 # poll -> (epoch, revision)
        self.done = threading.Event()

    def query(self, sql, *arguments):
        self.cursor.execute(sql, arguments)
        self.figures["reads"] += 1
        return self.cursor.fetchall()

    def one_pass(self):
        told = self.books.newest if self.at_once else None
        if told:
            (status, *_), = self.query("SELECT status FROM poll_tally.event_status(%s)", told["id"])
            self.figures["read_at_once"] += 1
            if status != "accepted":
                self.books.violation("standby: %s was acknowledged and is %s" % (told["id"], status))
        for poll, *numbers in self.query(COUNTED):
            if len(set(map(int, numbers))) != 1:
                self.books.violation("standby, %s: position, ledger and results are %s" % (poll, numbers))
        for poll in crash.POLLS:
            self.resume(poll)
        poll = random.choice(list(crash.POLLS))
        for name, expected, actual in self.query("SELECT check_name, expected, actual FROM poll_tally.verify_poll(%s)"
                                                 " WHERE NOT ok", poll):
            self.books.violation("standby, verify_poll(%s): %s %s, not %s" % (poll, name, actual, expected))

    def resume(self, poll):
        """The client rule; and a snapshot holds as much as its position says."""
        epoch, revision = self.known.get(poll, (None, None))
        for new_epoch, new, position, total in self.query("SELECT epoch, revision, included_position, total"
                                                          " FROM poll_tally.snapshot(%s, %s, %s)", poll, epoch, revision):
            if new_epoch == epoch and new <= revision:
                self.books.violation("standby, %s: revision %d after %d" % (poll, new, revision))
            if position != total:
                self.books.violation("standby, %s, revision %d: position %d, total %s" % (poll, new, position, total))
            self.known[poll] = (new_epoch, new)
            self.figures["standby_revisions"] += 1

    def refuse(self):
        try:
            self.query("SELECT outcome FROM poll_tally.accept_event('clicks', 'on-the-standby', 'red')")
            self.books.violation("the standby accepted an event")
        except psycopg2.errors.ReadOnlySqlTransaction:
            self.figures["refused"] += 1

    def run(self):
        try:
            self.refuse()
            while not self.done.is_set():
                try:
                    self.one_pass()
                except psycopg2.errors.SerializationFailure:
                    self.figures["conflicts_with_recovery"] += 1
        except Exception as error:
            self.books.violation("standby: %r" % error)


class Rounds:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.books = Books()
        self.clients, self.reader = [], None
        self.figures = collections.Counter()

    def more(self, acks):
        goal = self.books.acks + acks
        crash.until(lambda: self.books.acks >= goal or not any(client.is_alive() for client in self.clients), "the load")
        return {"acks": self.books.acks}

    def load(self, primary, standby, acks, at_once):
        self.clients = [Client(primary, number, self.books, random.Random(self.rng.getrandbits(64)))
                        for number in range(crash.CLIENTS)]
        self.books.newest = None
        self.reader = Reader(standby, self.books, self.figures, at_once)
        for thread in self.clients + [self.reader]:
            thread.start()
        return self.more(acks)

    def join(self):
        for client in self.clients:
            client.join()
        return {"acks": self.books.acks}

    def lose(self, ledger):
        """Events that were acknowledged and are not there become events in doubt."""
        lost = [event for event in self.books.in_state("acked") if event["id"] not in ledger]
        if lost:
            first = min(event["told_at"] for event in lost)
            for event in self.books.in_state("acked"):
                if event["id"] in ledger and event.get("sent_at", 0) > first:
                    self.books.violation("%s is there, sent after a lost event was acknowledged" % event["id"])
            self.books.enter(lost, "open")
        return lost

    def check(self, primary, may_lose):
        self.reader.done.set()
        self.reader.join()
        # The session that was open through the promotion sees what a new one does.
        sql = "SELECT poll, epoch FROM poll_tally.lag ORDER BY poll"
        connection = psycopg2.connect(primary)
        cursor = connection.cursor()
        cursor.execute(sql)
        if self.reader.query(sql) != cursor.fetchall():
            self.books.violation("a session that was open through the promotion has another epoch")
        self.reader.resume("clicks")
        self.reader.connection.close()
        _, ledger = crash.read_ledger(cursor)
        lost = self.lose(ledger) if may_lose else []
        ledger = crash.check_books(self.books, cursor)
        doubts = collections.Counter()
        crash.settle_open(self.books, cursor, ledger, doubts)
        connection.commit()
        crash.check_books(self.books, cursor)
        crash.check_counts(self.books, cursor)
        connection.close()
        violations, self.books.violations = self.books.violations, []
        answer = dict(self.figures, acked=len(self.books.in_state("acked")), lost=len(lost), violations=violations,
                      in_doubt=sum(doubts.values()), there=doubts["open_there"])
        self.figures.clear()
        # What was settled is as old as the ledger it was found in.
        for event in self.books.events.values():
            event["sent_at"] = 0
        return answer


def run(seed):
    rounds = Rounds(seed)
    for line in sys.stdin:
        order = json.loads(line)
        do = order.pop("do")
        answer = {} if do == "end" else getattr(rounds, do)(**order)
        print(json.dumps(answer), flush=True)
        if do == "end":
            break


if __name__ == "__main__":
    run(int(sys.argv[1]))
