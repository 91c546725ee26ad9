#!/usr/bin/python3
"""Runs the examples of all drivers through proxies that lose connections and answers, and compares what they print.

usage: drivers.py DSN TREE CLASSES     TREE has the examples, built; CLASSES those of Java, and Bind

Prints NAME=VALUE, and "# ..." for what is wrong. What the polls hold afterwards is for the caller to look at:
plain-DRIVER, faults-DRIVER and hopeless-DRIVER for each driver, faults-MUTANT, and watched. The roles sender and screen
are those of the examples.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time

import psycopg2

from fault_proxy import FAILING, FaultProxy

FAULTS = ("fail_40001", "before", "fail_40p01", "after", "terminate")
PATIENCE_S = 180
JDBC = "/usr/share/java/postgresql.jar"

# Each is a mistake that somebody could make with send.py or watch.py: the program must not print what it should.
MUTANTS = {
    "new-id": ("cursor.execute(ACCEPT_EVENT, event)",
               "cursor.execute(ACCEPT_EVENT, dict(event, event_id=str(uuid.uuid4())))"),
    "new-time": ("cursor.execute(ACCEPT_EVENT, event)",
                 "cursor.execute(ACCEPT_EVENT, dict(event, occurred_at=datetime.now(timezone.utc)))"),
    "refusal-counts": ('if receipt["outcome"] not in COUNTED:', "if False:"),
    "no-retry": ('TRANSACTION_LOST = ("40001", "40P01")', "TRANSACTION_LOST = ()"),
}
WATCH_MUTANTS = {
    "no-gaps": ("self.gaps += 1", "self.gaps += 0"),
    "forgetful": ('self.follow(psycopg2.connect(""))', 'self.epoch = None; self.follow(psycopg2.connect(""))'),
}


def note(text):
    print("# " + text.replace("\n", "\n# "))


class Drivers:
    def __init__(self, dsn, tree, classes):
        self.dsn, self.tree, self.folder = dsn, tree, os.path.join(tree, "examples", "drivers")
        java = ["java", "-XX:TieredStopAtLevel=1", "-cp", JDBC + ":" + classes]
        python = ["/usr/bin/python3", "-B"]
        self.send = {"python": python + [self.path("python/send.py")], "node": ["node", self.path("node/send.js")],
                     "c": [self.path("c/send")], "java": java + ["Send"]}
        self.watch = {"python": python + [self.path("python/watch.py")], "node": ["node", self.path("node/watch.js")],
                      "c": [self.path("c/watch")], "java": java + ["Watch"]}
        self.bind = {"python": python + [self.library("bind.py")], "node": ["node", self.library("bind.js"), self.path("node")],
                     "java": java + ["Bind", "jdbc:postgresql://127.0.0.1:%d/postgres?user=postgres"],
                     "java_untyped": java + ["Bind", "jdbc:postgresql://127.0.0.1:%d/postgres?user=postgres&stringtype=unspecified"]}

    def path(self, name):
        return os.path.join(self.folder, name)

    def library(self, name):
        return os.path.join(self.tree, "test", "lib", "bind", name)

    def expected(self, name):
        with open(self.path(name + ".expected"), encoding="utf-8") as file:
            return file.read()

    def query(self, sql, *values):
        connection = psycopg2.connect(self.dsn)
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            rows = cursor.fetchall() if cursor.description else None
        connection.close()
        return rows

    def make_poll(self, poll):
        with open(self.path("setup.sql"), encoding="utf-8") as file:
            self.query(file.read().replace(":'poll'", "%s"), poll)

    def start(self, command, role, proxy, **streams):
        environment = dict(os.environ, PGHOST="127.0.0.1", PGPORT=str(proxy.port), PGUSER=role, PGDATABASE="postgres",
                           TZ="Asia/Kathmandu")     # no program may depend on the zone of its process
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, text=True, **streams)

    # --- sending ----------------------------------------------------------------------------------------------------

    def send_with(self, name, command, kind, faults):
        """(what it printed, its status, what the proxy did)"""
        poll = "%s-%s" % (kind, name)
        self.make_poll(poll)
        proxy = FaultProxy(self.dsn, faults)
        process = self.start(command + [poll], "sender", proxy, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        if err and kind != "hopeless" and name not in MUTANTS:
            note("%s: %s" % (poll, err))
        return out, process.returncode, proxy.done

    def is_right(self, poll, out, status, expected):
        right = status == 0 and out == expected
        if not right:
            note("%s ended with %d and printed\n%s" % (poll, status, out))
        return int(right)

    def check_plain(self, name, results):
        out, status, _ = self.send_with(name, self.send[name], "plain", ())
        results["plain_" + name] = self.is_right("plain-" + name, out, status, self.expected("send"))

    def check_faults(self, name, results):
        out, status, done = self.send_with(name, self.send[name], "faults", FAULTS)
        results["faults_" + name] = self.is_right("faults-" + name, out, status, self.expected_after_faults())
        results["faults_done_" + name] = " ".join("%s:%d" % (fault, done[fault]) for fault in FAULTS)

    def expected_after_faults(self):
        """Each event was committed and its answer lost before it is answered: nothing is accepted any more."""
        return self.expected("send").replace("accepted", "duplicate")

    def check_hopeless(self, name, results):
        out, status, done = self.send_with(name, self.send[name], "hopeless", ("after",) * 1000)
        results["hopeless_" + name] = int(status not in (0, -9) and out == "")
        results["hopeless_tries_" + name] = done["after"]

    def mutant(self, folder, example, name, before, after):
        """The command that runs an example with a mistake."""
        with open(self.path(example), encoding="utf-8") as file:
            text = file.read()
        if text.count(before) != 1:
            raise ValueError(example + " has changed: " + before)
        path = os.path.join(folder, name + ".py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(before, after))
        return ["/usr/bin/python3", "-B", path]

    def check_mutant(self, name, results):
        with tempfile.TemporaryDirectory() as folder:
            command = self.mutant(folder, "python/send.py", name, *MUTANTS[name])
            out, status, _ = self.send_with(name, command, "faults", FAULTS)
        results["caught_" + name.replace("-", "_")] = int(out != self.expected_after_faults() or status != 0)

    # --- watching ---------------------------------------------------------------------------------------------------

    def vote(self, count=1, first=""):
        """Votes and a revision that has them, after another statement, in one transaction."""
        self.query(first + "SELECT count(*) FROM generate_series(1, %s) AS g,"
                   " poll_tally.accept_event('watched', g || '-' || gen_random_uuid(), 'soup') AS a WHERE a.outcome = 'accepted';"
                   "SELECT poll_tally.publish('watched', force => true)", count)

    def wait_for(self, lines, files):
        """Until every watcher without a mistake has printed so many lines; False when one does not."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if all(len(self.printed(files[name])) >= lines for name in self.watch):
                return True
            time.sleep(0.02)
        return False

    @staticmethod
    def printed(file):
        with open(file.name, encoding="utf-8") as reader:
            return reader.read().splitlines()

    def steps(self, proxies):
        """What happens to the poll; after each step, one line more is to be shown."""
        yield "what there is"
        self.vote()
        yield "a revision"
        # Forged, and older than what they have.
        self.query("SELECT pg_notify(poll_tally.channel('watched'), 'no message'), pg_notify(poll_tally.channel('watched'),"
                   " (poll_tally.snapshot_message('watched') || '{\"revision\": 1, \"counts\": {\"soup\": 99}}')::text)")
        self.vote(2)
        yield "the next one, after forged messages"
        for proxy in proxies:
            proxy.shut()
        self.vote(3)
        self.vote(4)
        for proxy in proxies:
            proxy.open()
        yield "what was published while they were away: a gap"
        for proxy in proxies:
            proxy.terminate_backends()
        self.vote()
        yield "the next one, after their backends were terminated: no gap"
        self.vote(first="SELECT poll_tally.renew_epoch();")
        yield "another epoch"
        self.query("SELECT poll_tally.close_poll('watched')")
        yield "the final one"

    def check_watchers(self, results):
        self.make_poll("watched")
        with tempfile.TemporaryDirectory() as folder:
            commands = dict(self.watch)
            for name, change in WATCH_MUTANTS.items():
                commands[name] = self.mutant(folder, "python/watch.py", name, *change)
            proxies = {name: FaultProxy(self.dsn) for name in commands}
            files = {name: open(os.path.join(folder, name), "w", encoding="utf-8") for name in commands}
            errors = {name: open(os.path.join(folder, name + ".err"), "w", encoding="utf-8") for name in commands}
            processes = {name: self.start(command + ["watched"], "screen", proxies[name], stdout=files[name], stderr=errors[name])
                         for name, command in commands.items()}
            missing = "nothing"
            for lines, step in enumerate(self.steps(proxies.values()), 1):
                if not self.wait_for(lines, files):
                    missing = step
                    break
            for name, process in processes.items():
                try:
                    process.wait(PATIENCE_S if missing == "nothing" else 0)
                except subprocess.TimeoutExpired:
                    process.kill()
                status, out = process.wait(), "".join(line + "\n" for line in self.printed(files[name]))
                if name in WATCH_MUTANTS:
                    results["caught_" + name.replace("-", "_")] = int(out != self.expected("watch"))
                else:
                    results["watch_" + name] = self.is_right("the watcher in " + name, out, status, self.expected("watch"))
                if results.get("watch_" + name) == 0:
                    note("\n".join(self.printed(errors[name])))
                files[name].close()
                errors[name].close()
            results["watch_missing"] = missing

    # --- all of it --------------------------------------------------------------------------------------------------

    def check_binding(self, name, results):
        proxy = FaultProxy(self.dsn)
        command = self.bind[name][:-1] + [self.bind[name][-1].replace("%d", str(proxy.port))]
        process = self.start(command, "postgres", proxy, stdout=subprocess.PIPE)
        out, _ = process.communicate(timeout=PATIENCE_S)
        results.update(line.replace("=", "_%s=" % name).split("=") for line in out.splitlines())

    @staticmethod
    def at_once(checks):
        """Runs checks (function, argument…), each in a thread of its own."""
        threads = [threading.Thread(target=check, args=arguments) for check, *arguments in checks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def run(self):
        results = {}
        self.query(FAILING)
        self.at_once([(self.check_watchers, results)] + [(self.check_mutant, name, results) for name in MUTANTS] + [
            (check, name, results) for name in self.send for check in (self.check_plain, self.check_faults, self.check_hopeless)])
        self.at_once([(self.check_binding, name, results) for name in self.bind])
        for name, value in results.items():
            print("%s=%s" % (name, value))


if __name__ == "__main__":
    Drivers(*sys.argv[1:]).run()
