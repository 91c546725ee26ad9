"""The LISTENing viewer: applies each published revision by the client rule and prints it as it arrives.

Another epoch replaces what it has, a lower revision is discarded, an equal one ignored, a higher one replaces; more
than one higher counts as a gap.
"""

import json
import time

import psycopg2

ROLE = "demo_viewer"


class Watcher:
    def __init__(self, polls):
        self.newest = {}  # poll -> its newest message
        self.gaps = 0
        self.started = time.monotonic()
        self.width = max(map(len, polls))
        self.connection = psycopg2.connect(dbname="postgres", user=ROLE, application_name="demo viewer")
        self.connection.autocommit = True
        self.connection.cursor().execute("LISTEN poll_tally")

    def fileno(self):
        return self.connection.fileno()

    def receive(self):
        """Takes what has arrived; called when the connection is readable."""
        self.connection.poll()
        while self.connection.notifies:
            self._apply(json.loads(self.connection.notifies.pop(0).payload))

    def _apply(self, message):
        known = self.newest.get(message["pollId"])
        if known and known["epoch"] == message["epoch"]:
            if message["revision"] <= known["revision"]:
                return
            self.gaps += message["revision"] > known["revision"] + 1
        self.newest[message["pollId"]] = message
        counts = "  ".join(f"{choice} {count}" for choice, count in message["counts"].items())
        print(f"{time.monotonic() - self.started:6.2f}s  {message['pollId']:{self.width}}"
              f"  revision {message['revision']:3}  position {message['includedPosition']:5}  {counts}")

    def position(self, poll):
        """How many ledger entries the newest snapshot of the poll holds, as far as was heard."""
        return self.newest.get(poll, {}).get("includedPosition", 0)
