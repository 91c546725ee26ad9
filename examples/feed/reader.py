#!/usr/bin/python3
"""Copies the entries of a poll into a table of its own, each exactly once and every lane in order.

usage: reader.py DSN POLL [READER]

The reader's frontier and what it did with the entries are one transaction, so a crash loses both or neither. The
frontier is kept by advance_source, one row a lane: source is the reader's name, source_partition the lane and
next_offset the seq to go on with. It needs the rights of grant_auditor (the feed) and grant_submitter (the cursor), and a
schema in which it may make its table: CREATE SCHEMA reader AUTHORIZATION reader.
"""

import sys
import time

import psycopg2

ENTRIES_A_TIME = 500
IDLE_S = 0.1                    # or LISTEN on poll_tally.channel(poll), and look again once in a while

TABLE = """
    CREATE TABLE IF NOT EXISTS mirror (reader text, ord bigint GENERATED ALWAYS AS IDENTITY, event_id text, lane int,
                                       seq bigint, effect jsonb)"""


def read_frontier(cursor, reader):
    cursor.execute("SELECT source_partition, next_offset - 1 FROM poll_tally.sources WHERE source = %s", (reader,))
    seqs = dict(cursor.fetchall())
    return [seqs.get(lane, 0) for lane in range(max(seqs, default=-1) + 1)]


def apply(cursor, reader, entries):
    """The effects of the reader, in the transaction of its frontier: here, a copy."""
    cursor.executemany("INSERT INTO mirror (reader, event_id, lane, seq, effect) VALUES (%s, %s, %s, %s, %s)",
                       [(reader,) + entry for entry in entries])


def step(connection, poll, reader):
    """One transaction: what is behind the frontier, and the frontier behind that. Returns how many entries."""
    with connection, connection.cursor() as cursor:
        # One at a time: the backend of a reader that was killed may still be committing.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (reader,))
        cursor.execute("SELECT event_id, poll_tally.lane(position), poll_tally.seq(position), effect::jsonb::text"
                       " FROM poll_tally.events_after(%s, %s::bigint[], %s)",
                       (poll, read_frontier(cursor, reader), ENTRIES_A_TIME))
        entries = cursor.fetchall()
        apply(cursor, reader, entries)
        for lane, seq in {lane: seq for _, lane, seq, _ in entries}.items():
            cursor.execute("SELECT poll_tally.advance_source(%s, %s, %s)", (reader, lane, seq + 1))
    return len(entries)


def run(dsn, poll, reader="mirror"):
    connection = psycopg2.connect(dsn)
    with connection, connection.cursor() as cursor:
        cursor.execute(TABLE)
    while True:
        if step(connection, poll, reader) == 0:
            time.sleep(IDLE_S)


if __name__ == "__main__":
    run(*sys.argv[1:])
