"""Resources that run short under one session or many; each is refused with its SQLSTATE, and nothing is half done.

usage: resources.py DSN SEED WHAT [ARGUMENT]

    disk     ENOSPC for tables, injected by strace at each write of the session: 53100, and it goes on once there is room
    wal      ENOSPC for WAL: the server restarts by itself
    memory   a limit on the session's address space: 53200, and it goes on
    locks    32 sessions with lock_timeouts of 1 to 20 ms at polls of one lane, ARGUMENT seconds: 55P03, nothing of it stays

What was acknowledged is in the ledger, and nothing else is.
"""

import collections
import random
import resource
import sys
import threading
import time

import psycopg2

from crash_points import CHOICES, Points, Tracer

ACCEPT = "SELECT outcome::text FROM poll_tally.accept_event(%s, %s, %s)"


class Resources(Points):
    prefix = ""                 # of the ids, so that runs do not meet

    def events(self, connection, count):
        """One batch of new events; returns its SQLSTATE, '' for success, None when the connection is lost."""
        self.number += count
        ids = ["%s%d" % (self.prefix, self.number - number) for number in range(count)]
        try:
            cursor = connection.cursor()
            cursor.execute("SELECT outcome::text FROM poll_tally.accept_events('resources', %s, %s)", (ids, ["red"] * count))
            if {row[0] for row in cursor.fetchall()} != {"accepted"}:
                self.wrong("new events were not accepted")
            state = ""
        except psycopg2.Error as error:
            state = None if connection.closed else error.pgcode
        if state is None:
            self.await_server(connection.info.backend_pid)
        there, = self.rows("SELECT count(*) FROM poll_tally.events WHERE event_id = ANY (%s)", (ids,))[0]
        if state == "" and there != count or state and there or there not in (0, count):
            self.wrong("told", repr(state), "and", there, "of", count, "are there")
        self.figures["checks"] += 1
        return state

    def expect(self, have, *wanted):
        self.figures["checks"] += 1
        if have not in wanted:
            self.wrong("SQLSTATE", repr(have), "instead of", wanted)

    def disk(self, rounds):
        """A batch extends the tables; every write of the session fails from the Nth on."""
        for number in range(rounds):
            connection = self.connect()
            tracer = Tracer(connection.get_backend_pid(), "pwrite64", "full", "%d+" % (1 + number))
            state = self.events(connection, 3000)
            full = tracer.end(bool(connection.closed))
            self.figures["full"] += full
            if full:
                self.expect(state, "53100", None)
                self.figures["refused"] += state == "53100"
            if not connection.closed:
                self.expect(self.events(connection, 1), "")
            connection.close()

    def wal(self, rounds):
        for number in range(rounds):
            connection = self.connect()
            path, = self.rows("SELECT current_setting('data_directory') || '/pg_wal/' || pg_walfile_name(pg_current_wal_insert_lsn())")[0]
            tracer = Tracer(connection.get_backend_pid(), "pwrite64", "full", "1+", "-P", path)
            state = self.events(connection, 1 + 50 * number)
            self.figures["full"] += tracer.end(bool(connection.closed))
            self.figures["crashed"] += state is None
            connection.close()
            connection = self.connect()
            self.expect(self.events(connection, 1), "")
            connection.close()

    def memory(self, rounds):
        """Each round with a little more room, from hardly any."""
        for number in range(rounds):
            connection = self.connect()
            self.expect(self.events(connection, 1), "")
            pid = connection.get_backend_pid()
            with open("/proc/%d/statm" % pid, encoding="ascii") as file:
                pages = int(file.read().split()[0])
            limit = pages * resource.getpagesize() + (4 + 3 * number) * 1024 * 1024
            resource.prlimit(pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
            state = self.events(connection, 100000)
            self.expect(state, "53200", "")
            self.figures["refused"] += state == "53200"
            self.expect(self.events(connection, 1), "")
            resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            connection.close()

    def locks(self, seconds):
        until = time.monotonic() + seconds
        figures, accepted = collections.Counter(), [set() for _ in range(32)]

        def client(number, rng):
            connection = psycopg2.connect(self.dsn, options="-c client_min_messages=error")
            connection.autocommit = True
            cursor = connection.cursor()
            step = 0
            while time.monotonic() < until:
                step += 1
                identifier = "lock-%d-%d" % (number, step)
                poll = "strict-%d" % rng.randrange(3)
                try:
                    cursor.execute("BEGIN; SET LOCAL lock_timeout = %d" % rng.randint(1, 20))
                    cursor.execute(ACCEPT, (poll, identifier, "red"))
                    cursor.execute("SELECT pg_sleep(%s)", (rng.random() * 0.01,))
                    cursor.execute("COMMIT")
                    accepted[number].add(identifier)
                except psycopg2.errors.LockNotAvailable:
                    figures["timeouts"] += 1
                    cursor.execute("ROLLBACK")
                except psycopg2.Error as error:
                    self.wrong("lock timeouts:", error.pgcode, error)
                    return
            connection.close()

        threads = [threading.Thread(target=client, args=(number, random.Random(self.rng.getrandbits(64)))) for number in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ledger = {row[0] for row in self.rows("SELECT event_id FROM poll_tally.events WHERE event_id LIKE 'lock-%%'")}
        told = set().union(*accepted)
        if ledger != told:
            self.wrong("lock timeouts:", len(told - ledger), "missing", len(ledger - told), "phantom")
        self.figures["checks"] += len(told)
        self.figures["refused"] += figures["timeouts"]
        self.figures["accepted"] += len(told)


def main(dsn, seed, what, size):
    resources = Resources(dsn, seed)
    resources.prefix = what[0]
    if not resources.rows("SELECT 1 FROM poll_tally.polls"):
        connection = resources.connect()
        cursor = connection.cursor()
        cursor.execute("SELECT poll_tally.create_poll('resources', %s, counting => 'every')", (CHOICES,))
        for number in range(3):
            cursor.execute("SELECT poll_tally.create_poll(%s, %s, counting => 'every', max_lanes => 1)", ("strict-%d" % number, CHOICES))
        connection.close()
    getattr(resources, what)(size)
    for text in resources.violations[:10]:
        print("# violation: " + " ".join(text.split()))
    for name in ("checks", "full", "refused", "crashed", "accepted"):
        print("%s=%d" % (name, resources.figures[name]))
    print("violations=%d" % len(resources.violations))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
