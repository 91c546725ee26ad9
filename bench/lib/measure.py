"""One measurement each: a number of clients for a number of seconds, and what came of it."""

import contextlib
import os
import re
import shutil
import statistics
import subprocess
import time

from lib.place import BENCH, Mismatch

FEW = 20                        # transactions a client where no time is given
BATCH = 1000


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError("%s failed (%d): %s" % (" ".join(command), done.returncode, done.stderr + done.stdout))
    return done.stdout


class Pgbench:
    """A contender: a script that sends one event a transaction to one side of a database."""

    slots = 0

    def __init__(self, database, side, script, clients, transactions=FEW, **variables):
        self.database, self.side, self.clients, self.transactions = database, side, clients, transactions
        self.variables = dict({"last": 1}, **variables)
        self.script = os.path.join(BENCH, script)
        self.counts = True      # what is sent is new
        self.latency_ms = None

    def command(self, seconds):
        Pgbench.slots += 1
        length = ["-T", str(seconds)] if seconds else ["-t", str(self.transactions)]
        command = ["pgbench", "-n", "-M", "prepared", "-c", str(self.clients), "-j", str(min(self.clients, 2)), *length,
                   "-f", self.script, "-D", "slot=%d" % Pgbench.slots, "-D", "seq=0"]
        for name, setting in self.variables.items():
            command += ["-D", "%s=%s" % (name, setting)]
        return command + [self.database.dsn()]

    def __call__(self, seconds):
        output = run(self.command(seconds))
        self.note(output)
        return float(re.search(r"^tps = ([0-9.]+) \(without", output, re.M).group(1))

    def note(self, output):
        transactions = int(re.search(r"^number of transactions actually processed: (\d+)", output, re.M).group(1))
        if not re.search(r"^number of failed transactions: 0 ", output, re.M) or transactions == 0:
            raise Mismatch("transactions failed: " + output)
        self.latency_ms = float(re.search(r"^latency average = ([0-9.]+) ms", output, re.M).group(1))
        if self.counts:
            self.database.sent[self.side] += transactions


class Reader(Pgbench):
    """A script that sends nothing new."""

    def __init__(self, *arguments, **variables):
        super().__init__(*arguments, **variables)
        self.counts = False


class Batches:
    """A contender: batches.c with a statement."""

    def __init__(self, database, side, statement, clients=1, events=BATCH, polls=1, batches=2):
        self.database, self.side, self.clients = database, side, clients
        self.statement, self.events, self.polls = os.path.join(BENCH, statement), events, polls
        self.batches = batches  # a client, where no time is given

    def __call__(self, seconds):
        return self.send(seconds, self.batches)

    def send(self, seconds, batches):
        output = run([os.path.join(self.database.place.tools, "batches"), self.database.dsn(), self.statement,
                      str(self.clients), str(self.events), str(self.polls), str(seconds), str(batches)])
        events, elapsed = re.match(r"events (\d+) seconds ([0-9.]+)", output).groups()
        self.database.sent[self.side] += int(events)
        return int(events) / float(elapsed)


class Redis:
    """A contender: a server of its own for each measurement, empty, on the same slow disk."""

    def __init__(self, place, clients):
        self.place, self.clients = place, clients
        self.rate = None
        self.folder = os.path.join(place.fast, "redis")
        self.socket = os.path.join(place.tools, "redis.sock")

    def client(self, *arguments):
        return run(["redis-cli", "-s", self.socket, *arguments]).strip()

    @contextlib.contextmanager
    def server(self):
        os.mkdir(self.folder)
        environment = dict(os.environ, LD_PRELOAD=os.path.join(self.place.tools, "slow_disk.so"),
                           SLOW_DISK=self.place.slow_disk.path)
        with open(os.path.join(self.place.tools, "redis.log"), "w", encoding="utf-8") as log:
            # Debian's redis-tools have the server under this other name, without a service that starts it.
            server = subprocess.Popen(
                ["redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", self.folder, "--save", "",
                 "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"],
                executable=shutil.which("redis-check-rdb"), env=environment, stdout=log, stderr=log)
        try:
            self.wait(server)
            yield
        finally:
            server.terminate()
            server.wait(60)
            run(["rm", "-rf", self.folder])

    def wait(self, server):
        deadline = time.monotonic() + 60
        while subprocess.run(["redis-cli", "-s", self.socket, "PING"], capture_output=True, text=True,
                             check=False).stdout.strip() != "PONG":
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("redis-server does not answer, see redis.log")
            time.sleep(0.02)

    def send(self, count):
        """Events a second; ids and payloads are as long as ours."""
        with open(os.path.join(BENCH, "peers/redis.lua"), encoding="utf-8") as file:
            digest = self.client("SCRIPT", "LOAD", file.read())
        output = run(["redis-benchmark", "-s", self.socket, "-c", str(self.clients), "-P", str(BATCH), "-n", str(count),
                      "-r", "2000000000", "--csv",
                      "EVALSHA", digest, "2", "00000000-__rand_int__-__rand_int__", "poll", "0",
                      '{"device": "phone", "ms": __rand_int__}'])
        counted = int(self.client("HGET", "poll", "0"))
        if counted < count or counted != int(self.client("DBSIZE")) - 1:
            raise Mismatch("Redis counted %d of %d events" % (counted, count))
        # The title in front of the seven figures holds quotes of its own.
        return float(re.findall(r'"([0-9.]+)"', output)[-7])

    def __call__(self, seconds):
        with self.server(), self.place.slow_disk.used():
            if self.rate is None or not seconds:
                self.rate = self.send(BATCH * self.clients * 5)
                if not seconds:
                    return self.rate
                self.client("FLUSHALL")
            count = int(self.rate * seconds / BATCH / self.clients + 1) * BATCH * self.clients
            self.rate = self.send(count)
            return self.rate


def in_turn(form, contenders, seconds=None):
    """Each contender in each round, in alternating order; returns a list of figures, one a round, for each."""
    seconds = form.seconds if seconds is None else seconds
    names = list(contenders)
    if form.warm_s:
        for name in names:
            contenders[name](form.warm_s)
    figures = {name: [] for name in names}
    for number in range(form.rounds):
        order = names if number % 2 == 0 else names[::-1]
        if form.there_and_back:
            order = order + order[::-1]
        found = {name: [] for name in names}
        for name in order:
            found[name].append(contenders[name](seconds))
        for name in names:
            figures[name].append(statistics.mean(found[name]))
    return figures
