"""Every pair of reasons of DESIGN section 4 that can hold at once: the earlier row must win.

usage: pairs.py DSN

A reason is a change to a world: to the poll's rules, to what happens before the call (events that are there, then
settings), and to the call. Each reason is tried alone, so that it is known to hold, and then with every reason of
another row. A pair that cannot hold is listed with why; every other pair is run. Each run is a transaction of its own
that is rolled back.
"""

import itertools
import json
import sys

import psycopg2

CALL = """
    SELECT a.outcome::text FROM poll_tally.accept_event(%(poll)s, %(event_id)s, %(choice)s, %(principal)s,
        %(votes)s, %(payload)s, %(source)s, %(source_partition)s, %(source_offset)s, %(occurred_at)s) AS a"""
NO_SOURCE = {"source": None, "source_partition": None, "source_offset": None}
EVENT = dict(NO_SOURCE, poll="pairs", event_id="event", choice=None, principal="ann", votes={"a": 1}, payload={"n": 1},
             occurred_at=None)
SAME = object()


class World:
    """A poll of many rules that the call fulfils; reasons spoil it."""

    def __init__(self, cursor):
        self.cursor = cursor
        self.rules = {"counting": "every", "max_choices": 2, "max_attempts": 2}
        self.call = dict(EVENT, votes=dict(EVENT["votes"]))
        self.stored = []        # events that are there before the call; SAME stands for the call itself
        self.filled = False     # choice "a" has reached its limit
        self.after = []         # statements between those events and the call
        self.end = []           # the last of them: nothing of a poll changes once it is closed

    def build(self):
        arguments = ", ".join("%s => %%(%s)s" % (name, name) for name in self.rules)
        self.cursor.execute("SELECT poll_tally.create_poll('pairs', '{a,b,c}', %s)" % arguments, self.rules)
        self.cursor.execute("SELECT poll_tally.create_poll('elsewhere', '{a}', counting => 'every')")
        if self.rules.get("restricted"):
            self.cursor.execute("SELECT poll_tally.set_eligible('pairs', '{ann,f1,f2,f3}')")
        for event in self.stored:
            event = dict(self.call, **NO_SOURCE) if event is SAME else event
            outcome = self.judge(event)
            assert outcome == "accepted", "event %s of the set-up is %s" % (event, outcome)
        if self.filled:
            self.fill()
        for statement in self.after + self.end:
            self.cursor.execute(statement)

    def fill(self):
        """Others vote for "a" until it is full, whoever voted before."""
        for number in range(1, 4):
            if self.judge(dict(EVENT, event_id="fill-%d" % number, principal="f%d" % number)) == "limit_reached":
                return
        raise AssertionError("the limit was not reached")

    def judge(self, event):
        self.cursor.execute(CALL, dict(event, payload=json.dumps(event["payload"]), votes=json.dumps(event["votes"])))
        return self.cursor.fetchone()[0]


# --- the reasons ----------------------------------------------------------------------------------------------------

def call(**change):
    return lambda world: world.call.update(change)


def votes(change):
    return lambda world: world.call["votes"].update(change)


def after(statement):
    return lambda world: world.after.append(statement)


def end(statement):
    return lambda world: world.end.append(statement)


def stored(event):
    return lambda world: world.stored.insert(0, event)


def source_conflict(world):
    world.call.update(source="topic", source_partition=0, source_offset=7)
    world.stored.append(dict(EVENT, poll="elsewhere", event_id="owner", source="topic", source_partition=0,
                             source_offset=7))


def not_eligible(world):
    world.rules["restricted"] = True
    world.after.append("SELECT poll_tally.set_eligible('pairs', '{ann}', false)")


def payload(world):
    world.call["payload"] = {"n": "x" * 100}
    world.after.append("SET LOCAL poll_tally.max_payload = 64")


def already_responded(world):
    world.rules["max_attempts"] = 1
    # A repeat's first try was the attempt.
    if not any(event is SAME or event["event_id"] == "event" for event in world.stored):
        world.stored.append(dict(EVENT, event_id="earlier"))


def barred(world):
    already_responded(world)
    world.rules["max_attempts"] = 2
    event = "earlier" if world.stored[-1] is not SAME and world.stored[-1]["event_id"] == "earlier" else "event"
    world.after.insert(0, "SELECT poll_tally.retract_event('pairs', '%s', 'bar', may_respond_again => false)" % event)


def limit_reached(world):
    world.rules["max_count"] = 2
    world.filled = True


CLOSE = "SELECT poll_tally.close_poll('pairs')"
# The deadline cannot be waited for: the events of the set-up have to come before it on any machine.
PASS_DEADLINE = "UPDATE poll_tally.poll SET closes_at = clock_timestamp() - interval '1 second' WHERE poll = 'pairs'"
OPEN_LATER = "SELECT poll_tally.alter_poll('pairs', opens_at => clock_timestamp() + interval '1 day')"

# name: (row, outcome, change)
REASONS = {
    "both choice and votes": (1, "invalid", call(choice="a")),
    "votes all zero": (1, "invalid", call(votes={"a": 0})),
    "half a source": (1, "invalid", call(source="topic", source_partition=0, source_offset=None)),
    "malformed event id": (1, "invalid", call(event_id="two words")),
    "malformed principal": (1, "invalid", call(principal="\u00e9")),
    "same content": (2, "duplicate", stored(SAME)),
    "other content": (2, "conflict", stored(dict(EVENT, payload={"n": 2}))),
    "source of another": (3, "source_conflict", source_conflict),
    "pruned": (4, "expired", None),
    "no such poll": (5, "unknown_poll", call(poll="nowhere")),
    "poll closed": (6, "closed", end(CLOSE)),
    "deadline passed": (6, "closed", end(PASS_DEADLINE)),
    "opens later": (7, "not_open", after(OPEN_LATER)),
    "not on the roll": (8, "not_eligible", not_eligible),
    "principal missing": (9, "invalid", call(principal=None)),
    "too many choices": (9, "invalid", votes({"b": 1, "c": 1})),
    "weight out of range": (9, "invalid", votes({"a": 2})),
    "payload too large": (9, "invalid", payload),
    "occurred in the future": (9, "invalid", call(occurred_at="2999-01-01 00:00+00")),
    "no such choice": (10, "unknown_choice", votes({"z": 1})),
    "no attempt left": (11, "already_responded", already_responded),
    "barred": (11, "already_responded", barred),
    "choice is full": (12, "limit_reached", limit_reached),
}
OF_POLL = ("poll closed", "deadline passed", "opens later", "not on the roll", "principal missing", "too many choices",
           "weight out of range", "no such choice", "no attempt left", "barred", "choice is full")


def impossible(first, second):
    """Why the two cannot hold at once, or None."""
    pair = {first, second}
    if "pruned" in pair:
        return "nothing is pruned in this release"
    if "malformed event id" in pair and pair & {"same content", "other content"}:
        return "a malformed id is in no ledger"
    if "source of another" in pair and "half a source" in pair:
        return "half a source is no coordinate"
    if "malformed principal" in pair and "principal missing" in pair:
        return "a principal is malformed or missing"
    if "malformed principal" in pair and pair & {"no attempt left", "barred"}:
        return "a malformed principal has no attempts"
    if "principal missing" in pair and pair & {"no attempt left", "barred"}:
        return "nobody has no attempts"
    if "votes all zero" in pair and pair & {"too many choices", "weight out of range", "no such choice",
                                            "choice is full"}:
        return "votes that are all zero name no choice"
    if "no such poll" in pair and pair & set(OF_POLL):
        return "a poll that is not there has no rules"
    if "same content" in pair and pair & {"both choice and votes", "votes all zero", "malformed principal"}:
        return "no stored event has malformed content"
    if "same content" in pair and "no such poll" in pair:
        return "a poll is dropped with its events"
    if "same content" in pair and pair & {"principal missing", "too many choices", "weight out of range",
                                          "no such choice"}:
        return "rules that a stored event fulfilled cannot be altered"
    if "same content" in pair and "occurred in the future" in pair:
        return "time does not run backwards"
    return None


# --- running them ---------------------------------------------------------------------------------------------------

def outcome_of(connection, names):
    """The outcome of the call in a world with these reasons."""
    with connection.cursor() as cursor:
        world = World(cursor)
        try:
            for name in names:
                REASONS[name][2](world)
            world.build()
            return world.judge(world.call)
        finally:
            connection.rollback()


def run(dsn):
    connection = psycopg2.connect(dsn)
    wrong = []

    def expect(outcome, *names):
        actual = outcome_of(connection, names)
        if actual != outcome:
            wrong.append("%s: expected %s, got %s" % (" + ".join(names) or "no reason", outcome, actual))

    expect("accepted")
    alone = [name for name in REASONS if REASONS[name][2] is not None]
    for name in alone:
        expect(REASONS[name][1], name)
    ran, skipped = 0, {}
    for first, second in itertools.combinations(REASONS, 2):
        if REASONS[first][0] == REASONS[second][0]:
            continue
        why = impossible(first, second)
        if why is not None:
            skipped.setdefault(why, []).append("%s + %s" % (first, second))
            continue
        ran += 1
        expect(REASONS[first][1], first, second)
    for why, pairs in skipped.items():
        print("# impossible, %s: %s" % (why, "; ".join(pairs)))
    for line in wrong:
        print("# wrong: %s" % line)
    print("alone=%d" % len(alone))
    print("pairs=%d" % ran)
    print("impossible=%d" % sum(map(len, skipped.values())))
    print("wrong=%d" % len(wrong))


if __name__ == "__main__":
    run(sys.argv[1])
