"""What the clients of a random history do: a pure function of the seed, of nothing that the server says.

usage: history_plan.py SEED CLIENTS STEPS CLIENT        one digest a step of that client, to be held against its log

Event number k has one content, whoever sends it: so clients that draw the same number send twins. They draw from a
window that moves with their step. Polls come in generations, each with one poll of every kind; a generation's polls
are closed while the last of its events are sent.
"""

import collections
import functools
import hashlib
import json
import random
import sys

# kind -> arguments of create_poll; choices are red, green and blue, but for a counter's
KINDS = collections.OrderedDict((
    ("once", "counting => 'once'"),
    ("ordered", "counting => 'once', max_lanes => 1"),
    ("latest", "counting => 'latest'"),
    ("single", "counting => 'latest', max_lanes => 1"),
    ("every", "counting => 'every'"),
    ("twice", "counting => 'every', max_attempts => 2"),
    ("limited", "counting => 'every', max_count => %(limit)d"),
    ("counter", None),
))
CHOICES = ("red", "green", "blue")
KEYS = ["key-%d" % number for number in range(12)]
NEW_PER_STEP = 0.6              # event numbers that the window moves by, a client and step
WIDTH = 3                       # half of the window, in event numbers a client
GENERATIONS = 3.0
ALONE = 0.4                     # share of the transactions that are one operation without BEGIN

Event = collections.namedtuple("Event", "number poll id votes principal payload occurred source")
Retraction = collections.namedtuple("Retraction", "poll event_id id reason again")


def tally_text(votes):
    """The text form that the type gives: keys sorted, zeros dropped."""
    return json.dumps({key: votes[key] for key in sorted(votes) if votes[key]})


class World:
    """All events and polls of a seed."""

    def __init__(self, seed, clients, steps):
        self.seed, self.clients, self.steps = seed, clients, steps
        self.rate = clients * NEW_PER_STEP
        self.last = int(steps * self.rate)
        self.span = max(50, int(self.last / GENERATIONS) + 1)
        self.limit = self.span // 80 + 5
        # the cache may hold a window's events, no more
        self.event = functools.lru_cache(maxsize=20000)(self.make_event)

    def polls(self):
        for generation in range(self.last // self.span + 1):
            for kind, rules in KINDS.items():
                yield "%s-%d" % (kind, generation), None if rules is None else rules % {"limit": self.limit}

    def votes(self, rng, kind):
        if kind != "counter":
            return {rng.choice(CHOICES): 1}
        return {key: rng.choice((-3, -1, 1, 2, 5, 1000)) for key in rng.sample(KEYS, rng.randint(1, 5))}

    def make_event(self, number):
        rng = random.Random("event %d %d" % (self.seed, number))
        generation = number // self.span
        kind = rng.choice(list(KINDS))
        nobody = kind in ("every", "counter", "limited") and rng.random() < 0.7
        principal = None if nobody else "p%d-%d" % (generation, rng.randrange(self.span // 4 + 2))
        payload = '{"a": %d, "b": "x%d"}' % (number, number % 7) if rng.random() < 0.3 else None
        occurred = "2026-01-%02dT%02d:00:00+00" % (1 + number % 28, number % 24) if rng.random() < 0.2 else None
        # Two of ten have a source coordinate, and it is the same one.
        offset = number - number % 10 if number % 10 < 2 else None
        poll = "nowhere" if rng.random() < 0.003 else "%s-%d" % (kind, generation)
        votes = self.votes(rng, kind)
        if kind != "counter" and rng.random() < 0.01:
            votes = {"violet": 1}
        return Event(number, poll, "e%d-%d" % (self.seed, number), votes, principal, payload, occurred, offset)

    def altered(self, event, rng):
        """The same id with other content."""
        field = rng.choice(("votes", "principal", "payload", "occurred", "several"))
        if field in ("votes", "several"):
            others = [choice for choice in (KEYS if event.poll.startswith("counter") else CHOICES) if choice not in event.votes]
            event = event._replace(votes={rng.choice(others): 1})
        if field in ("principal", "several"):
            event = event._replace(principal="other-%d" % rng.randrange(5))
        if field == "payload":
            event = event._replace(payload='{"a": -%d}' % rng.randint(1, 9))
        if field == "occurred":
            event = event._replace(occurred="2025-12-31T00:00:00+00")
        return event

    def retraction(self, number, version):
        """Version 0 and 1 are two retractions of one event."""
        event = self.event(number)
        rng = random.Random("retraction %d %d %d" % (self.seed, number, version))
        return Retraction(event.poll, event.id, "r%d-%d-%d" % (self.seed, number, version),
                          rng.choice((None, "sent in error")), rng.random() < 0.7)


class Plan:
    """One client's transactions, step by step."""

    def __init__(self, world, client):
        self.world, self.client = world, client
        self.rng = random.Random("client %d %d" % (world.seed, client))
        self.recent = collections.deque(maxlen=30)
        # Of a hundred: so many that a poll is closed about three times, and not while its generation has hardly begun.
        self.close_weight = min(3.0, 24 * GENERATIONS / (world.clients * world.steps * ALONE) * 100)

    def number(self, step):
        """An event number out of the window, or one of our own of late."""
        rng, world = self.rng, self.world
        if self.recent and rng.random() < 0.15:
            return rng.choice(self.recent)
        centre, half = step * world.rate, WIDTH * world.clients
        number = min(max(int(centre + rng.randint(-half, half)), 0), world.last)
        self.recent.append(number)
        return number

    def operation(self, step):
        rng, world = self.rng, self.world
        kind = rng.choices(("accept", "raise", "altered", "retract"), (60, 10, 10, 12))[0]
        event = world.event(self.number(step))
        if kind == "retract":
            retraction = world.retraction(event.number, int(rng.random() < 0.15))
            if rng.random() < 0.08:
                retraction = retraction._replace(reason="another reason")
            return ("retract", retraction)
        if kind == "altered":
            event = world.altered(event, rng)
        return ("raise" if kind == "raise" else "accept", event)

    def batch(self, step):
        """Numbers in random order, some twice; all of one source, or of none."""
        rng, world = self.rng, self.world
        events = [world.event(self.number(step)) for _ in range(rng.randint(2, 25))]
        if rng.random() < 0.3:
            position = rng.randrange(len(events))
            events[position] = world.altered(events[position], rng)
        return ("whole" if rng.random() < 0.15 else "batch", [event._replace(source=None) for event in events])

    def poll_of_late(self, step):
        """A poll of the last generation, now and then of this one."""
        rng, world = self.rng, self.world
        generation = int(step * world.rate) // world.span
        if rng.random() < 0.9:
            generation -= 1
        return "%s-%d" % (rng.choice(list(KINDS)), max(generation, 0)), generation >= 0

    def alone(self, step):
        """What runs in a transaction of its own, without BEGIN."""
        rng = self.rng
        kind = rng.choices(("event", "batch", "publish", "look", "close"), (50, 30, 8, 10, self.close_weight))[0]
        if kind == "event":
            return self.operation(step)
        if kind == "batch":
            return self.batch(step)
        poll, may_close = self.poll_of_late(step)
        if kind == "close" and not may_close:
            kind = "publish"
        return (kind, poll)

    def group(self, step, depth):
        """Operations, with savepoints around some of them; a savepoint is released or rolled back to."""
        rng, steps = self.rng, []
        for _ in range(rng.randint(1, 4)):
            if depth < 3 and rng.random() < 0.25:
                steps.append(("savepoint", rng.random() < 0.5, self.group(step, depth + 1)))
            else:
                steps.append(self.operation(step))
        return steps

    def transaction(self, step):
        """(level, timeout in ms or None, operations, end); level None: one operation without BEGIN."""
        rng = self.rng
        if rng.random() < ALONE:
            return (None, None, [self.alone(step)], None)
        level = rng.choices(("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"), (60, 20, 20))[0]
        timeout = rng.randint(1, 12) if rng.random() < 0.06 else None
        operations = [self.batch(step)] if rng.random() < 0.2 else self.group(step, 0)
        if rng.random() < 0.1:
            operations.append(("look", self.poll_of_late(step)[0]))
        end = rng.choices(("commit", "rollback", "two-phase", "two-phase-back", "two-phase-later"), (74, 8, 10, 4, 4))[0]
        return (level, timeout, operations, end)


def digest(transaction):
    return hashlib.md5(repr(transaction).encode()).hexdigest()[:12]


def main(seed, clients, steps, client):
    plan = Plan(World(seed, clients, steps), client)
    for step in range(steps):
        print(digest(plan.transaction(step)))


if __name__ == "__main__":
    main(*[int(argument) for argument in sys.argv[1:5]])
