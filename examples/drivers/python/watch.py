#!/usr/bin/python3
"""Watches a poll with psycopg2: prints each state that it sees, and ends with the final one.

usage: watch.py POLL        the server is that of PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE

Any role can send on a channel and any message can be lost, so a notification only says that it is worth asking;
snapshot() tells what is true, after a notification as after a lost connection.
"""

import random
import select
import sys
import time

import psycopg2
from psycopg2.extras import RealDictCursor

ASK_S = 10                      # ask at least so often, should the connection be dead and not know it
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
CONNECTION_LOST = ("08", "57P")     # or no SQLSTATE at all

SNAPSHOT = "SELECT * FROM poll_tally.snapshot(poll => %s, epoch => %s, after_revision => %s)"


class Watcher:
    def __init__(self, poll):
        self.poll, self.epoch, self.revision, self.gaps, self.final = poll, None, None, 0, False
        self.failures = 0

    def apply(self, snapshot):
        """The client rule. True when there is another state to show."""
        if snapshot["epoch"] == self.epoch:
            if snapshot["revision"] <= self.revision:
                return False    # lower: late; equal: known
            if snapshot["revision"] > self.revision + 1:
                self.gaps += 1  # counts are complete each time, so a gap is no loss
        self.epoch, self.revision, self.final = snapshot["epoch"], snapshot["revision"], snapshot["final"]
        return True

    def ask(self, cursor):
        cursor.execute(SNAPSHOT, (self.poll, self.epoch, self.revision))
        snapshot = cursor.fetchone()    # no row: we have the newest
        if snapshot is not None and self.apply(snapshot):
            print("revision {revision}, position {included_position}: {counts}, total {total}{end}, gaps {gaps}".format(
                **snapshot, gaps=self.gaps, end=", final" if self.final else ""), flush=True)
        self.failures = 0

    def follow(self, connection):
        """Until the final snapshot; raises when the connection is lost."""
        connection.autocommit = True    # a transaction that stays open hears nothing
        with connection.cursor(cursor_factory=RealDictCursor) as cursor:
            cursor.execute("SELECT poll_tally.channel(%s)", (self.poll,))
            cursor.execute("LISTEN " + cursor.fetchone()["channel"])    # a name that needs no quoting
            # Listen first, then ask: what is published in between is heard.
            self.ask(cursor)
            while not self.final:
                if not connection.notifies:
                    select.select([connection], [], [], ASK_S)
                    connection.poll()
                connection.notifies.clear()     # one question answers all of them
                self.ask(cursor)

    def run(self):
        while not self.final:
            try:
                self.follow(psycopg2.connect(""))
            except psycopg2.Error as error:
                if error.pgcode is not None and not error.pgcode.startswith(CONNECTION_LOST):
                    raise
                print("watch: " + str(error).strip(), file=sys.stderr)
                self.failures = min(self.failures + 1, 10)
                time.sleep(random.uniform(0, min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (self.failures - 1))))


if __name__ == "__main__":
    Watcher(*sys.argv[1:]).run()
