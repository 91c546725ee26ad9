#!/usr/bin/python3
"""What publication costs; prints figures and judges nothing.

usage: publication.py DSN [POLLS MOVING LISTENERS SECONDS]

Of the server behind DSN, with poll_tally preloaded and room for the listeners among max_connections; as a superuser, on
the server's own machine, in a database of its own that has no extension yet. bench/publication starts such a server.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import psycopg2

TICK = os.sysconf("SC_CLK_TCK")
ROUND_S = 3                     # of a throughput measurement
ROUNDS = 10                     # with and without listeners, in turn
VOTERS = 2
STEPS = 10                      # a second: the moving polls are spread over it


def connect(dsn):
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    return connection.cursor()


def say(text):
    print(text, flush=True)


def value(cursor, sql, *arguments):
    cursor.execute(sql, arguments)
    return cursor.fetchone()[0]


def cpu_s(pid):
    with open("/proc/%d/stat" % pid, encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def until(cursor, sql, deadline_s=120):
    end = time.monotonic() + deadline_s
    while not value(cursor, sql):
        if time.monotonic() > end:
            raise RuntimeError("not true after %s s: %s" % (deadline_s, sql))
        time.sleep(0.1)


def workers(cursor):
    cursor.execute("SELECT kind, pid FROM poll_tally.workers WHERE kind = 'launcher' OR database = current_database()")
    return dict(cursor.fetchall())


def load(cursor, seconds):
    """Share of a core that each worker takes, in percent."""
    pids = workers(cursor)
    before, start = {kind: cpu_s(pid) for kind, pid in pids.items()}, time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - start
    return {kind: 100 * (cpu_s(pid) - before[kind]) / elapsed for kind, pid in pids.items()}


def idle_polls(cursor, count, seconds):
    cursor.execute("SELECT count(poll_tally.create_poll('idle-' || g, '{a,b}', counting => 'every'))"
                   " FROM generate_series(1, %s) AS g", (count,))
    for first in range(1, count + 1, 500):
        cursor.execute("SELECT count(*) FROM generate_series(%s, %s) AS g,"
                       " poll_tally.accept_event('idle-' || g, 'idle-' || g, 'a')", (first, min(first + 499, count)))
    start = time.monotonic()
    until(cursor, "SELECT sum(gap) = 0 FROM poll_tally.lag")
    say("%d polls moved at once: all published after %.1f s" % (count, time.monotonic() - start))
    cursor.execute("VACUUM ANALYZE")
    shares = load(cursor, seconds)
    say("%d idle polls, over %d s: publisher %.2f %% of a core, launcher %.2f %%"
        % (count, seconds, shares["publisher"], shares["launcher"]))
    cursor.execute("SELECT poll_tally.create_poll('one', '{a}', counting => 'every')")
    stop = threading.Event()

    def move(dsn=cursor.connection.dsn):
        own = connect(dsn)
        while not stop.wait(1):
            own.execute("SELECT poll_tally.accept_event('one', gen_random_uuid()::text, 'a')")

    mover = threading.Thread(target=move)
    mover.start()
    shares = load(cursor, seconds / 3)
    stop.set()
    mover.join()
    say("the same beside one poll that moves each second: publisher %.2f %%" % shares["publisher"])


def moving_polls(cursor, count, seconds):
    cursor.execute("SELECT count(poll_tally.create_poll('moving-' || g, '{a,b}', counting => 'every', max_lanes => 1,"
                   " publish_every => '1 second')) FROM generate_series(1, %s) AS g", (count,))
    polls = ["moving-%d" % number for number in range(1, count + 1)]
    pid = workers(cursor)["publisher"]
    start, before, behind = time.monotonic(), cpu_s(pid), 0
    for step in range(seconds * STEPS):
        part = polls[step % STEPS::STEPS]
        cursor.execute("SELECT count(*) FROM poll_tally.accept_events(NULL, %s, array_fill('a'::text, ARRAY[%s]), polls => %s)",
                       (["%s/%d" % (poll, step) for poll in part], len(part), part))
        wait = start + (step + 1) / STEPS - time.monotonic()
        behind = max(behind, -wait)
        time.sleep(max(0, wait))
    share = 100 * (cpu_s(pid) - before) / (time.monotonic() - start)
    until(cursor, "SELECT sum(gap) = 0 FROM poll_tally.lag")
    cursor.execute("""
        SELECT count(*), percentile_cont(ARRAY[0.5, 0.95, 0.99, 1]) WITHIN GROUP (ORDER BY a.age)
        FROM (SELECT extract(epoch FROM (
                  SELECT s.published_at FROM poll_tally.snapshots AS s
                  WHERE s.poll = e.poll AND s.included_position >= poll_tally.seq(e.position)
                  ORDER BY s.revision LIMIT 1) - e.accepted_at) AS age
              FROM poll_tally.events AS e WHERE e.poll LIKE 'moving-%%') AS a""")
    events, (median, most, nearly, oldest) = cursor.fetchone()
    say("%d polls that move each second, over %d s: age of %d events at publication: median %.2f s, 95 %% %.2f s,"
        " 99 %% %.2f s, oldest %.2f s; publisher %.0f %% of a core; the mover was at most %.2f s behind"
        % (count, seconds, events, median, most, nearly, oldest, share, behind))


def throughput(dsn, script):
    output = subprocess.run(["pgbench", "-n", "-c", str(VOTERS), "-j", "1", "-T", str(ROUND_S), "-f", script, dsn],
                            check=True, capture_output=True, text=True).stdout
    return float(output.split("tps = ")[1].split()[0])


def listeners(cursor, dsn, count):
    """They listen and read nothing: what is measured is the sessions that vote, not programs on the same machine."""
    cursor.execute("SELECT poll_tally.create_poll('show', '{a,b}', counting => 'every', publish_every => '1 second')")
    without, with_them = [], []
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write("SELECT outcome FROM poll_tally.accept_event('show', gen_random_uuid()::text, 'a');\n")
        script.flush()
        throughput(dsn, script.name)            # warms up
        for _ in range(ROUNDS):
            without.append(throughput(dsn, script.name))
            audience = [connect(dsn) for _ in range(count)]
            for one in audience:
                one.execute("LISTEN poll_tally")
            with_them.append(throughput(dsn, script.name))
            for one in audience:
                one.connection.close()
    change = [100 * (right / left - 1) for left, right in zip(without, with_them)]
    say("accept_event through %d connections, %d pairs of rounds of %d s: median %.0f a second, with %d idle listeners %.0f;"
        " the change of a pair: median %+.1f %%, from %+.1f to %+.1f %%"
        % (VOTERS, ROUNDS, ROUND_S, statistics.median(without), count, statistics.median(with_them),
           statistics.median(change), min(change), max(change)))


def run(dsn, polls=10000, moving=1000, audience=500, seconds=30):
    cursor = connect(dsn)
    cursor.execute("CREATE EXTENSION poll_tally")
    until(cursor, "SELECT count(*) = 2 FROM poll_tally.workers WHERE pid IS NOT NULL")
    listeners(cursor, dsn, int(audience))
    moving_polls(cursor, int(moving), int(seconds))
    idle_polls(cursor, int(polls), int(seconds))


if __name__ == "__main__":
    run(*sys.argv[1:])
