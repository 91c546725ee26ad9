"""A record: one message as a queue delivered it, with what became of it so far.

Invariant: a record that is finished is in the ledger or among the dead letters, durably. Nothing else may be
acknowledged.
"""

import json

REQUIRED = ("poll", "event_id")
STRINGS = REQUIRED + ("choice", "principal", "occurred_at")
MEMBERS = frozenset(STRINGS + ("votes", "payload"))


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
        self.reason, self.detail = reason, detail

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
    return event


def letter_of(source, record):
    """What a dead letter says besides the message itself. Its id is the same however often it is written."""
    place = source if record.partition is None else "%s/%s" % (source, record.partition)
    return {"id": "%s/%s" % (place, record.position), "reason": record.reason, "detail": record.detail or "",
            "tries": str(record.tries)}
