"""One client process: delivers its stream as the unprivileged submitter and reports each answer.

Each delivery is a transaction of its own, and is reported only once its commit was acknowledged. The reports go to
the parent through a pipe: ("answer", place, outcome, differs), ("paused",), ("stopped",), ("done",) or
("failed", message). After ("paused",) the client waits for the parent's word to go on.
"""

import signal

import psycopg2

ROLE = "demo_feeder"
ACCEPT = """
    SELECT outcome::text, differs
    FROM poll_tally.accept_event(poll => %s, event_id => %s, choice => %s, principal => %s, occurred_at => %s)
"""


def feed(pipe, stream, pauses, lose=None, stop=None):
    """Runs in a process of its own. Pauses before the places in `pauses`; at `stop` it waits within its transaction
    for a signal that kills it."""
    try:
        connection = psycopg2.connect(dbname="postgres", user=ROLE, application_name="demo feeder")
        connection.autocommit = True
        cursor = connection.cursor()
        for place, delivery in enumerate(stream):
            if place in pauses:
                pipe.send(("paused",))
                pipe.recv()
            if place == stop:
                cursor.execute("BEGIN")
            _deliver(cursor, delivery)
            if place == stop:
                pipe.send(("stopped",))
                signal.pause()
            elif place != lose:
                pipe.send(("answer", place, *cursor.fetchone()))
        pipe.send(("done",))
    except psycopg2.Error as error:
        pipe.send(("failed", f"{error.pgcode or 'no SQLSTATE'}: {error}".strip()))


def _deliver(cursor, delivery):
    response = delivery.response
    cursor.execute(ACCEPT, (response.poll, response.response_id, delivery.answer, response.respondent,
                            response.submitted_at or None))
