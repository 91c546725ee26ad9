"""An exam's last two minutes: 2,000 hand-ins of 100 kB each against a deadline, as a worked and checked example.

usage: exam.py [--poll NAME] [--seed NUMBER] DSN

DSN names a database that has the extension poll_tally, and a superuser of it; nothing else is needed. Four roles are
made and dropped again; the poll stays. What is handed in is one event: the attempt key is its id, the student its
principal, the answers its payload. Every second hand-in is sent twice, some come after the deadline, and some come
again with other answers.

Prints a line a check, "ok" or "WRONG". Exit status 0 only if all are ok.
"""

import argparse
import contextlib
import multiprocessing
import sys
import time

import psycopg2

import client
from judge import Judge
from plan import CLIENTS, WINDOW_S, Plan

ROLES = ("submitter", "viewer", "auditor", "admin")
PROCESSES = multiprocessing.get_context("fork")


def role_of(kind):
    return f"exam_{kind}"


@contextlib.contextmanager
def roles(dsn):
    """The four roles, each with the one grant of its kind; dropped at the end."""
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    cursor = connection.cursor()
    for kind in ROLES:
        cursor.execute(f"CREATE ROLE {role_of(kind)}")
        cursor.execute(f"SELECT poll_tally.grant_{kind}(%s)", (role_of(kind),))
    try:
        yield
    finally:
        for kind in ROLES:
            cursor.execute("SELECT poll_tally.revoke_from(%s)", (role_of(kind),))
            cursor.execute(f"DROP ROLE {role_of(kind)}")


def clock_difference(cursor):
    """(server's clock minus ours, how wrong that can be), in seconds."""
    best = None
    for _ in range(20):
        before = time.time()
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        server, after = cursor.fetchone()[0], time.time()
        if best is None or after - before < best[1] * 2:
            best = (server - (before + after) / 2, (after - before) / 2)
    return best


def create_exam(admin, poll, plan):
    """The exam is restricted to its students and lasts for another hour."""
    admin.execute("SELECT poll_tally.create_poll(%s, '{handed-in}', title => 'Final exam', restricted => true,"
                  " closes_at => clock_timestamp() + interval '1 hour')", (poll,))
    admin.execute("SELECT poll_tally.set_eligible(%s, %s)", (poll, plan.students))


def start_clients(dsn, poll, plan):
    pipes = []
    for stream in plan.streams:
        here, there = PROCESSES.Pipe()
        PROCESSES.Process(target=client.run, args=(there, dsn, role_of("submitter"), poll, plan, stream),
                          daemon=True).start()
        there.close()
        pipes.append(here)
    return pipes


def hear(pipe):
    message = pipe.recv()
    if isinstance(message, str) and message != "ready":
        raise SystemExit(f"exam FAILED: a client says {message}")
    return message


def run_exam(admin, poll, plan, pipes, difference):
    """Moves the deadline close, lets the clients go, and returns (deadline as the server has it, all answers)."""
    for pipe in pipes:
        hear(pipe)
    admin.execute("SELECT poll_tally.alter_poll(%s, closes_at => clock_timestamp() + make_interval(secs => %s))",
                  (poll, WINDOW_S + 0.5))
    admin.execute("SELECT closes_at FROM poll_tally.polls WHERE poll = %s", (poll,))
    closes_at = admin.fetchone()[0]
    for pipe in pipes:
        pipe.send(closes_at.timestamp() - difference)
    return closes_at, [answer for pipe in pipes for answer in hear(pipe)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--poll", default="exam")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("dsn")
    options = parser.parse_args()
    plan = Plan(options.seed)
    with roles(options.dsn):
        cursors = {kind: client.connect(options.dsn, role_of(kind)) for kind in ROLES}
        difference, tolerance = clock_difference(cursors["admin"])
        create_exam(cursors["admin"], options.poll, plan)
        pipes = start_clients(options.dsn, options.poll, plan)
        print(f"{sum(map(len, plan.streams))} sends through {CLIENTS} clients, seed {options.seed};"
              f" the deadline is in {WINDOW_S} s")
        closes_at, answers = run_exam(cursors["admin"], options.poll, plan, pipes, difference)
        judge = Judge(options.poll, plan, closes_at, difference, tolerance + 0.001, answers)
        judge.all(cursors)
        for cursor in cursors.values():
            cursor.connection.close()
    print()
    if judge.wrong:
        raise SystemExit(f"exam FAILED: {judge.wrong} checks are wrong")
    print(f"exam passed; remove it with: SELECT poll_tally.drop_poll('{options.poll}')")


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", line_buffering=True)
    try:
        main()
    except psycopg2.Error as error:
        sys.exit(f"exam FAILED: {error}")
