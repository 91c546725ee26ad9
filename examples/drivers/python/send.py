#!/usr/bin/python3
"""Sends events to a poll with psycopg2, and gets each counted once, whatever is lost on the way.

usage: send.py POLL        the server is that of PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE

An event is made once, id and time included, and sent with the same content until there is an answer. When the answer
to a COMMIT is lost, nobody knows whether it happened; the retry knows: it gets `duplicate`, and the same receipt.
"""

import random
import sys
import time
import uuid
from datetime import datetime, timezone

import psycopg2
from psycopg2.extras import Json, RealDictCursor

TRIES = 8
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
TRANSACTION_LOST = ("40001", "40P01")   # serialization failure, deadlock
COUNTED = ("accepted", "duplicate")     # now, or by an earlier try; whatever else the outcome is, it is not

ACCEPT_EVENT = """
    SELECT * FROM poll_tally.accept_event(
        poll => %(poll)s, event_id => %(event_id)s, choice => %(choice)s, principal => %(principal)s,
        votes => %(votes)s, payload => %(payload)s, occurred_at => %(occurred_at)s)"""
# psycopg2 writes a list of Json as ARRAY['…'], which would be text[]: hence the cast.
ACCEPT_EVENTS = """
    SELECT * FROM poll_tally.accept_events(
        poll => %(poll)s, event_ids => %(event_ids)s, principals => %(principals)s, votes => %(votes)s::jsonb[],
        payloads => %(payloads)s::jsonb[], occurred_ats => %(occurred_ats)s)"""


class Refused(Exception):
    """An event is not counted."""

    def __init__(self, receipt):
        super().__init__("%(outcome)s: %(detail)s" % receipt)
        self.receipt = receipt


class Database:
    """One connection, made when it is needed, and made anew when it was lost."""

    def __init__(self):
        self.connection = None

    def transaction(self, work):
        """Commits work(cursor) and returns what it returned; after a lost transaction, all of it is done again."""
        for failures in range(1, TRIES + 1):
            try:
                if self.connection is None:
                    self.connection = psycopg2.connect("", cursor_factory=RealDictCursor)
                with self.connection, self.connection.cursor() as cursor:
                    result = work(cursor)
                return result
            except psycopg2.Error as error:
                if self.connection is None or self.connection.closed:
                    self.connection = None
                elif error.pgcode not in TRANSACTION_LOST:
                    raise
                if failures == TRIES:
                    raise
            # Full jitter: those who failed together do not come back together.
            time.sleep(random.uniform(0, min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (failures - 1))))

    def accept(self, event):
        """The receipt of an event that is counted, now or by an earlier try. Raises Refused."""
        def work(cursor):
            cursor.execute(ACCEPT_EVENT, event)
            receipt = cursor.fetchone()
            if receipt["outcome"] not in COUNTED:
                raise Refused(receipt)      # leaving by an exception rolls back what else the transaction did
            return receipt
        return self.transaction(work)

    def accept_all(self, poll, events):
        """One receipt an event, in their order. Each has its own outcome: look at every one."""
        columns = {name + "s": [event[name] for event in events] for name in ("event_id", "principal", "payload", "occurred_at")}

        def work(cursor):
            cursor.execute(ACCEPT_EVENTS, dict(columns, poll=poll, votes=[event["votes"] for event in events]))
            return cursor.fetchall()
        return self.transaction(work)


def event(poll, principal, choice=None, votes=None, payload=None):
    """choice, or votes: counts per choice. In a real system, the sender stores this before it sends it."""
    return {"poll": poll, "event_id": str(uuid.uuid4()), "principal": principal, "choice": choice,
            "votes": json(votes), "payload": json(payload), "occurred_at": datetime.now(timezone.utc)}


def json(value):
    """An empty list is a payload, too, and would be an empty array of PostgreSQL without Json."""
    return None if value is None else Json(value)


def counted_text(receipt):
    return "%(outcome)s at %(position)s, attempt %(attempt)s" % receipt


def refused_text(receipt):
    text = "refused, " + ("try later: " if receipt["retryable"] else "for good: ") + receipt["outcome"]
    text += " of " + ",".join(receipt["differs"]) if receipt["differs"] else ""
    return text + (" (" + receipt["detail"] + ")" if receipt["detail"] else "")


def main(poll):
    database = Database()

    def send(name, one):
        try:
            print(name + ": " + counted_text(database.accept(one)))
        except Refused as refused:
            print(name + ": " + refused_text(refused.receipt))

    ann = event(poll, "ann", choice="soup")
    bob = event(poll, "bob", votes={"soup": 2, "pasta": 1}, payload={"table": 7, "note": 'no "salt" \\ très chaud'})
    send("one choice", ann)
    send("the same again", ann)
    send("votes and payload", bob)
    send("other votes, same id", dict(bob, votes=Json({"pasta": 3})))
    send("unknown choice", event(poll, "cyd", choice="stew"))
    send("unknown poll", event("no-" + poll, "cyd", choice="soup"))
    dan = event(poll, "dan", votes={"salad": 1}, payload=[])
    eve = event(poll, "eve", votes={"salad": 4}, payload=['a "list"', None])
    batch = [dan, eve, dan, event(poll, "eve", votes={"salad": 11})]
    for receipt in database.accept_all(poll, batch):
        text = counted_text if receipt["outcome"] in COUNTED else refused_text
        print("batch %d: %s" % (receipt["ord"], text(receipt)))


if __name__ == "__main__":
    main(*sys.argv[1:])
