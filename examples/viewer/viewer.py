#!/usr/bin/python3
"""The reference viewer: shows the newest snapshot of a poll, whatever is lost on the way.

usage: viewer.py DSN POLL        prints a JSON line each time that its state changes

The client rule: another epoch replaces what we have, a lower revision is discarded, an equal one ignored, a higher one
replaces, and more than one higher counts as a gap. A message is a hint, since any role can send one: it tells that it
is worth asking, and the table tells what is true. It needs the rights of grant_viewer.
"""

import json
import select
import sys
import time

import psycopg2

ASK_S = 10                      # ask at least so often, should a connection be dead and not know it
RETRY_S = 0.2


class Viewer:
    def __init__(self, poll, ask):
        self.poll, self.ask = poll, ask         # ask(poll, epoch, revision) -> a snapshot, or None: ours is the newest
        self.epoch = self.revision = self.state = None
        self.gaps = 0

    def apply(self, state):
        """The client rule, for messages and snapshots; True when the state is another one now."""
        if state["epoch"] == self.epoch:
            if state["revision"] <= self.revision:
                return False
            self.gaps += state["revision"] > self.revision + 1
        self.epoch, self.revision, self.state = state["epoch"], state["revision"], state
        return True

    def resume(self):
        state = self.ask(self.poll, self.epoch, self.revision)
        return state is not None and self.apply(state)

    def hear(self, payload):
        """A message; keys that we do not know are ignored, and so is what is no message."""
        try:
            message = json.loads(payload)
            new = (message["pollId"], message["epoch"]) != (self.poll, self.epoch) or message["revision"] > self.revision
            return message["pollId"] == self.poll and new and self.resume()
        except (ValueError, TypeError, KeyError, RecursionError):
            return False


def watch(connection, viewer, show):
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute("SELECT format('LISTEN %%I', poll_tally.channel(%s))", (viewer.poll,))
        cursor.execute(cursor.fetchone()[0])
        # Listen first, then ask: what comes in between is heard.
        changed = viewer.resume()
        while True:
            if changed:
                show(viewer)
            if not connection.notifies and not any(select.select([connection], [], [], ASK_S)):
                changed = viewer.resume()
                continue
            connection.poll()
            changed = any([viewer.hear(connection.notifies.pop(0).payload) for _ in list(connection.notifies)])


def snapshot(connection, *known):
    with connection.cursor() as cursor:
        cursor.execute("SELECT epoch, revision, included_position, counts::jsonb, total, final"
                       " FROM poll_tally.snapshot(%s, %s, %s)", known)
        row = cursor.fetchone()
    return row and dict(zip(("epoch", "revision", "includedPosition", "counts", "total", "final"), row))


def run(dsn, poll):
    def show(viewer):
        print(json.dumps(dict(viewer.state, gaps=viewer.gaps)), flush=True)

    viewer = Viewer(poll, None)
    while True:
        try:
            connection = psycopg2.connect(dsn)
            viewer.ask = lambda *known: snapshot(connection, *known)
            watch(connection, viewer, show)
        except (psycopg2.OperationalError, psycopg2.InterfaceError):
            time.sleep(RETRY_S)


if __name__ == "__main__":
    run(*sys.argv[1:])
