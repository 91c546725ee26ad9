"""The main job on a file of responses, from end to end; started by scripts/demo on its own throw-away server.

This process prepares the polls, starts the clients, kills one of them, listens as a viewer, and judges what came out.
It waits for what it needs to happen, never for a time to pass; when nothing at all is heard for a while, it has failed.
"""

import argparse
import multiprocessing
import os
import signal
import sys
from collections import Counter, defaultdict
from multiprocessing.connection import wait

import psycopg2

import feeder
import watcher
from plan import make_plan
from responses import BadInput, polls_of, read_responses, recount
from verdict import judge_answers, judge_poll, print_poll

SILENCE_S = 20
PUBLISH_EVERY = "250 milliseconds"
# A process of its own for each client, as it would be in life: its connection is opened, and dies, with it.
PROCESSES = multiprocessing.get_context("fork")


class Failure(Exception):
    """Something did not happen as it must; the message says what."""


def connect(user):
    connection = psycopg2.connect(dbname="postgres", user=user, application_name="demo")
    connection.autocommit = True
    return connection.cursor()


def rows(cursor, statement, *arguments):
    cursor.execute(statement, arguments)
    return cursor.fetchall()


# --- before ----------------------------------------------------------------------------------------------------------


def prepare_roles():
    """Nobody but the installer is a superuser: each role gets one grant of the extension's own and no more."""
    cursor = connect("postgres")
    cursor.execute("CREATE EXTENSION poll_tally")
    for kind, role in (("submitter", feeder.ROLE), ("viewer", watcher.ROLE),
                       ("admin", "demo_admin"), ("auditor", "demo_auditor")):
        cursor.execute(f"CREATE ROLE {role} LOGIN")
        cursor.execute(f"SELECT poll_tally.grant_{kind}('{role}')")
    cursor.connection.close()


def create_polls(admin, polls, choices):
    for poll in polls:
        admin.execute("SELECT poll_tally.create_poll(%s, %s, publish_every => %s)", (poll, choices, PUBLISH_EVERY))


# --- while the clients feed ----------------------------------------------------------------------------------------


class Run:
    """The clients, their answers so far, and the one that is killed."""

    def __init__(self, plan, viewer):
        self.plan = plan
        self.viewer = viewer
        self.answers = []  # (delivery, outcome, differs)
        self.pipes = {}  # pipe -> (number of the client, its process)
        self.paused = set()  # those pipes whose clients wait for the next burst

    def start(self, client, after=-1, **stops):
        """`after`: the place up to which the client is not to pause."""
        pauses = [place for place in self.plan.pauses(client) if place > after]
        here, there = PROCESSES.Pipe()
        process = PROCESSES.Process(target=feeder.feed, args=(there, self.plan.streams[client], pauses), kwargs=stops,
                                    daemon=True)
        process.start()
        there.close()  # so that the client's end is the client's alone, and its death seen
        self.pipes[here] = (client, process)

    def wait_until(self, happened, what):
        while not happened():
            ready = wait([self.viewer, *self.pipes], timeout=SILENCE_S)
            if not ready:
                raise Failure(f"nothing heard for {SILENCE_S} s, still waiting until {what}")
            for source in ready:
                if source is self.viewer:
                    self.viewer.receive()
                else:
                    self._hear(source)

    def _hear(self, pipe):
        client, process = self.pipes[pipe]
        try:
            kind, *rest = pipe.recv()
        except (EOFError, OSError):
            raise Failure(f"client {client} died") from None
        if kind == "answer":
            place, outcome, differs = rest
            self.answers.append((self.plan.streams[client][place], outcome, differs))
        elif kind == "paused":
            self.paused.add(pipe)
        elif kind == "stopped":
            self._kill_and_redeliver(pipe)
        elif kind == "done":
            del self.pipes[pipe]
            process.join()
        else:
            raise Failure(f"client {client}: {rest[0]}")

    def _kill_and_redeliver(self, pipe):
        client, process = self.pipes.pop(pipe)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        lost = "" if self.plan.lose is None else "one answer lost, "
        print(f"         client {client} killed after {self.plan.stop} of {len(self.plan.streams[client])} deliveries:"
              f" {lost}one transaction open; a new client starts over")
        self.start(client, after=self.plan.stop)

    def feed(self, admin):
        for client in range(len(self.plan.streams)):
            if client == self.plan.victim:
                self.start(client, lose=self.plan.lose, stop=self.plan.stop)
            else:
                self.start(client)
        while self.pipes:
            self.wait_until(lambda: self.paused == set(self.pipes), "all clients are done with this burst")
            self._wait_for_publication(admin)
            for pipe in self.paused:
                pipe.send("go on")
            self.paused.clear()

    def _wait_for_publication(self, admin):
        accepted = dict(rows(admin, "SELECT poll, accepted_position FROM poll_tally.polls"))
        self.wait_until(lambda: all(self.viewer.position(poll) >= position for poll, position in accepted.items()),
                        "the worker has published the last event of each poll")


# --- after -----------------------------------------------------------------------------------------------------------


# Of the ledger, one entry after the other; a choice that nobody took is absent.
RECOUNT = "SELECT (poll_tally.each(poll_tally.sum(effect))).* FROM poll_tally.events WHERE poll = %s"


def read_ledger(auditor, poll):
    results = rows(auditor, "SELECT choice, count, share FROM poll_tally.results_of(%s) ORDER BY choice", poll)
    return {
        "results": results,
        "recount": {choice: 0 for choice, _, _ in results} | dict(rows(auditor, RECOUNT, poll)),
        "verify": rows(auditor, "SELECT check_name, ok, expected, actual FROM poll_tally.verify_poll(%s)", poll),
        "lanes": rows(auditor, "SELECT count(DISTINCT poll_tally.lane(position))"
                      " FROM poll_tally.events WHERE poll = %s", poll)[0][0],
    }


def read_snapshot(viewer, poll):
    revision, position = rows(viewer, "SELECT revision, included_position FROM poll_tally.snapshot(%s)", poll)[0]
    counts = dict(rows(viewer, "SELECT choice, count FROM poll_tally.published WHERE poll = %s", poll))
    return {"revision": revision, "position": position, "counts": counts}


def report(run, file_counts):
    """Prints the tables; returns what is wrong."""
    outcomes = defaultdict(Counter)
    for delivery, outcome, _ in run.answers:
        outcomes[delivery.response.poll][outcome] += 1
    auditor, viewer = connect("demo_auditor"), run.viewer.connection.cursor()
    problems, lost = judge_answers(run.plan, run.answers), run.plan.lost()
    for poll, counts in file_counts.items():
        ledger, seen = read_ledger(auditor, poll), read_snapshot(viewer, poll)
        wrong = judge_poll(ledger, counts, seen, run.viewer.newest[poll])
        print_poll(poll, ledger, outcomes[poll], lost and lost.poll == poll, seen, wrong)
        problems += [f"{poll}: {part}: {text}" for part, text in wrong.items()]
    return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--choices", default="Yes,No")
    parser.add_argument("--name", help="what to call the file")
    parser.add_argument("file")
    options = parser.parse_args()
    name, choices = options.name or options.file, options.choices.split(",")

    responses = read_responses(options.file)
    polls, plan = polls_of(responses), make_plan(responses, choices)
    deliveries = sum(map(len, plan.streams))
    print(f"{name}: responses {len(responses)}, polls {len(polls)}, deliveries {deliveries},"
          f" clients {len(plan.streams)}")
    prepare_roles()
    admin, viewer = connect("demo_admin"), watcher.Watcher(polls)
    create_polls(admin, polls, choices)
    run = Run(plan, viewer)
    run.feed(admin)
    problems = report(run, recount(options.file, choices))
    print()
    if problems:
        raise Failure("; ".join(problems))
    print(f"demo passed: all {len(run.answers)} answers are as they must be, and tally, ledger, {name} and newest"
          " snapshot agree")


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", line_buffering=True)
    try:
        main()
    except (Failure, BadInput, OSError, psycopg2.Error) as error:
        sys.exit(f"demo FAILED: {error}")
