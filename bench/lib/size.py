"""Scenarios of space: 13, what an event takes on disk, and 17, what a session takes of memory."""

import contextlib
import threading

from lib.measure import BATCH, Batches, Pgbench
from lib.place import connect
from lib.rows import bound_row, row

OURS = ("poll_tally.ledger", "poll_tally.lane", "poll_tally.lane_count")
USUAL = ("usual.event", "usual.count")
PREPARED = """
PREPARE of_these(int, int, text) AS
SELECT count(*) FROM poll_tally.accept_events('1',
    (SELECT array_agg($3 || g ORDER BY g) FROM generate_series($1, $2) AS g),
    (SELECT array_agg((g % 2)::text ORDER BY g) FROM generate_series($1, $2) AS g),
    payloads => (SELECT array_agg(jsonb_build_object('device', 'phone', 'ms', g) ORDER BY g)
                 FROM generate_series($1, $2) AS g)) AS a
WHERE a.outcome = 'accepted'"""
CALLS = """
DO $$
BEGIN
    FOR n IN {first}..{last} LOOP
        PERFORM poll_tally.accept_event('1', 'call-' || n, (n % 2)::text);
        COMMIT;
    END LOOP;
END
$$"""


def size(database, tables):
    return database.value("SELECT sum(pg_total_relation_size(t::regclass)) FROM unnest(%s) AS t", list(tables))


def bytes_of_event(database, contender, tables, warm, measured):
    """(WAL, tables) in bytes an event; the first events make the first pages, and are not measured."""
    warm(0)
    database.run("ANALYZE")
    sent, wal = database.sent[contender.side], database.value("SELECT pg_current_wal_insert_lsn()")
    before = size(database, tables)
    measured(0)
    count = database.sent[contender.side] - sent
    return (float(database.value("SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", wal)) / count,
            float(size(database, tables) - before) / count)


def bytes_on_disk(place, _):
    """13: WAL and table bytes (with indexes) of an event.

    The disk takes no time, which changes no byte. Vacuum is off: it would add WAL to whichever side it meets. One
    client: where several wait to extend a table, the server extends it by many pages at once.
    """
    polls, calls, batches = place.form.pick((20, 200, 2), (1000, 6000, 20), (1000, 40000, 100))
    rows = []
    with place.setting("autovacuum", "off"):
        with place.database("13", disk_us=0) as database:
            database.make_polls(polls)
            found = {side: bytes_of_event(
                database, Pgbench(database, side, script, 1, polls=polls), tables,
                Pgbench(database, side, script, 1, transactions=calls // 2, polls=polls),
                Pgbench(database, side, script, 1, transactions=calls, polls=polls))
                for side, script, tables in (("ours", "ours/single.sql", OURS), ("usual", "peers/usual_single.sql", USUAL))}
        rows += rows_of_bytes(found, "single calls, %d polls" % polls, 0.85)
        with place.database("13", disk_us=0) as database:
            database.make_polls(1)
            found = {side: bytes_of_event(
                database, Batches(database, side, script), tables,
                Batches(database, side, script, batches=batches // 2), Batches(database, side, script, batches=batches))
                for side, script, tables in (("ours", "ours/batch_one.sql", OURS), ("usual", "peers/usual_batch.sql", USUAL))}
        rows += rows_of_bytes(found, "batches of %d, one poll" % BATCH, 0.75)
    return rows


def rows_of_bytes(found, what, target):
    return [row(13, "%s of an event, %s" % (kind, what), "bytes", [found["ours"][place]], [found["usual"][place]], target,
                sense="at most", peer_name="the usual SQL") for place, kind in enumerate(("WAL", "tables and indexes"))]


def private_mb(pid):
    """Memory of a process that it shares with no other."""
    with open("/proc/%d/status" % pid, encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon:")) / 1024


@contextlib.contextmanager
def watched(pid, seen):
    """Fills seen with the memory of pid, looked at all the time."""
    stop = threading.Event()

    def watch():
        while not stop.wait(0.001):
            seen.append(private_mb(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()


def session_mb(database, calls):
    """Memory of a session after a tenth of the calls and after all, each in a transaction of its own."""
    with contextlib.closing(connect(database.place.host, database.port, database.name)) as connection:
        cursor = connection.cursor()
        # How long a commit takes is of no matter here.
        cursor.execute("SET synchronous_commit = off")
        # In parts: a DO block keeps memory of its own for each COMMIT, whatever it calls, until it ends.
        part = calls // 100
        for first in range(1, calls + 1, part):
            cursor.execute(CALLS.format(first=first, last=first + part - 1))
            if first + part - 1 == calls // 10:
                few = private_mb(connection.get_backend_pid())
        database.sent["ours"] += calls
        return few, private_mb(connection.get_backend_pid())


def batch_mb(database, events):
    """What a session takes more for a batch than before, its arguments included."""
    seen = []
    with contextlib.closing(connect(database.place.host, database.port, database.name)) as connection:
        cursor, pid = connection.cursor(), connection.get_backend_pid()

        def send(count, prefix):
            cursor.execute("EXECUTE of_these(1, %s, %s)", (count, prefix))
            database.sent["ours"] += cursor.fetchone()[0]

        cursor.execute(PREPARED)
        # What a session takes once, for its caches, is not of the batch.
        send(1, "first-")
        before = private_mb(pid)
        with watched(pid, seen):
            for number in range(3):
                send(events, "large-%d-" % number)
    return max(seen) - before


def memory(place, _):
    """17: memory of a session that goes on and on, and of a large batch."""
    calls, events = place.form.pick((2000, 2000), (50000, 10000), (1000000, 10000))
    with place.database("17") as database:
        database.make_polls(1)
        few, many = session_mb(database, calls)
        batch = batch_mb(database, events)
    return [row(17, "memory of a session after %s calls" % format(calls, ","), "MB", [many], [few], 1.05, sense="at most",
                peer_name="the same after %s" % format(calls // 10, ",")),
            bound_row(17, "memory of a batch of %s" % format(events, ","), "MB", [batch], 64)]
