"""A session crashes, or is told of an I/O error, at its Nth system call of a kind; strace injects it.

usage: crash_points.py DSN SEED MOST STEP

For each operation (one event, a batch, a publication, a close), each of the calls pwrite64, fdatasync and sendto, and both
kill -9 and EIO: at the first call, the one STEP further and so on, until the operation makes no such call any more or MOST
were tried. After each, when the server is back:

    acknowledged            what was acknowledged is in the ledger; a revision that was returned is there, with its counts
    refused by an error     nothing of it is there
    no answer               all of it is there or nothing, and a retry tells which

and verify_poll agrees. Prints what it counted, one line "# figure ..." an operation, and a line for each violation.
"""

import collections
import os
import random
import subprocess
import sys
import tempfile
import time

import psycopg2

CALLS = ("pwrite64", "fdatasync", "sendto")
ACTIONS = {"kill": "signal=KILL", "error": "error=EIO", "full": "error=ENOSPC"}
HITS = ("error", "kill")
DEADLINE = 180
BATCH = 1500
CHOICES = ["red", "green", "blue"]


def until(condition, what, pause):
    deadline = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("waited too long for " + what)
        time.sleep(pause)


class Tracer:
    """strace on one session, with one injection."""

    def __init__(self, pid, call, action, number, *options):
        # number: of the call, or strace's "5+" for all from the 5th on
        self.file = tempfile.NamedTemporaryFile(mode="r", encoding="ascii", errors="replace", prefix="strace-")
        self.process = subprocess.Popen(
            ["strace", "-p", str(pid), "-o", self.file.name, "-e", "trace=" + ",".join(CALLS), "-e",
             "inject=%s:%s:when=%s" % (call, ACTIONS[action], number), *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        if "attached" not in line:
            raise RuntimeError("strace: " + line.strip())

    def text(self):
        with open(self.file.name, encoding="ascii", errors="replace") as file:
            return file.read()

    def calls(self, name):
        return sum(line.startswith(name + "(") for line in self.text().splitlines())

    def end(self, lost=False):
        """Detach; was the fault injected? After a crash strace ends by itself, once it has written why."""
        if not lost:
            self.process.terminate()
        self.process.communicate(timeout=DEADLINE)
        text = self.text()
        return "(INJECTED)" in text or "killed by SIGKILL" in text


class Points:
    def __init__(self, dsn, seed):
        self.dsn, self.rng = dsn, random.Random(seed)
        self.number, self.observer = 0, None
        self.figures, self.violations = collections.Counter(), []

    # --- sessions ---------------------------------------------------------------------------------------------------

    def connect(self):
        found = []

        def attempt():
            try:
                found.append(psycopg2.connect(self.dsn, options="-c client_min_messages=error -c lock_timeout=30s"))
            except psycopg2.OperationalError:
                return False
            found[0].autocommit = True
            return True

        until(attempt, "the server to come back", 0.05)
        return found[0]

    def rows(self, statement, values=()):
        """By a session of our own, made anew when it did not outlive a crash."""
        while True:
            if self.observer is None:
                self.observer = self.connect()
            try:
                cursor = self.observer.cursor()
                cursor.execute(statement, values)
                return cursor.fetchall()
            except psycopg2.OperationalError:
                self.observer.close()
                self.observer = None

    def await_server(self, pid):
        """Back, and the session that was hit is gone: a kill is noticed only after a moment."""
        until(lambda: self.rows("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", (pid,))[0][0] == 0,
              "the session to be gone", 0.02)

    def wrong(self, *text):
        self.violations.append(" ".join(str(word) for word in text))

    # --- operations: how each is made ready, done, and judged -------------------------------------------------------

    def new_events(self, poll, count):
        self.number += count
        return {"poll": poll, "ids": ["c%d" % (self.number - number) for number in range(count)],
                "choices": [self.rng.choice(CHOICES) for _ in range(count)]}

    def ready_accept(self):
        return self.new_events("points", 1)

    def do_accept(self, cursor, what):
        cursor.execute("SELECT outcome::text FROM poll_tally.accept_event(%s, %s, %s)",
                       (what["poll"], what["ids"][0], what["choices"][0]))
        return [row[0] for row in cursor.fetchall()]

    def ready_batch(self):
        return self.new_events("points", BATCH)

    def do_batch(self, cursor, what):
        cursor.execute("SELECT outcome::text FROM poll_tally.accept_events(%(poll)s, %(ids)s, %(choices)s)", what)
        return [row[0] for row in cursor.fetchall()]

    def do_retract(self, cursor, what):
        cursor.execute("SELECT outcome::text FROM poll_tally.retract_event(%s, %s, %s)", (what["poll"], what["target"], what["ids"][0]))
        return [row[0] for row in cursor.fetchall()]

    def judge_events(self, what, answer, error):
        there = self.rows("SELECT count(*) FROM poll_tally.events WHERE event_id = ANY (%s)", (what["ids"],))[0][0]
        count = len(what["ids"])
        if there not in (0, count):
            self.wrong("half of a batch is there:", there, "of", count)
        if answer is not None and (answer != ["accepted"] * count or there != count):
            self.wrong("acknowledged", answer[:3], "and", there, "of", count, "are there")
        if error and there != 0:
            self.wrong("refused by an error, and", there, "are there")
        self.figures["there" if there else "absent"] += 1
        connection = self.connect()
        retry = (self.do_retract if "target" in what else self.do_batch)(connection.cursor(), what)
        connection.close()
        if retry != ["duplicate" if there else "accepted"] * count:
            self.wrong(there, "of", count, "are there, and a retry says", collections.Counter(retry))

    def ready_publish(self):
        what = self.new_events("points", 3)
        connection = self.connect()
        self.do_batch(connection.cursor(), what)
        connection.close()
        what["before"] = self.rows("SELECT revision, included_position FROM poll_tally.snapshot('points')")[0]
        return what

    def do_publish(self, cursor, what):
        cursor.execute("SELECT revision, included_position, counts::text FROM poll_tally.publish(%s, true)", (what["poll"],))
        return list(cursor.fetchone())

    def judge_publish(self, what, answer, error):
        now = self.rows("SELECT revision, included_position, counts::text FROM poll_tally.snapshot('points')")[0]
        if now[0] not in (what["before"][0], what["before"][0] + 1):
            self.wrong("revision", what["before"], "then", now)
        if answer is not None and tuple(answer) != now:
            self.wrong("published", answer, "and the table has", now)
        if error and now[0] != what["before"][0]:
            self.wrong("publishing failed, and the revision moved to", now)
        self.figures["there" if now[0] > what["before"][0] else "absent"] += 1
        connection = self.connect()
        again = self.do_publish(connection.cursor(), what)
        connection.close()
        position = self.rows("SELECT accepted_position FROM poll_tally.polls WHERE poll = 'points'")[0][0]
        if again[:2] != [what["before"][0] + 1, position]:
            self.wrong("published again", again, "after", what["before"], "at", position)

    def ready_close(self):
        self.number += 1
        what = self.new_events("close-%d" % self.number, 5)
        connection = self.connect()
        cursor = connection.cursor()
        cursor.execute("SELECT poll_tally.create_poll(%s, %s, counting => 'every')", (what["poll"], CHOICES))
        self.do_batch(cursor, what)
        connection.close()
        return what

    def do_close(self, cursor, what):
        cursor.execute("SELECT revision, included_position, counts::text, final FROM poll_tally.close_poll(%s)", (what["poll"],))
        return list(cursor.fetchone())

    def judge_close(self, what, answer, error):
        closed, = self.rows("SELECT closed_at IS NOT NULL FROM poll_tally.polls WHERE poll = %s", (what["poll"],))[0]
        final, = self.rows("SELECT count(*) FROM poll_tally.snapshots WHERE poll = %s AND final", (what["poll"],))[0]
        if final != int(closed):
            self.wrong("closed:", closed, "final snapshots:", final)
        if answer is not None and not closed or error and closed:
            self.wrong("close was answered", answer, "failed", error, "and closed is", closed)
        self.figures["there" if closed else "absent"] += 1
        connection = self.connect()
        cursor = connection.cursor()
        again = self.do_close(cursor, what)
        if again[1] != 5 or not again[3] or answer is not None and again != answer:
            self.wrong("closed again", again, "first", answer)
        cursor.execute("SELECT outcome::text FROM poll_tally.accept_event(%s, %s, 'red')", (what["poll"], "late-" + what["poll"]))
        if cursor.fetchone()[0] != "closed":
            self.wrong("an event after the close was not refused")
        connection.close()

    # --- one case ---------------------------------------------------------------------------------------------------

    def attach(self, call, action, number):
        """A session and its tracer, which has to have seen the answer to one statement; a fault there does not count."""
        while True:
            connection = self.connect()
            tracer = Tracer(connection.get_backend_pid(), call, action, number + (call == "sendto"))
            try:
                connection.cursor().execute("SELECT 1")
                if tracer.calls("sendto") == 1:
                    return connection, tracer
            except psycopg2.Error:
                pass
            tracer.end(bool(connection.closed))
            connection.close()

    def attempt(self, connection, operation, what):
        """The answer, the SQLSTATE of an error that leaves the session alive, or neither."""
        cursor = connection.cursor()
        try:
            return getattr(self, "do_" + operation)(cursor, what), None
        except psycopg2.Error as error:
            return None, error.pgcode if not connection.closed and (error.pgcode or "57")[:2] != "57" else None

    def one_case(self, operation, call, action, number):
        what = getattr(self, "ready_" + operation)()
        connection, tracer = self.attach(call, action, number)
        pid = connection.get_backend_pid()
        answer, error = self.attempt(connection, operation, what)
        fired = tracer.end(bool(connection.closed))
        connection.close()
        self.await_server(pid)
        self.figures["acknowledged" if answer is not None else "refused" if error else "unanswered"] += fired
        getattr(self, "judge_" + operation, self.judge_events)(what, answer, error)
        bad = self.rows("SELECT check_name FROM poll_tally.verify_poll(%s) WHERE NOT ok", (what["poll"],))
        if bad:
            self.wrong("verify_poll:", bad)
        return fired

    def series(self, operation, call, action, most, step):
        fired = 0
        for number in range(1, most * step + 1, step):
            count = len(self.violations)
            if not self.one_case(operation, call, action, number):
                break
            fired += 1
            for text in self.violations[count:]:
                print("# violation: %s, %s at %s %d: %s" % (operation, action, call, number, text), flush=True)
        return fired


def main(dsn, seed, most, step):
    points = Points(dsn, seed)
    connection = points.connect()
    connection.cursor().execute("SELECT poll_tally.create_poll('points', %s, counting => 'every')", (CHOICES,))
    connection.close()
    for operation in ("accept", "batch", "publish", "close"):
        counts = []
        for call in CALLS:
            for action in HITS:
                fired = points.series(operation, call, action, most, step if operation == "batch" and call == "pwrite64" else 1)
                counts.append("%s %s %d" % (call, action, fired))
                print("fired_%s_%s_%s=%d" % (operation, call, action, fired))
        print("# figure: %s hit at every call: %s" % (operation, ", ".join(counts)))
    for name in ("acknowledged", "refused", "unanswered", "there", "absent"):
        print("%s=%d" % (name, points.figures[name]))
    print("violations=%d" % len(points.violations))


if __name__ == "__main__":
    os.umask(0o077)
    main(sys.argv[1], *[int(argument) for argument in sys.argv[2:]])
