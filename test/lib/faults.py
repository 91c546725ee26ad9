"""Faults under load: until its standard input ends, hurts the server's processes in a random order and at random times.

usage: faults.py DSN DATA LOG SEED KIND...

    cancel      pg_cancel_backend of up to five sessions
    terminate   pg_terminate_backend of up to three sessions
    worker      pg_terminate_backend of a worker of ours
    kill        kill -9 of a session or a worker: the server restarts all of its processes
    postmaster  kill -9 of the postmaster, then a start
    stop        an immediate stop, then a start

Prints KIND=NUMBER for each. Every kind has happened once before any other happens more than WEIGHT times.
"""

import collections
import os
import random
import select
import signal
import subprocess
import sys
import time

import psycopg2

DEADLINE = 180
WEIGHT = {"cancel": 8, "terminate": 8, "worker": 2, "kill": 2, "postmaster": 1, "stop": 1}
SESSIONS = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY pid"
WORKERS = "SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'poll_tally%' ORDER BY pid"


class Faults:
    def __init__(self, dsn, data, log, seed, kinds):
        self.dsn, self.data, self.log = dsn, data, log
        self.rng = random.Random(seed)
        self.kinds = [kind for kind in kinds for _ in range(WEIGHT[kind])]
        self.done = collections.Counter()

    def connect(self):
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                connection = psycopg2.connect(self.dsn, options="-c client_min_messages=error")
                connection.autocommit = True
                return connection
            except psycopg2.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def query(self, *statements):
        """The rows of the last one, None when the connection did not last."""
        connection = self.connect()
        try:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall()
        except psycopg2.OperationalError:
            return None
        finally:
            connection.close()

    def signal_some(self, function, query, most):
        pids = [row[0] for row in self.query(query) or ()]
        chosen = self.rng.sample(pids, min(len(pids), self.rng.randint(1, most)))
        return bool(chosen) and self.query("SELECT %s(pid) FROM unnest(ARRAY%s) AS pid" % (function, chosen)) is not None

    def cancel(self):
        return self.signal_some("pg_cancel_backend", SESSIONS, 5)

    def terminate(self):
        return self.signal_some("pg_terminate_backend", SESSIONS, 3)

    def worker(self):
        return self.signal_some("pg_terminate_backend", WORKERS, 1)

    def kill(self):
        pids = [row[0] for row in self.query(SESSIONS if self.rng.random() < 0.8 else WORKERS) or ()]
        if not pids:
            return False
        try:
            os.kill(self.rng.choice(pids), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def pid(self):
        with open(self.data + "/postmaster.pid", encoding="ascii") as file:
            return int(file.readline())

    def is_running(self, pid):
        try:
            return os.readlink("/proc/%d/cwd" % pid) == self.data
        except OSError:
            return False

    def start(self):
        """pg_ctl does not see children that outlive their postmaster for a moment: the start is tried until it works."""
        deadline = time.monotonic() + DEADLINE
        while True:
            done = subprocess.run(["pg_ctl", "-D", self.data, "-l", self.log, "-w", "start"], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, check=False)
            if done.returncode == 0:
                return
            if time.monotonic() > deadline:
                raise RuntimeError("the server does not start")
            time.sleep(0.1)

    def stop(self):
        subprocess.run(["pg_ctl", "-D", self.data, "-m", "immediate", "-w", "stop"], check=True, stdout=subprocess.DEVNULL)
        self.start()
        return True

    def postmaster(self):
        pid = self.pid()
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + DEADLINE
        while self.is_running(pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.start()
        return True

    def run(self):
        order = []
        while not select.select([sys.stdin], [], [], self.rng.uniform(0.02, 0.4))[0]:
            if not order:
                order = self.rng.sample(self.kinds, len(self.kinds))
            kind = order.pop()
            if getattr(self, kind)():
                self.done[kind] += 1
        self.connect().close()
        for kind in sorted(set(self.kinds)):
            print("%s=%d" % (kind, self.done[kind]))


if __name__ == "__main__":
    Faults(sys.argv[1], os.path.realpath(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5:]).run()
