"""Clients of a random history: carry out their plan, and log what they sent and what they were told.

usage: history_client.py DSN SEED CLIENTS STEPS FIRST COUNT FOLDER      clients FIRST to FIRST + COUNT - 1 of CLIENTS
       history_client.py DSN SEED CLIENTS STEPS polls                   makes the polls

Each client writes one file of lines of tab-separated fields (\\N for none), that history_check.pl reads:

    T client step level end state sqlstate begun known digest    a transaction; its operations follow, in order
    A undone sent told form poll id votes principal payload occurred source outcome position attempt accepted_at differs detail
    R undone sent told poll event_id id reason again outcome position attempt accepted_at differs detail
    C sent told poll revision position counts                    close_poll; P likewise for publish
    V poll ledger results published                              counts, read by one statement

state is "ok" (the commit was acknowledged), "refused" (it is known not to have happened) or "unknown". Times are of the
monotonic clock, which all processes share. undone is the number of the operation before which a ROLLBACK TO took this
one back. An outcome "?" is one that was never told. A client whose connection is lost comes back and goes on; in the
end it sends again, one by one, the events of all transactions whose end it does not know.
"""

import sys
import threading
import time

import psycopg2

from history_plan import Plan, World, digest, tally_text

DEADLINE = 180
OPTIONS = "-c lock_timeout=300ms -c timezone=UTC -c client_min_messages=error"
LOST = {None, "57P01", "57P02", "57P03"}
RECEIPT = ("outcome::text, lane(position) || '/' || seq(position), attempt,"
           " (extract(epoch FROM accepted_at) * 1000000)::bigint, array_to_string(differs, ','), detail")
RECEIPT = RECEIPT.replace("lane(", "poll_tally.lane(").replace("seq(", "poll_tally.seq(")
ACCEPT = ("SELECT " + RECEIPT + " FROM poll_tally.%s(%%s, %%s, principal => %%s, votes => %%s::jsonb, payload => %%s::jsonb,"
          " occurred_at => %%s::timestamptz, source => %%s, source_partition => %%s, source_offset => %%s)")
BATCH = ("SELECT " + RECEIPT + " FROM poll_tally.accept_events(NULL, %s, principals => %s, votes => %s::jsonb[],"
         " payloads => %s::jsonb[], occurred_ats => %s::timestamptz[], polls => %s, all_or_nothing => %s) ORDER BY ord")
RETRACT = "SELECT " + RECEIPT + " FROM poll_tally.retract_event(%s, %s, %s, %s, %s)"
SNAPSHOT = "SELECT revision, included_position, counts::text FROM poll_tally.%s(%%s)"
LOOK = """
WITH effect AS (
    SELECT j.key AS choice, j.value::numeric AS count, NOT poll_tally.includes(s.frontier, e.position) AS later
    FROM poll_tally.events AS e JOIN poll_tally.snapshot(%(poll)s) AS s ON true
    CROSS JOIN LATERAL json_each_text(e.effect::text::json) AS j (key, value)
    WHERE e.poll = %(poll)s),
ledger AS (SELECT choice, sum(count) AS count FROM effect GROUP BY choice),
later AS (
    SELECT choice, sum(count) AS count
    FROM (SELECT choice, count FROM effect WHERE later
          UNION ALL SELECT j.key, j.value::numeric
          FROM poll_tally.snapshot(%(poll)s) AS s CROSS JOIN LATERAL json_each_text(s.counts::text::json) AS j (key, value)) AS u
    GROUP BY choice)
SELECT (SELECT string_agg(choice || '=' || count, ',' ORDER BY choice COLLATE "C") FROM ledger WHERE count <> 0),
       (SELECT string_agg(choice || '=' || count, ',' ORDER BY choice COLLATE "C") FROM poll_tally.results
        WHERE poll = %(poll)s AND count <> 0),
       (SELECT string_agg(choice || '=' || count, ',' ORDER BY choice COLLATE "C") FROM later WHERE count <> 0)"""


def field(value):
    if value is None:
        return "\\N"
    return "%.6f" % value if isinstance(value, float) else str(value)


class Failed(Exception):
    """The transaction cannot go on; lost tells whether the connection is gone."""

    def __init__(self, error, lost):
        super().__init__(str(error))
        self.sqlstate, self.lost = error.pgcode, lost


class Transaction:
    """What becomes of one transaction, for the log."""

    def __init__(self, step, plan, client):
        self.step, self.plan, self.client = step, plan, client
        self.begun, self.operations, self.sqlstate = time.monotonic(), [], None
        self.prepared = self.tried = False
        self.gid = "%d-%d-%d" % (client.plan.world.seed, client.number, step)

    def undo(self, first):
        for operation in self.operations[first:]:
            if operation[1] is None:
                operation[1] = len(self.operations)

    def write(self, state):
        level, _, _, end = self.plan
        head = ["T", self.client.number, self.step, level, end, state, self.sqlstate, self.begun, time.monotonic(),
                digest(self.plan)]
        for line in [head] + self.operations:
            self.client.log.write("\t".join(field(value) for value in line) + "\n")


class Client(threading.Thread):
    def __init__(self, dsn, world, number, folder):
        super().__init__()
        self.dsn, self.number = dsn, number
        self.plan = Plan(world, number)
        self.log = open("%s/client-%d" % (folder, number), "w", encoding="ascii")
        self.connection = self.cursor = None
        self.later = []         # prepared, to be decided some steps on
        self.unknown = []       # events whose fate has to be asked for
        self.lost = 0
        self.failure = None

    # --- the connection ---------------------------------------------------------------------------------------------

    def connect(self):
        deadline = time.monotonic() + DEADLINE
        while self.connection is None or self.connection.closed:
            try:
                self.connection = psycopg2.connect(self.dsn, options=OPTIONS)
                self.connection.autocommit = True       # BEGIN and COMMIT are sent by hand
                self.cursor = self.connection.cursor()
            except psycopg2.Error:
                if self.connection is not None:
                    self.connection.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def execute(self, statement, values=None):
        try:
            self.cursor.execute(statement, values)
            return self.cursor.fetchall() if self.cursor.description else None
        except psycopg2.Error as error:
            lost = bool(self.connection.closed) or error.pgcode in LOST
            if lost:
                self.lost += 1
                self.connection.close()
            raise Failed(error, lost) from error

    # --- operations -------------------------------------------------------------------------------------------------

    @staticmethod
    def accept_line(form, event):
        return ["A", None, time.monotonic(), None, form, event.poll, event.id, tally_text(event.votes), event.principal,
                event.payload, event.occurred, event.source, "?", None, None, None, None, None]

    def tell(self, lines, rows):
        now = time.monotonic()
        for line, row in zip(lines, rows):
            line[3] = now
            line[-6:] = row

    def accept(self, form, event, lines):
        lines.append(self.accept_line(form, event))
        source = (None, None, None) if event.source is None else ("feed", 0, event.source)
        function = "accept_event_or_raise" if form == "raise" else "accept_event"
        try:
            rows = self.execute(ACCEPT % function, (event.poll, event.id, event.principal, tally_text(event.votes), event.payload,
                                                    event.occurred) + source)
        except Failed as failed:
            detail = failed.__cause__.diag.message_detail or ""
            if form == "raise" and detail and failed.sqlstate in ("23505", "23514", "P0002", "55000", "42501"):
                outcome, _, rest = detail.partition(": ")
                self.tell(lines[-1:], [(outcome, None, None, None, None, rest or None)])
            raise
        self.tell(lines[-1:], rows)

    def batch(self, form, events, lines):
        mine = [self.accept_line(form, event) for event in events]
        lines += mine
        rows = self.execute(BATCH, ([event.id for event in events], [event.principal for event in events],
                                    [tally_text(event.votes) for event in events], [event.payload for event in events],
                                    [event.occurred for event in events], [event.poll for event in events], form == "whole"))
        self.tell(mine, rows)

    def retract(self, retraction, lines):
        lines.append(["R", None, time.monotonic(), None] + list(retraction) + ["?", None, None, None, None, None])
        self.tell(lines[-1:], self.execute(RETRACT, tuple(retraction)))

    def operate(self, kind, subject, lines):
        if kind in ("accept", "raise"):
            self.accept(kind, subject, lines)
        elif kind in ("batch", "whole"):
            self.batch(kind, subject, lines)
        elif kind == "retract":
            self.retract(subject, lines)
        elif kind in ("close", "publish"):
            lines.append(["C" if kind == "close" else "P", None, time.monotonic(), None, subject, None, None, None])
            row = self.execute(SNAPSHOT % (kind if kind == "publish" else "close_poll"), (subject,))[0]
            lines[-1][3], lines[-1][-3:] = time.monotonic(), row
        else:
            row = self.execute(LOOK, {"poll": subject})[0]
            lines.append(["V", None, subject] + list(row))

    def group(self, operations, record, depth):
        for number, operation in enumerate(operations):
            if operation[0] != "savepoint":
                self.operate(operation[0], operation[1], record.operations)
                continue
            name, first = "s%d_%d" % (depth, number), len(record.operations)
            self.execute("SAVEPOINT " + name)
            try:
                self.group(operation[2], record, depth + 1)
                undo = operation[1]
            except Failed as failed:
                if failed.lost:
                    raise
                undo = True
            if undo:
                self.execute("ROLLBACK TO SAVEPOINT " + name)
                record.undo(first)
            else:
                self.execute("RELEASE SAVEPOINT " + name)

    # --- transactions -----------------------------------------------------------------------------------------------

    def roll_back(self):
        """A cancel that comes late can hit ROLLBACK, too; without a connection there is nothing to do."""
        while not self.connection.closed and self.connection.info.transaction_status != 0:
            try:
                self.execute("ROLLBACK")
            except Failed:
                pass

    def work(self, record):
        """Everything before the transaction's end. A failure here has undone it, unless it was a lone operation."""
        level, timeout, operations, _ = record.plan
        try:
            if level is None:
                self.operate(operations[0][0], operations[0][1], record.operations)
                return "ok"
            self.execute("BEGIN ISOLATION LEVEL " + level)
            if timeout is not None:
                self.execute("SET LOCAL statement_timeout = %d" % timeout)
            self.group(operations, record, 0)
            return None
        except Failed as failed:
            record.sqlstate = failed.sqlstate
            self.roll_back()
            return "unknown" if level is None and failed.lost else "refused"

    def commit(self, record):
        try:
            self.execute("COMMIT")
            if self.cursor.statusmessage != "COMMIT":
                raise RuntimeError("COMMIT said " + self.cursor.statusmessage)
            return "ok"
        except Failed as failed:
            record.sqlstate = failed.sqlstate
            self.roll_back()
            return "unknown" if failed.lost else "refused"

    def prepare(self, record):
        """Returns the state if it is known by now."""
        try:
            self.execute("PREPARE TRANSACTION '%s'" % record.gid)
            record.prepared = self.cursor.statusmessage == "PREPARE TRANSACTION"
            return None if record.prepared else "refused"
        except Failed as failed:
            record.sqlstate = failed.sqlstate
            self.roll_back()
            return None if failed.lost else "refused"

    def decide(self, record):
        """Commit or roll back what was, perhaps, prepared; by as many tries as it takes."""
        word = "ROLLBACK" if record.plan[3] == "two-phase-back" else "COMMIT"
        while True:
            self.connect()
            try:
                self.execute("%s PREPARED '%s'" % (word, record.gid))
                return "ok" if word == "COMMIT" else "refused"
            except Failed as failed:
                if failed.sqlstate == "42704":          # there is none of this name
                    break
                record.tried = record.tried or failed.lost
        if word == "ROLLBACK" or not record.prepared and not record.tried:
            return "refused"
        if not record.prepared or not record.tried:
            # Either it was never prepared, or our own lost try has committed it; the first without the second is a loss.
            return "unknown" if record.tried else "vanished"
        return "ok"

    def finish(self, record, state):
        record.write(state)
        if state == "unknown":
            self.unknown += [line for line in record.operations if line[0] in "AR" and line[1] is None]

    def one_step(self, step, plan):
        self.connect()
        while self.later and self.later[0].step < step - 2:
            record = self.later.pop(0)
            self.finish(record, self.decide(record))
        record = Transaction(step, plan, self)
        state = self.work(record)
        if state is None and plan[3].startswith("two-phase"):
            state = self.prepare(record)
            if state is None and plan[3] == "two-phase-later":
                self.later.append(record)
                return
            state = state or self.decide(record)
        elif state is None and plan[3] == "rollback":
            self.roll_back()
            state = "refused"
        self.finish(record, state or self.commit(record))

    def settle(self):
        """What became of those whose end is unknown? A retry has to tell; the log is judged like any other."""
        for line in self.unknown:
            state = None
            while state != "ok":
                self.connect()
                record = Transaction(-1, (None, None, [], None), self)
                try:
                    self.repeat(line, record.operations)
                    state = "ok"
                except Failed as failed:
                    state, record.sqlstate = "unknown" if failed.lost else "refused", failed.sqlstate
                record.write(state)

    def repeat(self, line, lines):
        again = line[:2] + [time.monotonic(), None] + line[4:-6] + ["?"] + [None] * 5
        lines.append(again)
        if line[0] == "R":
            self.tell(lines, self.execute(RETRACT, tuple(line[4:9])))
            return
        poll, identifier, votes, principal, payload, occurred, source = line[5:12]
        coordinate = (None, None, None) if source is None else ("feed", 0, source)
        again[4] = "accept"
        self.tell(lines, self.execute(ACCEPT % "accept_event", (poll, identifier, principal, votes, payload, occurred) + coordinate))

    def run(self):
        try:
            for step in range(self.plan.world.steps):
                self.one_step(step, self.plan.transaction(step))
            for record in self.later:
                self.finish(record, self.decide(record))
            self.settle()
        except Exception as error:
            self.failure = error
            raise
        finally:
            self.log.close()


def make_polls(dsn, world):
    connection = psycopg2.connect(dsn)
    cursor = connection.cursor()
    for name, rules in world.polls():
        if rules is None:
            cursor.execute("SELECT poll_tally.create_counter(%s, publish_every => '100 milliseconds')", (name,))
        else:
            cursor.execute("SELECT poll_tally.create_poll(%%s, '{red,green,blue}', publish_every => '100 milliseconds', %s)"
                           % rules, (name,))
    connection.commit()
    connection.close()


def main(dsn, seed, clients, steps, what, *rest):
    world = World(int(seed), int(clients), int(steps))
    if what == "polls":
        make_polls(dsn, world)
        return
    count, folder = int(rest[0]), rest[1]
    threads = [Client(dsn, world, int(what) + number, folder) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("lost=%d" % sum(thread.lost for thread in threads))
    print("unknown=%d" % sum(len(thread.unknown) for thread in threads))
    if any(thread.failure is not None for thread in threads):
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
