"""Each named fault point of a build with -DPOLL_TALLY_FAULTS, by error, FATAL and kill, in each operation that passes it.

usage: fault_points.py DSN SEED FATALS KILLS            every how many of them are done, 1 for all

What was not committed at the point is not there, whatever the fault; what was committed or prepared there is. A session
that was told of an error goes on; nobody is left waiting; a retry, a second publication, close or repair does what the
first one should have done. Prints the counts; "# point NAME: ..." says what was done.
"""

import collections
import sys
import threading
import time

import psycopg2

from crash_points import CHOICES, Points

FLUSH = ("flush-begun", "flush-poll", "flush-wide-written", "flush-written", "flushed-at-end", "committed")
ENTER = ("lane-taken", "accept-judged", "accept-before-insert", "accept-inserted", "accept-counted")
PUBLISH = ("publish-inserted", "publish-announced", "publish-pruned")
# operation -> points that it passes; NAME:N for the Nth pass
PASSES = collections.OrderedDict((
    ("accept", ENTER + FLUSH),
    ("wide", ENTER + FLUSH),
    ("savepoint", ENTER),
    ("levels", ("levels-united",)),
    ("retract", ("lane-taken", "retract-inserted") + FLUSH),
    ("batch", ENTER + ("batch-lanes-taken", "batch-event", "batch-event:7", "accept-inserted:7", "batch-judged", "batch-written", "batch-done") + FLUSH),
    ("waiting", ("batch-waits", "batch-lanes-taken:2", "batch-event:9", "batch-done", "committed")),
    ("prepare", ENTER + ("flush-begun", "flush-poll", "flush-written", "flushed-at-end", "prepared")),
    ("publish", PUBLISH + ("flushed-at-end", "committed")),
    ("close", ("close-lanes-taken", "close-marked") + PUBLISH + ("close-published", "flushed-at-end", "committed")),
    ("rebuild", ("rebuild-step", "rebuild-step:2", "rebuild-step:3", "rebuild-step:4") + PUBLISH + ("flushed-at-end", "committed")),
))
DONE = ("committed", "prepared")        # what is sealed there, stays
CAUGHT = ("savepoint", "levels")        # the fault is, by a savepoint, and the transaction goes on


class Faults(Points):
    """The operations of crash_points.py and more."""

    # --- more operations --------------------------------------------------------------------------------------------

    def ready_batch(self):
        return self.new_events("points", 12)

    def ready_wide(self):
        return self.new_events("wide", 1)

    do_wide = Points.do_accept

    def ready_savepoint(self):
        return self.new_events("points", 2)

    def do_savepoint(self, cursor, what):
        """The first event fails within a savepoint, and the second is entered all the same."""
        cursor.execute("BEGIN; SAVEPOINT here")
        try:
            self.do_accept(cursor, what)
            raise RuntimeError("the fault did not happen")
        except psycopg2.InternalError:
            cursor.execute("ROLLBACK TO here")
        cursor.execute("SELECT outcome::text FROM poll_tally.accept_event(%s, %s, 'red')", (what["poll"], what["ids"][1]))
        answer = [row[0] for row in cursor.fetchall()]
        cursor.execute("COMMIT")
        return answer

    def judge_savepoint(self, what, answer, error):
        there = self.rows("SELECT event_id FROM poll_tally.events WHERE event_id = ANY (%s)", (what["ids"],))
        if answer is not None and (answer != ["accepted"] or there != [(what["ids"][1],)]):
            self.wrong("savepoint:", answer, there)
        if answer is None and there:
            self.wrong("savepoint: no answer, and", there)
        self.figures["there" if there else "absent"] += 1

    def ready_levels(self):
        return self.new_events("points", 4)

    def do_levels(self, cursor, what):
        """What a released savepoint has counted is added to what was counted around it by the next event, which fails in
        a savepoint of its own: both stand as they were."""
        answer = []

        def enter(number):
            cursor.execute("SELECT outcome::text FROM poll_tally.accept_event(%s, %s, 'red')", (what["poll"], what["ids"][number]))
            answer.append(cursor.fetchone()[0])
        cursor.execute("BEGIN")
        enter(0)
        cursor.execute("SAVEPOINT released")
        enter(1)
        cursor.execute("RELEASE released; SAVEPOINT failed")
        try:
            enter(2)
            raise RuntimeError("the fault did not happen")
        except psycopg2.InternalError:
            cursor.execute("ROLLBACK TO failed")
        enter(3)
        cursor.execute("COMMIT")
        return answer

    def judge_levels(self, what, answer, error):
        there = [row[0] for row in self.rows("SELECT event_id FROM poll_tally.events WHERE event_id = ANY (%s) ORDER BY position",
                                             (what["ids"],))]
        wanted = [what["ids"][number] for number in (0, 1, 3)] if answer is not None else []
        if sorted(there) != sorted(wanted) or answer not in (None, ["accepted"] * 3):
            self.wrong("levels:", answer, error, there)
        self.figures["there" if there else "absent"] += 1

    def ready_retract(self):
        what = self.new_events("points", 1)
        connection = self.connect()
        self.do_accept(connection.cursor(), what)
        connection.close()
        what["target"], what["ids"] = what["ids"][0], ["r" + what["ids"][0]]
        return what

    def ready_waiting(self):
        """Another transaction has entered one of the batch's ids; it ends once the batch waits for it."""
        what = self.new_events("points", 6)
        what["holder"] = self.connect()
        cursor = what["holder"].cursor()
        cursor.execute("BEGIN")
        self.do_accept(cursor, dict(what, ids=what["ids"][3:4]))
        what["release"] = threading.Thread(target=self.release, args=(what["holder"], what["holder"].get_backend_pid()))
        what["release"].start()
        return what

    def release(self, holder, pid):
        try:
            watcher = self.connect()
            cursor = watcher.cursor()
            while not holder.closed:
                cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))", (pid,))
                if cursor.fetchone()[0] > 0:
                    holder.close()
                time.sleep(0.01)
            watcher.close()
        except psycopg2.OperationalError:
            pass                # a kill ends all sessions, the holder's too

    do_waiting = Points.do_batch

    def ready_prepare(self):
        what = self.new_events("points", 1)
        what["gid"] = "gid-%d" % self.number
        return what

    def do_prepare(self, cursor, what):
        cursor.execute("BEGIN")
        answer = self.do_accept(cursor, what)
        cursor.execute("PREPARE TRANSACTION %s", (what["gid"],))
        return answer

    def judge_prepare(self, what, answer, error):
        prepared, = self.rows("SELECT count(*) FROM pg_prepared_xacts WHERE gid = %s", (what["gid"],))[0]
        if prepared:
            blocked, = self.rows("SELECT count(*) FROM poll_tally.blockers WHERE gid = %s", (what["gid"],))[0]
            if blocked != 1:
                self.wrong("prepared transaction", what["gid"], "is", blocked, "times among the blockers")
            connection = self.connect()
            connection.cursor().execute("COMMIT PREPARED %s", (what["gid"],))
            connection.close()
        self.judge_events(what, answer, error)

    def ready_rebuild(self):
        self.number += 1
        what = self.new_events("rebuild-%d" % self.number, 9)
        connection = self.connect()
        cursor = connection.cursor()
        cursor.execute("SELECT poll_tally.create_poll(%s, %s, counting => 'every')", (what["poll"], CHOICES))
        self.do_batch(cursor, what)
        cursor.execute("UPDATE poll_tally.lane SET counts = '{\"red\": 77}' WHERE poll_id = (SELECT max(poll_id) FROM poll_tally.poll)")
        connection.close()
        return what

    def do_rebuild(self, cursor, what):
        cursor.execute("SELECT poll_tally.rebuild_tallies(%s)", (what["poll"],))
        return cursor.fetchone()

    def judge_rebuild(self, what, answer, error):
        red, = self.rows("SELECT count FROM poll_tally.results WHERE poll = %s AND choice = 'red'", (what["poll"],))[0]
        self.figures["absent" if red == 77 else "there"] += 1
        if answer is not None and red == 77 or error and red != 77:
            self.wrong("rebuild: answer", answer, "error", error, "red is", red)
        connection = self.connect()
        self.do_rebuild(connection.cursor(), what)
        connection.close()

    # --- cases ------------------------------------------------------------------------------------------------------

    def sealed(self, before):
        """Did the judge find it there?"""
        return self.figures["there"] > before

    def one_fault(self, operation, point, action):
        what = getattr(self, "ready_" + operation)()
        connection = self.connect()
        pid = connection.get_backend_pid()
        name, _, number = point.partition(":")
        # The SET itself ends a transaction after it has armed the point.
        number = int(number or 1) + (name in ("flushed-at-end", "committed"))
        connection.cursor().execute("SET poll_tally.fault = %s", ("%s %s %d" % (name, action, number),))
        answer, error = self.attempt(connection, operation, what)
        if answer is not None and operation not in CAUGHT:
            self.wrong(operation, point, action, "did not happen")
        if not connection.closed and operation not in CAUGHT:
            self.goes_on(connection, operation)
        connection.close()
        if "holder" in what:
            what["holder"].close()
            what["release"].join()
        self.await_server(pid)
        there = self.figures["there"]
        getattr(self, "judge_" + operation, self.judge_events)(what, answer, error)
        if operation not in CAUGHT and self.sealed(there) != (point in DONE):
            self.wrong(operation, point, action, "left it" if self.sealed(there) else "lost it")
        bad = self.rows("SELECT check_name FROM poll_tally.verify_poll(%s) WHERE NOT ok", (what["poll"],))
        if bad:
            self.wrong(operation, point, action, "verify_poll:", bad)

    def goes_on(self, connection, operation):
        """After an error the session counts the next event."""
        cursor = connection.cursor()
        cursor.execute("ROLLBACK")
        if self.do_accept(cursor, self.new_events("points", 1)) != ["accepted"]:
            self.wrong(operation, "the session cannot go on")
        self.figures["went_on"] += 1

    def skips(self, operation, point, action, every):
        if point == "prepared" and action != "kill" or operation in CAUGHT and action == "kill":
            return True         # the server itself must not fail there by an error
        if action == "error" or point in DONE:
            return False
        self.figures["seen_" + action] += 1
        return self.figures["seen_" + action] % every[action] != 0

    def all_cases(self, every):
        for operation, points in PASSES.items():
            done = collections.Counter()
            for point in points:
                for action in ("error", "fatal", "kill"):
                    if not self.skips(operation, point, action, every):
                        count = len(self.violations)
                        self.one_fault(operation, point, action)
                        done[action] += 1
                        for text in self.violations[count:]:
                            print("# violation: %s %s %s: %s" % (operation, point, action, text), flush=True)
            self.figures.update(done)
            print("# figure: fault points of %s: %d points, %d errors, %d FATAL, %d kills" % (
                operation, len(points), done["error"], done["fatal"], done["kill"]))


def main(dsn, seed, fatals, kills):
    faults = Faults(dsn, seed)
    connection = faults.connect()
    cursor = connection.cursor()
    cursor.execute("SELECT poll_tally.create_poll('points', %s, counting => 'every')", (CHOICES,))
    cursor.execute("SELECT poll_tally.create_poll('wide', %s || ARRAY(SELECT 'choice-' || g FROM generate_series(1, 1500) AS g),"
                   " counting => 'every')", (CHOICES,))
    connection.close()
    faults.all_cases({"fatal": fatals, "kill": kills})
    for name in ("error", "fatal", "kill", "there", "absent", "went_on"):
        print("%s=%d" % (name, faults.figures[name]))
    print("violations=%d" % len(faults.violations))


if __name__ == "__main__":
    main(sys.argv[1], *[int(argument) for argument in sys.argv[2:]])
