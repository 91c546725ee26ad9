"""Where is measured: the servers, a database for each scenario, the slow disk, and how long everything may take.

Invariant: a scenario has a database of its own, so that none pays for the rows of another; at its end every event that
was sent is recounted on both sides, and every poll is verified.
"""

import contextlib
import mmap
import os
import struct
import time
from dataclasses import dataclass

import psycopg2

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FIRST_ID = 10 ** 18             # ids of preloaded events are numbers behind it; ours/retry.sql knows it too


class Mismatch(Exception):
    """What is counted is not what was sent, or a poll does not hold together."""


@dataclass
class Form:
    """How much is measured; seconds of 0 stand for a few transactions, whatever they take."""
    name: str
    rounds: int
    seconds: int
    there_and_back: bool        # a round measures A B B A instead of A B, the next one B A A B instead of B A
    warm_s: int

    def pick(self, smoke, quick, full):
        return {"smoke": smoke, "quick": quick}.get(self.name, full)


FORMS = {
    "smoke": Form("smoke", 1, 0, False, 0),
    "quick": Form("quick", 3, 1, False, 0),
    "full": Form("full", 3, 3, True, 2),
    "long": Form("long", 3, 3, True, 2),
}


class SlowDisk:
    """The numbers that slow_disk.c shares; without a file, the disk is the one that is there."""

    def __init__(self, path):
        with open(path, "r+b") as file:
            self.numbers = mmap.mmap(file.fileno(), 24)
        self.path = path

    @contextlib.contextmanager
    def of(self, length_us):
        before = self.numbers[0:8]
        self.numbers[0:8] = struct.pack("q", length_us * 1000)
        yield
        self.numbers[0:8] = before

    def sleeps(self):
        return struct.unpack("qq", self.numbers[8:24])

    @contextlib.contextmanager
    def used(self):
        """Whoever says to have waited for this disk must have."""
        before = self.sleeps()[0]
        yield
        if self.sleeps()[0] == before:
            raise Mismatch("nothing waited for the slow disk")


def connect(host, port, database):
    connection = psycopg2.connect(host=host, port=port, dbname=database, user="postgres")
    connection.autocommit = True
    return connection


class Database:
    """A database of one scenario; counts what was sent to each side."""

    def __init__(self, place, name, port):
        self.place, self.name, self.port = place, name, port
        self.sent = {"ours": 0, "usual": 0, "bare": 0}
        self.connection = connect(place.host, port, name)
        self.cursor = self.connection.cursor()

    def dsn(self):
        return "host=%s port=%s dbname=%s user=postgres" % (self.place.host, self.port, self.name)

    def run(self, sql, *arguments):
        self.cursor.execute(sql, arguments or None)

    def value(self, sql, *arguments):
        self.run(sql, *arguments)
        return self.cursor.fetchone()[0]

    def run_file(self, name):
        with open(os.path.join(BENCH, name), encoding="utf-8") as file:
            self.cursor.execute(file.read())

    def make_polls(self, count, choices=2, **rules):
        """Polls 1, 2, 3 ... with choices 0, 1, 2 ... on both sides."""
        names = [str(number) for number in range(choices)]
        further = "".join(", %s => %%(%s)s" % (rule, rule) for rule in rules)
        self.cursor.execute("SELECT count(poll_tally.create_poll(g::text, %(names)s, counting => 'every'" + further + "))"
                            " FROM generate_series(1, %(count)s) AS g", dict(rules, names=names, count=count))
        self.run("INSERT INTO usual.poll SELECT g::text FROM generate_series(1, %s) AS g", count)
        self.run("INSERT INTO usual.choice SELECT p.poll, c FROM usual.poll AS p, unnest(%s) AS c", names)
        self.run("INSERT INTO usual.count SELECT c.poll, c.choice, 0, %s FROM usual.choice AS c", rules.get("max_count"))
        # Not the tables of events: a plan for a table that is known to be empty would stay when it is full.
        self.run("ANALYZE usual.poll, usual.choice, usual.count, poll_tally.poll, poll_tally.choice")

    def check(self):
        """Every side recounted; returns how many checks verify_poll made, of how many events."""
        sent = dict(self.sent)
        counted = {
            "ours": self.value("SELECT coalesce(sum(accepted_position), 0) FROM poll_tally.polls"),
            "usual": self.value("SELECT count(*) FROM usual.event"),
            "bare": self.value("SELECT count(*) FROM bare.ledger"),
        }
        if counted != sent:
            raise Mismatch("sent %s, counted %s" % (sent, counted))
        if self.value("SELECT coalesce(sum(count), 0) FROM usual.count") != sent["usual"]:
            raise Mismatch("the usual SQL counted something else than its events")
        self.run("SELECT p.poll, v.check_name, v.expected, v.actual, v.ok"
                 " FROM poll_tally.polls AS p, poll_tally.verify_poll(p.poll) AS v")
        verdicts = self.cursor.fetchall()
        wrong = [verdict for verdict in verdicts if not verdict[4]]
        polls = self.value("SELECT count(*) FROM poll_tally.polls")
        if wrong or len(verdicts) < 3 * polls or polls == 0:
            raise Mismatch("verify_poll made %d checks of %d polls, wrong: %s" % (len(verdicts), polls, wrong[:5]))
        return len(verdicts), polls, int(counted["ours"])


class Place:
    """All that a scenario is given."""

    def __init__(self, arguments, form):
        self.host, self.port, self.disk_port = arguments.host, arguments.port, arguments.disk_port
        self.tools, self.fast, self.form = arguments.tools, arguments.fast, form
        self.slow_disk = SlowDisk(os.path.join(arguments.fast, "slow_disk"))
        self.made = 0
        self.verified = []      # (scenario, checks, polls, events)

    @contextlib.contextmanager
    def database(self, scenario, disk_us=80):
        """A database for a scenario, checked at its end. disk_us None: on the disk that is there."""
        port = self.port if disk_us is not None else self.disk_port
        self.made += 1
        name = "bench_%d" % self.made
        with contextlib.closing(connect(self.host, port, "postgres")) as admin:
            cursor = admin.cursor()
            with self.slow_disk.of(0):
                cursor.execute("CREATE DATABASE " + name)
                database = Database(self, name, port)
                database.run("CREATE EXTENSION poll_tally")
                database.run_file("peers/usual.sql")
                database.run_file("peers/bare.sql")
            if disk_us is None:
                yield database
            else:
                with self.slow_disk.of(disk_us), self.slow_disk.used():
                    yield database
            self.verified.append((scenario,) + database.check())
            database.connection.close()
            # This ends in a checkpoint, so that the next scenario does not begin with full page images.
            with self.slow_disk.of(0):
                cursor.execute("DROP DATABASE %s WITH (FORCE)" % name)

    @contextlib.contextmanager
    def setting(self, name, value):
        """Of the server with the slow disk, which has it from its configuration file otherwise."""
        with contextlib.closing(connect(self.host, self.port, "postgres")) as admin:
            cursor = admin.cursor()
            cursor.execute("ALTER SYSTEM SET %s = '%s'" % (name, value))
            cursor.execute("SELECT pg_reload_conf()")
            yield
            cursor.execute("ALTER SYSTEM RESET " + name)
            cursor.execute("SELECT pg_reload_conf()")

    def emulated_flushes_us(self):
        """How long flushes of 80 and of 1000 us really take, by the slow disk's own clock."""
        found = {}
        with self.database("flush") as database:
            database.make_polls(1)
            for length_us in (80, 1000):
                with self.slow_disk.of(length_us):
                    before = self.slow_disk.sleeps()
                    for number in range(50):
                        database.run("SELECT poll_tally.accept_event('1', %s, '0')", "flush-%d-%d" % (length_us, number))
                    after = self.slow_disk.sleeps()
                database.sent["ours"] += 50
                found[str(length_us)] = round((after[1] - before[1]) / (after[0] - before[0]) / 1000)
        return found

    def real_flush_us(self, count=200):
        """How long a flush of a page to the disk that is there takes, as the median."""
        path = os.path.join(self.tools, "flush")
        times = []
        with open(path, "wb", buffering=0) as file:
            file.write(bytes(8192 * count))
            os.fsync(file.fileno())
            for number in range(count):
                file.seek(8192 * number)
                file.write(bytes(8192))
                start = time.perf_counter()
                os.fdatasync(file.fileno())
                times.append(time.perf_counter() - start)
        os.unlink(path)
        return round(sorted(times)[count // 2] * 1e6)
