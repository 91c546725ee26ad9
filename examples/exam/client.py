"""One client: hands in, as an unprivileged submitter, what its part of the plan says, at the time it says.

Each hand-in is a transaction of its own. Its receipt counts once the commit was acknowledged.
"""

import time
from dataclasses import dataclass
from datetime import datetime

import psycopg2

ACCEPT = """
    SELECT outcome::text, position::text, attempt, accepted_at, retryable, differs, detail
    FROM poll_tally.accept_event(poll => %s, event_id => %s, choice => 'handed-in', principal => %s, payload => %s)
"""


@dataclass(frozen=True)
class Receipt:
    outcome: str
    position: str
    attempt: int
    accepted_at: datetime
    retryable: bool
    differs: list
    detail: str

    def identity(self):
        """What every answer about one hand-in has to agree on."""
        return (self.position, self.attempt, self.accepted_at)


@dataclass(frozen=True)
class Answer:
    number: int
    kind: str
    sent: float  # by this machine's clock, as is the next
    answered: float
    receipt: Receipt


def connect(dsn, role):
    connection = psycopg2.connect(dsn, application_name="exam")
    connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute(f"SET ROLE {role}")
    return cursor


def hand_in(cursor, poll, plan, number, changed=False):
    cursor.execute(ACCEPT, (poll, plan.keys[number], plan.students[number], plan.payload(number, changed)))
    return Receipt(*cursor.fetchone())


def run(pipe, dsn, role, poll, plan, stream):
    """Runs in a process of its own: says that it is ready, is told the deadline, and returns its answers."""
    try:
        cursor = connect(dsn, role)
        pipe.send("ready")
        deadline = pipe.recv()
        answers = []
        for send in stream:
            time.sleep(max(0, deadline + send.at - time.time()))
            sent = time.time()
            receipt = hand_in(cursor, poll, plan, send.number, send.kind == "changed")
            answers.append(Answer(send.number, send.kind, sent, time.time(), receipt))
        pipe.send(answers)
    except psycopg2.Error as error:
        pipe.send(f"{error.pgcode or 'no SQLSTATE'}: {error}".strip())
