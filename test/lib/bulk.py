"""Statement-sized loads into the view inbox: memory of the backend, progress, and a cancel in the middle.

usage: bulk.py DSN ROWS

COPY and INSERT … SELECT of ROWS and of twice as many rows, each in a backend of its own whose private memory is looked at
all the while, and whose progress another session watches; then each once more, cancelled in its middle.
"""

import sys
import threading
import time

import psycopg2
import psycopg2.errors

COPY = "COPY poll_tally.inbox (poll, event_id, choice, principal) FROM STDIN"
INSERT = ("INSERT INTO poll_tally.inbox (poll, event_id, choice, principal)"
          " SELECT 'bulk', '{prefix}-' || i, 'c' || i % 10, '{prefix}-' || i FROM (SELECT generate_series(1, {rows}) AS i) AS s")


class Rows:
    """Lines for COPY, made as they are asked for."""

    def __init__(self, prefix, rows):
        self.prefix, self.rows, self.next = prefix, rows, 1

    def read(self, size):
        last = min(self.rows, self.next + max(1, size // 64))
        lines = ["bulk\t{0}-{1}\tc{2}\t{0}-{1}\n".format(self.prefix, i, i % 10) for i in range(self.next, last + 1)]
        self.next = last + 1
        return "".join(lines)


class Watcher(threading.Thread):
    """Looks at a backend: its private memory in kB, and how far it says to be."""

    def __init__(self, dsn, pid, form, cancel_at):
        super().__init__()
        self.connection = psycopg2.connect(dsn)
        self.connection.autocommit = True
        self.cursor = self.connection.cursor()
        self.pid, self.form, self.cancel_at = pid, form, cancel_at
        self.first, self.peak = self.memory(), 0
        self.progress, self.done = [], False
        self.start_value = self.accepted()

    def memory(self):
        with open("/proc/%d/status" % self.pid) as status:
            return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))

    def accepted(self):
        self.cursor.execute("SELECT value FROM poll_tally.stats WHERE name = 'accepted'")
        return self.cursor.fetchone()[0] or 0

    def look(self):
        """COPY has its view; the statistics move with every event, whatever the statement."""
        if self.form == "insert":
            return self.accepted() - self.start_value
        self.cursor.execute("SELECT tuples_processed FROM pg_stat_progress_copy WHERE pid = %s", (self.pid,))
        row = self.cursor.fetchone()
        return row[0] if row else 0

    def run(self):
        while not self.done:
            self.peak = max(self.peak, self.memory())
            seen = self.look()
            if seen > 0 and (not self.progress or seen != self.progress[-1]):
                self.progress.append(seen)
            if self.cancel_at and seen >= self.cancel_at:
                self.cursor.execute("SELECT pg_cancel_backend(%s)", (self.pid,))
                self.cancel_at = None
            time.sleep(0.005)


def load(dsn, form, prefix, rows, cancel_at=None):
    """One statement, in a transaction and a backend of its own. Returns its watcher, and whether it was cancelled."""
    connection = psycopg2.connect(dsn)
    cursor = connection.cursor()
    # Caches are filled by a first event, which does not stay.
    cursor.execute(INSERT.format(prefix=prefix + "-first", rows=1))
    connection.rollback()
    watcher = Watcher(dsn, connection.get_backend_pid(), form, cancel_at)
    watcher.start()
    cancelled = False
    try:
        if form == "copy":
            cursor.copy_expert(COPY, Rows(prefix, rows))
        else:
            cursor.execute(INSERT.format(prefix=prefix, rows=rows))
        connection.commit()
    except psycopg2.errors.QueryCanceled:
        connection.rollback()
        cancelled = True
    finally:
        watcher.done = True
        watcher.join()
    connection.close()
    return watcher, cancelled


def state(cursor):
    cursor.execute("SELECT (SELECT count(*) FROM poll_tally.events WHERE poll = 'bulk'), (SELECT sum(count) FROM poll_tally.results"
                   " WHERE poll = 'bulk'), (SELECT accepted_position FROM poll_tally.polls WHERE poll = 'bulk')")
    return tuple(int(value or 0) for value in cursor.fetchone())


def run(dsn, rows):
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute("SELECT poll_tally.create_poll('bulk', array(SELECT 'c' || i FROM generate_series(0, 9) AS i))")
    for form in ("copy", "insert"):
        for size, count in (("one", rows), ("two", 2 * rows)):
            started = time.monotonic()
            before = state(cursor)[0]
            watcher, _ = load(dsn, form, "%s-%s" % (form, size), count)
            print("%s_%s_growth=%d" % (form, size, watcher.peak - watcher.first))
            print("%s_%s_seconds=%.1f" % (form, size, time.monotonic() - started))
            print("%s_%s_rows=%d" % (form, size, state(cursor)[0] - before))
            print("%s_%s_looks=%d" % (form, size, len(watcher.progress)))
            print("%s_%s_backwards=%d" % (form, size, watcher.progress != sorted(watcher.progress)))
        before = state(cursor)
        watcher, cancelled = load(dsn, form, form + "-cancelled", rows, rows // 3)
        print("%s_cancelled=%d" % (form, cancelled))
        print("%s_cancelled_at=%d" % (form, max(watcher.progress, default=0)))
        print("%s_left=%d" % (form, state(cursor) != before))
        # What was cancelled can be sent again: nothing of it is a repeat.
        load(dsn, form, form + "-cancelled", rows)
        print("%s_again=%d" % (form, state(cursor)[0] - before[0]))


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]))
