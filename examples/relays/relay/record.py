"""A record: one message as a queue delivered it, with what became of it so far.

Invariant: a record that is finished is in the ledger or among the dead letters, durably. Nothing else may be
acknowledged.
"""

import json
import re

REQUIRED = ("poll", "event_id")
STRINGS = REQUIRED + ("choice", "principal", "occurred_at")
MEMBERS = frozenset(STRINGS + ("votes", "payload"))
# The same instant whenever and wherever it is read: "now" would be another time in each delivery, and so a conflict.
INSTANT = re.compile(r"\d{4,6}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.]\d+)?)?(Z|[+-]\d\d(:?\d\d)?)", re.ASCII)
MOST_DETAIL = 1000              # characters; an error can quote the whole message, and not every queue has room for it


class Invalid(Exception):
    """The body is no event; the text says why."""


class Record:
    """offset is the source coordinate, None where the queue has none. handle is the adapter's own."""

    __slots__ = ("partition", "position", "offset", "body", "handle", "poll", "reason", "detail", "finished", "tries",
                 "failing_since", "in_doubt", "received_at")

    def __init__(self, partition, position, offset, body, handle=None):
        self.partition, self.position, self.offset = partition, position, offset
        self.body, self.handle = body, handle
        self.poll = None
        self.reason = self.detail = None        # set: to be dead-lettered
        self.finished = False
        self.tries = 0
        self.failing_since = None               # when the database first failed it
        self.in_doubt = False                   # its COMMIT was sent, and no answer came
        self.received_at = None

    def refuse(self, reason, detail):
        self.reason, self.detail = reason, (detail or "")[:MOST_DETAIL]

    def read(self):
        """Look into the body; a body that is no event is refused."""
        if self.reason is not None:
            return
        try:
            self.poll = read_event(self.body)["poll"]
        except Invalid as error:
            self.refuse("invalid_message", str(error))


def unique_members(pairs):
    members = dict(pairs)
    if len(members) != len(pairs):
        raise Invalid("a member is repeated")
    return members


def no_constant(name):
    raise Invalid("%s is no JSON" % name)


def read_event(body):
    """The members of an event. Numbers are not looked at: the database reads the body itself, so nothing is rounded."""
    try:
        event = json.loads(body.decode("utf-8"), object_pairs_hook=unique_members, parse_constant=no_constant,
                           parse_int=lambda digits: 0, parse_float=lambda digits: 0.0)
    except UnicodeDecodeError:
        raise Invalid("the body is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise Invalid("the body is no JSON: %s" % error) from None
    if not isinstance(event, dict):
        raise Invalid("the body is no JSON object")
    for name in REQUIRED:
        if event.get(name) is None:
            raise Invalid("the member %s is missing" % name)
    for name in event:
        if name not in MEMBERS:
            raise Invalid("there is no member %s" % ascii(name))
        if name in STRINGS and not isinstance(event[name], (str, type(None))):
            raise Invalid("the member %s is no string" % name)
    if event.get("occurred_at") is not None and not INSTANT.fullmatch(event["occurred_at"]):
        raise Invalid("the member occurred_at is no date and time with a zone, such as 2026-11-30T12:00:00Z")
    return event


def letter_of(source, record):
    """What a dead letter says besides the message itself. Its id is the same however often it is written."""
    place = source if record.partition is None else "%s/%s" % (source, record.partition)
    return {"id": "%s/%s" % (place, record.position), "reason": record.reason, "detail": record.detail or "",
            "tries": str(record.tries)}
