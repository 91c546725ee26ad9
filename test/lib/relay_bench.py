"""What the relays' kill tests share: messages of every kind with the place each has to end in, relays as processes
that kill themselves at a chosen step, the database's own restarts, the judge, and what is done to every queue.

The judge asks four things. What the queue holds as acknowledged is in the ledger or among the dead letters, at any
time. Once the queue is empty: the ledger has each event that was delivered once and nothing else; the dead letters are
exactly the messages that had to end there, each with its reason and its body; results are the recount of what was sent.
"""

import collections
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import psycopg2

PATIENCE = 180
CHOICES = ("red", "green", "blue")
STEPS = ("connected", "received", "judged", "committed", "settled", "retrying", "burying", "buried", "acknowledging",
         "acknowledged", "leaving")
PER_MESSAGE = ("received", "settled", "buried", "acknowledged")


def until(condition, what):
    """The first true value of condition()."""
    deadline = time.monotonic() + PATIENCE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise RuntimeError("waited too long for " + what)
        time.sleep(0.05)


def end_in_order():
    """Servers and relays are stopped when this process is told to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def ok(verdict, name):
    print("%s - %s" % ("ok" if verdict else "not ok", name), flush=True)


# --- messages -------------------------------------------------------------------------------------------------------

class Message:
    """reason: why it has to be dead; None: its event has to be in the ledger."""

    def __init__(self, body, event_id=None, reason=None, votes=None, poll=None, principal=None):
        self.body, self.event_id, self.reason = body, event_id, reason
        self.votes, self.poll, self.principal = votes or {}, poll, principal
        self.key = principal or event_id or "none"


class Mix:
    """Makes messages of every kind. Order matters: a conflict comes after the event that it is in conflict with."""

    def __init__(self, rng):
        self.rng = rng
        self.number = 0
        self.ordered = True             # delivered in the order of sending
        self.known = []                 # messages whose event has to be in the ledger

    def event(self, poll, reason=None, **members):
        self.number += 1
        name = members.pop("event_id", "event-%06d" % self.number)
        body = json.dumps(dict({"poll": poll, "event_id": name}, **members), ensure_ascii=False)
        votes = members.get("votes") or {members.get("choice"): 1}
        message = Message(body.encode(), name, reason, votes, poll, members.get("principal"))
        if reason is None:
            self.known.append(message)
        return message

    def order(self):
        votes = {"item-%d" % self.rng.randrange(20): self.rng.randint(-3, 9) or 1 for _ in range(self.rng.randint(1, 4))}
        return self.event("orders", votes=votes, payload={"price": 1.5, "n": self.number, "unit": "\u65a4"})

    def answer(self):
        return self.event("survey", choice=self.rng.choice(CHOICES), principal="voter-%d" % self.number,
                          occurred_at="2026-01-01T00:00:%02dZ" % self.rng.randrange(60))

    def mood(self):
        return self.event("mood", choice=self.rng.choice(CHOICES), principal="viewer-%d" % self.rng.randrange(8))

    def again(self):
        return self.rng.choice(self.known) if self.known else self.order()

    def other_content(self):
        """The same id with other votes; the key keeps it behind the first in the same partition."""
        first = next(filter(lambda message: message.poll == "orders", reversed(self.known)), None)
        if first is None or not self.ordered:
            return self.order()
        message = self.event("orders", "conflict", event_id=first.event_id, choice="another-%d" % self.number)
        message.key = first.key
        return message

    def broken(self):
        self.number += 1
        body = self.rng.choice((b'{"poll": "orders", "event_id": "x%d"', b'{"poll": "orders", "choice": "a", "n": %d}',
                                b'{"poll": "orders", "principal": "p%d"}', b"\xff\x00%d", b"", b'["%d"]'))
        return Message(body % self.number if b"%" in body else body + b"%d" % self.number, reason="invalid_message")

    def endless(self):
        """A member's name of a million bytes and more: the letter has to be written all the same."""
        return Message(b'{"poll": "orders", "%s": 1}' % (b"m" * 1200000), reason="invalid_message")

    def refused(self):
        return self.rng.choice((
            lambda: self.event("shut", "closed", choice="red"),
            lambda: self.event("survey", "unknown_choice", choice="pink", principal="p"),
            lambda: self.event("survey", "invalid", choice="red"),          # no principal
            lambda: self.event("never", "unknown_poll", choice="red"),
            lambda: self.event("early", "not_open", choice="red"),
            lambda: self.event("orders", "datetime_field_overflow", choice="red", occurred_at="2026-02-30T00:00:00Z"),
            lambda: self.event("orders", "untranslatable_character", choice="red", payload="\x00"),
        ))()

    def make(self, number):
        kinds = ([self.order] * 8 + [self.answer] * 5 + [self.mood] * 4 + [self.again] * 3 + [self.other_content]
                 + [self.broken] + [self.refused] * 2)
        some = [] if self.known else [self.endless()]
        some += [self.order(), self.event("never", "unknown_poll", choice="red"), self.broken()]
        return some + [self.rng.choice(kinds)() for _ in range(number - len(some))]


POLLS = """
SELECT poll_tally.create_counter('orders');
SELECT poll_tally.create_poll('survey', %(choices)s);
SELECT poll_tally.create_poll('mood', %(choices)s, counting => 'latest');
SELECT poll_tally.create_poll('early', %(choices)s, counting => 'every', opens_at => '2100-01-01');
SELECT poll_tally.create_poll('shut', %(choices)s, counting => 'every');
SELECT poll_tally.close_poll('shut');
"""


# --- processes ------------------------------------------------------------------------------------------------------

class RelayProcess:
    """A relay. fault: STEP:N[:SIGNAL]. What it did is read from its trace."""

    def __init__(self, bench, command, fault=None):
        self.log = open(os.path.join(bench.folder, "relay.log"), "ab")
        # What is sent is UTF-8, whatever the environment says.
        environment = dict(os.environ, RELAY_TRACE=bench.trace_file, PGCLIENTENCODING="LATIN1")
        environment.pop("RELAY_FAULT", None)
        if fault:
            environment["RELAY_FAULT"] = fault
        self.process = subprocess.Popen([sys.executable, "-B"] + command, env=environment, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log)
        bench.processes.append(self.process)

    def wait_end(self):
        return self.process.wait(PATIENCE)

    def is_stopped(self):
        with open("/proc/%d/stat" % self.process.pid, encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "T"

    def catches(self, number):
        """Is it so far that the signal does not just end it?"""
        with open("/proc/%d/status" % self.process.pid, encoding="ascii") as file:
            caught = int(file.read().split("SigCgt:")[1].split()[0], 16)
        return caught >> number - 1 & 1 == 1

    def wait_stopped(self):
        until(lambda: self.process.poll() is not None or self.is_stopped(), "the relay to stop at its step")

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.wait_end()

    def terminate(self):
        """SIGTERM, once it listens to it; the exit status."""
        until(lambda: self.process.poll() is not None or self.catches(signal.SIGTERM), "the relay to be there")
        self.process.terminate()
        return self.wait_end()


class Bench:
    """queue offers send(messages), sent {position: message}, acknowledged(), letters(), is_empty() and command(...)."""

    def __init__(self, dsn, data, seed):
        """A database of its own on the caller's server."""
        self.dsn, self.data, self.seed = dsn, data, seed
        self.new_database()
        self.rng = random.Random(seed)
        self.mix = Mix(self.rng)
        self.folder = tempfile.mkdtemp(prefix="r")
        self.trace_file = os.path.join(self.folder, "trace")
        open(self.trace_file, "w", encoding="utf-8").close()
        self.processes = []
        self.queue = None
        self.checks = 0
        self.violations = []
        with psycopg2.connect(self.dsn) as connection:
            connection.cursor().execute(POLLS, {"choices": list(CHOICES)})

    def new_database(self):
        name = "bench_%d" % self.seed
        for sql in ("CREATE DATABASE " + name, "CREATE EXTENSION poll_tally"):
            connection = psycopg2.connect(self.dsn)
            connection.autocommit = True
            connection.cursor().execute(sql)
            connection.close()
            self.dsn = " ".join(word for word in self.dsn.split() if not word.startswith("dbname=")) + " dbname=" + name

    def query(self, sql, *arguments):
        connection = psycopg2.connect(self.dsn)
        try:
            cursor = connection.cursor()
            cursor.execute(sql, arguments)
            return cursor.fetchall() if cursor.description else []
        finally:
            connection.commit()
            connection.close()

    def server(self, *arguments):
        """pg_ctl on the database's server."""
        subprocess.run(["pg_ctl", "-D", self.data, "-w", "-t", str(PATIENCE), "-l",
                        os.path.join(self.folder, "server.log"), *arguments],
                       check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def trace(self, *steps):
        """Lines of the trace as lists of words, of some steps or of all."""
        with open(self.trace_file, encoding="utf-8") as file:
            lines = [line.split() for line in file]
        return [words for words in lines if not steps or words[0] in steps]

    def log(self):
        with open(os.path.join(self.folder, "relay.log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def metric(self, name):
        """The figure as the relay's own endpoint tells it."""
        url = re.findall(r"^metrics: (\S+)$", self.log(), re.M)[-1]
        text = urllib.request.urlopen(url, timeout=30).read().decode()
        return float(re.search(r"^%s (\S+)$" % name, text, re.M).group(1))

    def start(self, fault=None, more=(), **options):
        return RelayProcess(self, self.queue.command(**options) + list(more), fault)

    def close(self, died=False):
        """However it ended: no process is left."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        if self.violations or died:
            print("".join("# relay: %s\n" % line for line in self.log().splitlines()[-20:]), end="")

    # --- the judge --------------------------------------------------------------------------------------------------

    def check(self, verdict, text):
        self.checks += 1
        if not verdict:
            self.violations.append(text)
            print("# violation: " + text, flush=True)

    def check_acknowledged(self):
        """What the queue holds as acknowledged is settled. It is asked first: a relay may be at work meanwhile."""
        acknowledged = self.queue.acknowledged()
        ledger = {name for name, in self.query("SELECT event_id FROM poll_tally.events")}
        letters = self.queue.letters()
        for position in acknowledged:
            message = self.queue.sent[position]
            settled = message.event_id in ledger or self.queue.letter_id(position) in letters
            self.check(settled, "%s was acknowledged and is nowhere: %r" % (position, message.body))
        return len(acknowledged)

    def check_end(self):
        """The queue is empty: everything is where it has to be."""
        rows = self.query("SELECT event_id, poll FROM poll_tally.events")
        good = {message.event_id: message for message in self.queue.sent.values() if message.reason is None}
        self.check(len(rows) == len(dict(rows)), "%d entries for %d ids" % (len(rows), len(dict(rows))))
        for name in good.keys() | dict(rows).keys():
            self.check(name in good and name in dict(rows), "%s: sent %s, in the ledger %s"
                       % (name, name in good, name in dict(rows)))
        letters = self.queue.letters()
        bad = {self.queue.letter_id(position): message for position, message in self.queue.sent.items()
               if message.reason is not None}
        for name in bad.keys() | letters.keys():
            expected = (bad[name].reason, bad[name].body) if name in bad else None
            self.check(letters.get(name) == expected, "dead letter %s: %r, not %r" % (name, letters.get(name), expected))
        self.check_results(good)

    def check_results(self, good):
        expected = collections.Counter()
        moods = {}
        for message in good.values():           # in the order of sending
            if message.poll == "mood":
                moods[message.principal] = message
            else:
                expected.update({(message.poll, choice): count for choice, count in message.votes.items()})
        if self.queue.keeps_order:
            for message in moods.values():
                expected.update({("mood", choice): 1 for choice in message.votes})
        for poll, choice, count in self.query("SELECT poll, choice, count FROM poll_tally.results"):
            if poll != "mood" or self.queue.keeps_order:
                self.check(expected.pop((poll, choice), 0) == count, "%s of %s: %d" % (choice, poll, count))
        self.check(not +expected, "counts that are missing: %s" % expected)

    def figures(self, what):
        received = [tuple(words[1:3]) for words in self.trace("received")]
        duplicates = sum(words[3] == "duplicate" for words in self.trace("settled"))
        accepted = self.query("SELECT count(*) FROM poll_tally.events")[0][0]
        print("# figure: %s: sent %d, delivered %d, redelivered %d, duplicates %d, accepted %d, dead %d; %d checks, "
              "%d violations, seed %d" % (what, len(self.queue.sent), len(set(received)),
                                          len(received) - len(set(received)), duplicates, accepted,
                                          len(self.queue.letters()), self.checks, len(self.violations), self.seed))

    # --- what is done to every queue --------------------------------------------------------------------------------

    def drain(self, **options):
        """A relay without faults until the queue is empty; it ends in order."""
        relay = self.start(**options)
        until(lambda: self.queue.is_empty() or relay.process.poll() is not None, "the queue to be empty")
        self.check(relay.terminate() == 0, "the relay ended with status %s" % relay.process.returncode)
        self.check_acknowledged()

    def kill_at(self, step, messages, **options):
        """One message of each kind and more, and a relay that kills itself at the step."""
        self.queue.send(self.mix.make(messages))
        count = self.rng.randint(1, messages // 4) if step in PER_MESSAGE else self.rng.randint(1, 2)
        before = len(self.trace("received"))
        relay = self.start("%s:%d" % (step, 1 if step in ("connected", "leaving", "retrying", "burying") else count),
                           **options)
        if step == "leaving":
            until(lambda: len(self.trace("received")) > before or relay.process.poll() is not None, "a message")
            relay.process.terminate()
        status = relay.wait_end()
        self.check(status == -signal.SIGKILL, "at step %s: the relay ended with status %s" % (step, status))
        self.check_acknowledged()

    def kill_everywhere(self, rounds, messages, **options):
        for _ in range(rounds):
            for step in STEPS:
                self.kill_at(step, messages, **options)
        self.drain(**options)
        self.check_end()

    def stop_database(self, mode, messages):
        """The database goes between our COMMIT and the acknowledgement, and comes back later."""
        self.queue.send(self.mix.make(messages))
        relay = self.start("acknowledging:1:STOP")
        relay.wait_stopped()
        before = len(self.trace("acknowledged"))
        self.server("stop", "-m", mode)
        relay.go_on()
        # Acknowledged without the database, and then, with more to do, it is missed.
        until(lambda: len(self.trace("acknowledged")) > before, "an acknowledgement")
        self.queue.send(self.mix.make(messages))
        until(lambda: [words for words in self.trace("retrying") if words[1] not in ("never", "early")],
              "a try without the database")
        self.server("start")
        until(self.queue.is_empty, "the queue to be empty")
        self.check(relay.terminate() == 0, "the relay ended with status %s" % relay.process.returncode)
        self.check_acknowledged()
        self.check_end()

    def flush_at_end(self):
        """SIGTERM with messages in hand, whose timer is far away: they are in the ledger and acknowledged."""
        messages = [self.mix.order() for _ in range(30)]
        before = len(self.trace("received")), len(self.trace("committed"))
        self.queue.send(messages)
        relay = self.start(more=["--batch", "1000", "--every", "1000", "--idle", "1000"])
        until(lambda: len(self.trace("received")) == before[0] + len(messages), "the messages")
        self.check(len(self.trace("committed")) == before[1], "a batch was flushed before its time")
        self.check(relay.terminate() == 0, "the relay ended with status %s" % relay.process.returncode)
        self.check(self.queue.is_empty(), "not all was acknowledged at the end")
        self.check_acknowledged()
        self.check_end()

    def unknown_commit(self, messages):
        """COMMIT is done and its answer is lost: the session is ended while it waits for a standby that never comes."""
        self.queue.send(self.mix.make(messages))
        self.set_standby("'nobody'")
        relay = self.start(metrics=True)
        waiting = ("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type = 'client backend'"
                   " AND query ILIKE 'commit'")
        pid = until(lambda: self.query(waiting), "a COMMIT that waits")[0][0]
        self.query("SELECT pg_terminate_backend(%s)", pid)
        until(lambda: not self.query("SELECT 1 FROM pg_stat_activity WHERE pid = %s", pid), "the session to end")
        self.set_standby("''")
        until(self.queue.is_empty, "the queue to be empty")
        resolved = self.metric("relay_unknown_results_resolved_total")
        self.check(resolved > 0, "no unknown result was resolved")
        self.check(relay.terminate() == 0, "the relay ended with status %s" % relay.process.returncode)
        self.check_acknowledged()
        self.check_end()
        return resolved

    def set_standby(self, names):
        connection = psycopg2.connect(self.dsn)
        connection.autocommit = True
        cursor = connection.cursor()
        cursor.execute("ALTER SYSTEM SET synchronous_standby_names = " + names)
        cursor.execute("SELECT pg_reload_conf()")
        connection.close()


# --- parts ----------------------------------------------------------------------------------------------------------

class Part:
    """One thing that is done to a queue. A subclass names the queue, makes it, and closes what it started for it."""

    what = None

    def __init__(self, arguments, name, number):
        dsn, data, _, seed = arguments[:4]
        self.name = name
        self.bench = Bench(dsn, data, int(seed) + number)

    @property
    def queue(self):
        return self.bench.queue

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.bench.figures("%s, %s" % (self.what, self.name))
        self.bench.close(kind is not None)
        self.close()
        ok(kind is None and not self.bench.violations and self.bench.checks > 0, "%s: %s" % (self.what, self.name))


def killed_at_every_step(part, deep):
    part.bench.kill_everywhere(8 if deep else 1, 60 if deep else 40)


def database_stopped(part, deep):
    for mode in ("immediate", "fast") if deep else ("immediate",):
        part.bench.stop_database(mode, 60)
    part.bench.flush_at_end()
    resolved = part.bench.unknown_commit(40)
    print("# figure: %s: %d unknown results of COMMIT resolved by the retry" % (part.what, resolved))
