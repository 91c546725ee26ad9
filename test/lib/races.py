"""Many connections, one contested thing: rounds in which all of them send at once.

usage: races.py DSN CONNECTIONS ROUNDS SEED

In a round of kind "id" every connection sends the same event, without a principal, so that nothing but the id keeps
them apart; in one of kind "principal" each sends its own id for the same principal. Exactly one may be told accepted,
and all others must be told duplicate with the winner's receipt, or already_responded with the winner's id in the detail.

Every second round starts at a gate: a shared advisory lock, taken in the very statement that votes, while the
controller holds it exclusively. All sessions have taken their snapshot by then and are let go together.
"""

import collections
import random
import select
import sys

import psycopg2
import psycopg2.extensions

GATE = 20260101
VOTE = """
    SELECT a.outcome::text, a.event_id, a.position::text, a.accepted_at, a.detail
    FROM (SELECT CASE WHEN %(gate)s THEN pg_advisory_xact_lock_shared({gate})::text ELSE '' END AS passed OFFSET 0) AS g
    CROSS JOIN LATERAL poll_tally.accept_event(%(poll)s, %(id)s, %(choice)s, %(principal)s) AS a
    WHERE g.passed = ''""".format(gate=GATE)
CHOICES = ("red", "green", "blue")


def settle(connections):
    """Run every connection until it is idle."""
    waiting = {connection.fileno(): connection for connection in connections}
    poller = select.poll()
    for number in waiting:
        poller.register(number, select.POLLIN)
    while waiting:
        for number, connection in list(waiting.items()):
            state = connection.poll()
            if state == psycopg2.extensions.POLL_OK:
                del waiting[number]
                poller.unregister(number)
            else:
                wanted = select.POLLIN if state == psycopg2.extensions.POLL_READ else select.POLLOUT
                poller.modify(number, wanted)
        if waiting and not poller.poll(60000):
            raise RuntimeError("%d connections are stuck" % len(waiting))


class Gate:
    """A closed gate: opens once every connection waits at it."""

    def __init__(self, dsn, count):
        self.connection = psycopg2.connect(dsn)
        self.connection.autocommit = True
        self.cursor = self.connection.cursor()
        self.count = count

    def close(self):
        self.cursor.execute("SELECT pg_advisory_lock(%s)", (GATE,))

    def open(self):
        while True:
            self.cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s"
                                " AND objsubid = 1 AND NOT granted", (GATE,))
            if self.cursor.fetchone()[0] == self.count:
                break
        self.cursor.execute("SELECT pg_advisory_unlock(%s)", (GATE,))


def one_round(sessions, gate, gated, events):
    """Send one event on each session, all at once, and return the answers."""
    if gated:
        gate.close()
    for (_, cursor), event in zip(sessions, events):
        cursor.execute(VOTE, dict(event, gate=gated))
    if gated:
        gate.open()
    settle([connection for connection, _ in sessions])
    return [cursor.fetchone() for _, cursor in sessions]


def judge(kind, answers, count):
    """What is wrong with the answers of a round; None when nothing is."""
    tally = collections.Counter(answer[0] for answer in answers)
    loser = "duplicate" if kind == "id" else "already_responded"
    if tally != {"accepted": 1, loser: count - 1}:
        return str(dict(tally))
    winner = next(answer for answer in answers if answer[0] == "accepted")
    for answer in answers:
        if kind == "id" and answer[1:4] != winner[1:4]:
            return "duplicate with receipt %r, not %r" % (answer, winner)
        if kind == "principal" and answer is not winner and ('"%s"' % winner[1]) not in (answer[4] or ""):
            return "detail %r does not name %s" % (answer[4], winner[1])
    return None


def recount(cursor, poll, expected):
    """The ledger as plain SQL counts it, against what the clients were told."""
    cursor.execute("SELECT j.key, sum(j.value::bigint)::bigint FROM poll_tally.events AS e,"
                   " json_each_text(e.votes::text::json) AS j WHERE e.poll = %s GROUP BY j.key", (poll,))
    return int(dict(cursor.fetchall()) != dict(expected))


def run(dsn, count, rounds, seed):
    rng = random.Random(seed)
    gate = Gate(dsn, count)
    for kind, counting in (("id", "every"), ("principal", "once")):
        gate.cursor.execute("SELECT poll_tally.create_poll(%s, %s, counting => %s)", (kind, list(CHOICES), counting))
    connections = [psycopg2.connect(dsn, async_=1) for _ in range(count)]
    settle(connections)
    sessions = [(connection, connection.cursor()) for connection in connections]
    for kind in ("id", "principal"):
        violations = []
        expected = collections.Counter()
        for number in range(rounds):
            choice = rng.choice(CHOICES)
            shared = "%s-%d" % (kind, number)
            events = [{"poll": kind, "id": shared if kind == "id" else "%s-%d" % (shared, i), "choice": choice,
                       "principal": None if kind == "id" else shared} for i in range(count)]
            rng.shuffle(sessions)
            problem = judge(kind, one_round(sessions, gate, number % 2 == 1, events), count)
            expected[choice] += 1
            if problem is not None:
                violations.append("# round %d of %s: %s" % (number, kind, problem))
        for line in violations[:10]:
            print(line)
        print("%s_rounds=%d" % (kind, rounds))
        print("%s_calls=%d" % (kind, rounds * count))
        print("%s_violations=%d" % (kind, len(violations)))
        print("%s_recount_wrong=%d" % (kind, recount(gate.cursor, kind, expected)))


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
