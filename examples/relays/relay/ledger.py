"""The sink: a batch and the consumer's cursor in one transaction of the database.

Invariant: accept and advance return only after COMMIT was acknowledged; whatever else happens is raised as one of
the faults.
"""

import psycopg2

from relay import faults, steps

# The database takes the bodies apart, so that numbers stay as they were sent.
ACCEPT = """
WITH message AS (SELECT m.body, m.ord FROM unnest(%(bodies)s::jsonb[]) WITH ORDINALITY AS m (body, ord)),
batch AS (
    SELECT array_agg(body ->> 'poll' ORDER BY ord) AS polls,
           array_agg(body ->> 'event_id' ORDER BY ord) AS event_ids,
           array_agg(body ->> 'choice' ORDER BY ord) AS choices,
           array_agg(body ->> 'principal' ORDER BY ord) AS principals,
           array_agg(nullif(body -> 'votes', 'null') ORDER BY ord) AS votes,
           array_agg(body -> 'payload' ORDER BY ord) AS payloads,
           array_agg((body ->> 'occurred_at')::timestamptz ORDER BY ord) AS occurred_ats
    FROM message)
SELECT r.outcome::text, r.retryable, r.differs, r.detail
FROM batch AS b
CROSS JOIN LATERAL poll_tally.accept_events(NULL, b.event_ids, b.choices, b.principals, b.votes, b.payloads,
    %(source)s::text, %(partition)s::int, %(offsets)s::bigint[], b.occurred_ats, b.polls) AS r
ORDER BY r.ord
"""
ADVANCE = "SELECT poll_tally.advance_source(%s, %s, %s)"
# A role or a database may have it off; then COMMIT would promise nothing.
DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
# A dead connection must be noticed, and a stuck statement end.
CONNECTION = {"connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
              "tcp_user_timeout": 30000, "options": "-c statement_timeout=30s"}


class Receipt:
    def __init__(self, outcome, retryable, differs, detail):
        self.outcome, self.retryable = outcome, retryable
        self.detail = "; ".join(filter(None, (differs and "differs in " + ", ".join(differs), detail)))


class Ledger:
    """source names the queue in the ledger and among the cursors; None for a queue without coordinates."""

    def __init__(self, dsn, source):
        self.dsn, self.source = dsn, source
        self.connection = None

    def transaction(self, work):
        """work(cursor), COMMIT, and the result of work."""
        committing = False
        try:
            if self.connection is None:
                self.connection = psycopg2.connect(self.dsn, **CONNECTION)
                self.connection.cursor().execute(DURABLE)
                self.connection.commit()
            result = work(self.connection.cursor())
            steps.at("judged")
            committing = True
            self.connection.commit()
        except psycopg2.Error as error:
            closed = self.connection is None or self.connection.closed != 0
            self.leave_transaction()
            fault = faults.fault_of(error, closed, committing)
            if fault is None:
                raise
            raise fault from error
        steps.at("committed")
        return result

    def leave_transaction(self):
        try:
            if self.connection is not None:
                self.connection.rollback()
        except psycopg2.Error:
            self.connection.close()             # the next transaction connects anew
        if self.connection is not None and self.connection.closed:
            self.connection = None

    def accept(self, partition, records, cursor_after):
        """Receipts in the order of records. cursor_after(receipts) says where the cursor is then, or None."""
        return self.transaction(lambda cursor: self.accept_in(cursor, partition, records, cursor_after))

    def accept_in(self, cursor, partition, records, cursor_after):
        offsets = None if self.source is None else [record.offset for record in records]
        cursor.execute(ACCEPT, {"bodies": [record.body.decode() for record in records], "source": self.source,
                                "partition": None if offsets is None else partition or 0, "offsets": offsets})
        receipts = [Receipt(*row) for row in cursor.fetchall()]
        next_offset = cursor_after(receipts)
        if next_offset is not None:
            cursor.execute(ADVANCE, (self.source, partition or 0, next_offset))
        return receipts

    def check(self):
        """Nothing is received before the database was reached once: a wrong password must not make messages dead."""
        self.transaction(lambda cursor: cursor.execute("SELECT poll_tally.version()"))

    def advance(self, partition, next_offset):
        self.transaction(lambda cursor: cursor.execute(ADVANCE, (self.source, partition or 0, next_offset)))

    def resume_at(self, partition):
        """The stored cursor, None when there is none yet."""
        def read(cursor):
            cursor.execute("SELECT poll_tally.source_position(%s, %s)", (self.source, partition or 0))
            return cursor.fetchone()[0]

        return self.transaction(read)

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None
