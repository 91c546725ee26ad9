"""A storm of overlapping batches, and the books of what each client was told.

usage: storm.py DSN CONNECTIONS SECONDS SEED

All connections draw from one window of events, so that batches hold the same ids, principals and source coordinates in
different orders; each element of a batch goes to one of 16 polls. A transaction is one batch, or now and then one single
event. Some are rolled back, some cancelled, some run into a statement_timeout, some are all_or_nothing, some run at
REPEATABLE READ. What was committed is written down, and in the end every answer is held against the ledger:

    an id is in the ledger if and only if exactly one committed transaction was told accepted, with that receipt
    duplicate      what was sent is what is stored, and the receipt is the original one
    conflict       what was sent is not what is stored
    a refusal      has its reason in the ledger, and no committed twin of the event ended before it was sent
    positions      of one batch and poll follow the order of its elements, in one lane, without a hole
"""

import collections
import random
import sys
import threading
import time

import psycopg2
import psycopg2.errors
import psycopg2.extensions

POLLS = 16
CHOICES = ("red", "green", "blue")
WINDOW = 600                    # events that are drawn from at a time
PRINCIPALS = 4000
LIMIT = 40                      # max_count of the limited poll
LEAST_A_SECOND = 300            # batches, so that every outcome comes
RULES = {                       # number of the poll -> arguments of create_poll
    0: "counting => 'once', max_lanes => 1", 1: "counting => 'latest', max_lanes => 1", 2: "counting => 'every', max_lanes => 1",
    3: "counting => 'every', max_count => %d" % LIMIT, 4: "counting => 'latest'", 5: "counting => 'once', max_attempts => 1",
    6: "counting => 'latest', max_attempts => 2"}
BATCH = ("SELECT ord, outcome::text, event_id, poll_tally.lane(position), poll_tally.seq(position), accepted_at, differs, detail"
         " FROM poll_tally.accept_events(NULL, %(ids)s, %(choices)s, %(principals)s, polls => %(polls)s, source => %(source)s,"
         " source_partition => %(partition)s, source_offsets => %(offsets)s, all_or_nothing => %(whole)s) ORDER BY ord")
SINGLE = ("SELECT 1, outcome::text, event_id, poll_tally.lane(position), poll_tally.seq(position), accepted_at, differs, detail"
          " FROM poll_tally.accept_event(%(poll)s, %(id)s, %(choice)s, %(principal)s)")
REFUSED = {"23505", "23514"}    # what an all_or_nothing batch may raise here

Answer = collections.namedtuple("Answer", "event sent_at known_at outcome lane seq accepted_at detail coordinate")
Event = collections.namedtuple("Event", "id poll choice principal offset")


class Window:
    """The events that are drawn from; it moves on with every draw. An id has one content, but for near misses."""

    def __init__(self, rng):
        self.rng, self.lock, self.number = rng, threading.Lock(), 0
        self.events = [self.new() for _ in range(WINDOW)]

    def new(self):
        self.number += 1
        poll = self.rng.randrange(POLLS)
        # Every twentieth shares the source coordinate of the event before it.
        return Event("e%d" % self.number, "storm-%d" % poll, self.rng.choice(CHOICES),
                     "p%d" % self.rng.randrange(PRINCIPALS), self.number - (self.number % 20 == 0))

    def draw(self, rng, count):
        with self.lock:
            for _ in range(max(1, count // 8)):
                self.events[self.rng.randrange(WINDOW)] = self.new()
            drawn = rng.sample(self.events, count)
        if count > 1 and rng.random() < 0.2:
            drawn[-1] = rng.choice(drawn[:-1])
        if rng.random() < 0.1:
            drawn[0] = drawn[0]._replace(choice=rng.choice(CHOICES))
        return drawn


class Client(threading.Thread):
    def __init__(self, dsn, window, rng, goes_on):
        super().__init__()
        self.connection = psycopg2.connect(dsn)
        self.connection.autocommit = True       # BEGIN and COMMIT are sent by hand
        self.cursor = self.connection.cursor()
        self.window, self.rng, self.goes_on = window, rng, goes_on
        self.busy = False
        self.doubt = []                         # events whose COMMIT was cancelled, perhaps too late
        self.answers, self.figures, self.wrong = [], collections.Counter(), []

    def send(self, events, kind):
        if kind == "single":
            self.cursor.execute(SINGLE, events[0]._asdict())
            return None
        with_source = self.rng.random() < 0.3
        self.cursor.execute(BATCH, {
            "ids": [event.id for event in events], "choices": [event.choice for event in events],
            "principals": [event.principal for event in events], "polls": [event.poll for event in events],
            "source": "storm" if with_source else None, "partition": 0 if with_source else None,
            "offsets": [event.offset for event in events] if with_source else None, "whole": kind == "whole"})
        return with_source

    def begin(self):
        level = "REPEATABLE READ" if self.rng.random() < 0.15 else "READ COMMITTED"
        self.cursor.execute("BEGIN ISOLATION LEVEL " + level)
        if self.rng.random() < 0.05:
            self.cursor.execute("SET LOCAL statement_timeout = %s", (self.rng.randint(1, 15),))
        return level

    def roll_back(self):
        """A cancel that comes late can hit ROLLBACK, too."""
        while self.connection.info.transaction_status != psycopg2.extensions.TRANSACTION_STATUS_IDLE:
            try:
                self.cursor.execute("ROLLBACK")
            except psycopg2.errors.QueryCanceled:
                pass

    def commit(self, events):
        try:
            self.cursor.execute("COMMIT")
        except psycopg2.errors.QueryCanceled:
            self.doubt.append(events)
            raise
        if self.cursor.statusmessage != "COMMIT":
            raise RuntimeError("COMMIT said " + self.cursor.statusmessage)

    def transaction(self):
        kind = self.rng.choices(("batch", "whole", "single"), (80, 10, 10))[0]
        events = self.window.draw(self.rng, 1 if kind == "single" else self.rng.randint(2, 40))
        sent_at, level = time.monotonic(), None
        try:
            self.busy = True
            level = self.begin()
            with_source = self.send(events, kind)
            rows = self.cursor.fetchall()
            if self.rng.random() < 0.3:
                time.sleep(self.rng.random() * 0.005)
            self.busy = False
            if self.rng.random() < 0.1:
                self.roll_back()
                self.figures["rollbacks"] += 1
                return
            self.commit(events)
        except psycopg2.Error as error:
            self.busy = False
            self.roll_back()
            self.failed(error, kind, level)
            return
        self.enter(events, rows, sent_at, with_source)
        self.figures["singles" if kind == "single" else "batches"] += 1
        self.figures["events"] += len(events)

    def failed(self, error, kind, level):
        if error.pgcode == "57014":
            self.figures["cancelled"] += 1
        elif error.pgcode == "40P01":
            self.figures["deadlocks"] += 1
        elif error.pgcode == "40001" and level == "REPEATABLE READ":
            self.figures["not_serializable"] += 1
        elif error.pgcode in REFUSED and kind == "whole" and "ord " in (error.diag.message_detail or ""):
            self.figures["refused_whole"] += 1
        else:
            self.wrong.append("%s transaction: %s %s" % (kind, error.pgcode, error))

    def enter(self, events, rows, sent_at, with_source):
        known_at = time.monotonic()
        if [row[2] for row in rows] != [event.id for event in events] or [row[0] for row in rows] != list(range(1, len(rows) + 1)):
            self.wrong.append("rows do not follow the elements")
            return
        accepted = collections.defaultdict(list)
        for event, (_, outcome, _, lane, seq, accepted_at, _, detail) in zip(events, rows):
            self.answers.append(Answer(event, sent_at, known_at, outcome, lane, seq, accepted_at, detail,
                                       event.offset if with_source else None))
            if outcome == "accepted":
                accepted[event.poll].append((lane, seq))
        for poll, positions in accepted.items():
            first = positions[0]
            if positions != [(first[0], first[1] + i) for i in range(len(positions))]:
                self.wrong.append("positions of one batch in %s: %s" % (poll, positions))

    def run(self):
        try:
            while self.goes_on():
                self.transaction()
        except Exception as error:
            self.wrong.append("client died: %r" % error)


def going(clients, seconds, least):
    """The storm lasts so many seconds, on a slow machine longer: until so many batches are committed. Ten times as long
    is a machine that stands still."""
    begun = time.monotonic()

    def goes_on():
        lasted = time.monotonic() - begun
        done = sum(client.figures["batches"] for client in clients)
        return lasted < seconds or (done < least and lasted < 10 * seconds)
    return goes_on


def cancel_some(clients, rng):
    """Cancels whatever a random client is at, until the storm is over."""
    while clients[0].goes_on():
        time.sleep(0.02)
        client = rng.choice(clients)
        if client.busy:
            client.connection.cancel()


def read_ledger(cursor):
    cursor.execute("SELECT event_id, poll, votes::text, principal, poll_tally.lane(position), poll_tally.seq(position), accepted_at,"
                   " source_offset FROM poll_tally.events")
    names = "poll votes principal lane seq accepted_at offset"
    Entry = collections.namedtuple("Entry", names)
    return {row[0]: Entry(*row[1:]) for row in cursor.fetchall()}


def same_content(event, entry):
    return (event.poll, '{"%s": 1}' % event.choice, event.principal) == (entry.poll, entry.votes, entry.principal)


def has_reason(answer, ledger, offsets, polls):
    """Does the ledger show why the event was refused?"""
    event = answer.event
    if answer.outcome == "source_conflict":
        return answer.coordinate is not None and offsets.get(answer.coordinate) not in (None, event.id)
    if answer.outcome == "already_responded":
        entry = ledger.get((answer.detail or "").split('"')[1::2][-1] if '"' in (answer.detail or "") else None)
        return entry is not None and (entry.poll, entry.principal) == (event.poll, event.principal)
    return answer.outcome == "limit_reached" and polls[event.poll] >= LIMIT and event.poll == "storm-3"


def judge(answer, ledger, first_known, offsets, polls):
    """What is wrong with an answer; None when nothing is."""
    event, entry = answer.event, ledger.get(answer.event.id)
    receipt = (answer.lane, answer.seq, answer.accepted_at)
    if answer.outcome in ("accepted", "duplicate"):
        if entry is None or not same_content(event, entry) or receipt != (entry.lane, entry.seq, entry.accepted_at):
            return "%s, but the ledger has %s" % (answer.outcome, entry)
        return None
    if answer.outcome == "conflict":
        return "conflict with its own content" if entry is None or same_content(event, entry) else None
    if first_known.get(event.id, answer.sent_at) < answer.sent_at:
        return "%s of an id that was in the ledger" % answer.outcome
    return None if has_reason(answer, ledger, offsets, polls) else "%s without a reason" % answer.outcome


def judge_all(clients, ledger):
    answers = [answer for client in clients for answer in client.answers]
    accepted = collections.Counter(answer.event.id for answer in answers if answer.outcome == "accepted")
    wrong = ["%s accepted %d times" % item for item in accepted.items() if item[1] != 1]
    doubt = {event.id for client in clients for events in client.doubt for event in events}
    wrong += ["%s in the ledger, and nobody was told" % name for name in ledger.keys() - accepted.keys() - doubt]
    first_known = {answer.event.id: answer.known_at for answer in answers if answer.outcome == "accepted"}
    offsets = {entry.offset: name for name, entry in ledger.items() if entry.offset is not None}
    polls = collections.Counter(entry.poll for entry in ledger.values())
    for answer in answers:
        problem = judge(answer, ledger, first_known, offsets, polls)
        if problem is not None:
            wrong.append("%s: %s" % (answer.event, problem))
    return answers, wrong


def recount(cursor, ledger):
    """Choice by choice: results against the ledger, counted here by the rules of the poll."""
    expected = collections.Counter()
    last = {}
    for entry in sorted(ledger.values(), key=lambda entry: entry.accepted_at):
        expected[entry.poll, entry.votes[2:-5]] += 1
        if "latest" in RULES.get(int(entry.poll[6:]), ""):
            last.setdefault((entry.poll, entry.principal), []).append(entry)
    for entries in last.values():
        for replaced in entries[:-1]:
            expected[replaced.poll, replaced.votes[2:-5]] -= 1
    cursor.execute("SELECT poll, choice, count FROM poll_tally.results")
    return ["%s %s: results %d, counted %d" % (poll, choice, count, expected[poll, choice])
            for poll, choice, count in cursor.fetchall() if count != expected[poll, choice]]


def run(dsn, count, seconds, seed):
    rng = random.Random(seed)
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    cursor = connection.cursor()
    for number in range(POLLS):
        cursor.execute("SELECT poll_tally.create_poll(%%s, %%s, %s)" % RULES.get(number, "counting => 'every'"),
                       ("storm-%d" % number, list(CHOICES)))
    window = Window(random.Random(rng.getrandbits(64)))
    clients = []
    goes_on = going(clients, seconds, seconds * LEAST_A_SECOND)
    clients += [Client(dsn, window, random.Random(rng.getrandbits(64)), goes_on) for _ in range(count)]
    for client in clients:
        client.start()
    cancel_some(clients, rng)
    for client in clients:
        client.join(60)
        if client.is_alive():
            raise RuntimeError("a client is stuck")
    ledger = read_ledger(cursor)
    answers, wrong = judge_all(clients, ledger)
    differences = recount(cursor, ledger)
    wrong += [line for client in clients for line in client.wrong]
    figures = sum((client.figures for client in clients), collections.Counter())
    figures["doubt"] = sum(len(client.doubt) for client in clients)
    cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    report(figures, answers, len(ledger), wrong, differences, cursor.fetchone()[0])


def report(figures, answers, entries, wrong, differences, server_deadlocks):
    for line in (wrong + differences)[:10]:
        print("# " + " ".join(line.split()))
    for name in ("batches", "singles", "events", "rollbacks", "cancelled", "refused_whole", "not_serializable", "deadlocks",
                 "doubt"):
        print("%s=%d" % (name, figures[name]))
    outcomes = collections.Counter(answer.outcome for answer in answers)
    for name in ("accepted", "duplicate", "conflict", "source_conflict", "already_responded", "limit_reached"):
        print("said_%s=%d" % (name, outcomes[name]))
    print("entries=%d" % entries)
    print("server_deadlocks=%d" % server_deadlocks)
    print("wrong=%d" % len(wrong))
    print("recount_wrong=%d" % len(differences))


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
