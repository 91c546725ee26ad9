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
# Without synchronous_commit COMMIT would promise nothing. A statement has to end some time, and a relay that is held up
# in a transaction must not hold up others; where the role or the connection string says how long, that holds.
SETTINGS = """
SELECT set_config(name, wanted, false)
FROM (VALUES ('synchronous_commit', 'off', 'on'), ('statement_timeout', '0', '30s'),
             ('idle_in_transaction_session_timeout', '0', '30s')) AS s (name, unwanted, wanted)
WHERE current_setting(name) = unwanted
"""
# A dead connection has to be noticed. Bodies are UTF-8, whatever the database and the environment say.
CONNECTION = {"client_encoding": "UTF8", "connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5,
              "keepalives_count": 3, "tcp_user_timeout": 30000}


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
                self.connection.cursor().execute(SETTINGS)
                self.connection.commit()
            result = work(self.connection.cursor())
            committing = True
            self.connection.commit()
        except psycopg2.Error as error:
            lost = faults.is_lost(error, self.connection)
            if lost:
                self.close()
            else:
                self.connection.rollback()
            fault = faults.fault_of(error, lost, committing)
            if fault is None:
                raise
            raise fault from error
        return result

    def accept(self, partition, records, cursor_after):
        """Receipts in the order of records. cursor_after(receipts) says where the cursor is then, or None."""
        receipts = self.transaction(lambda cursor: self.accept_in(cursor, partition, records, cursor_after))
        steps.at("committed")
        return receipts

    def accept_in(self, cursor, partition, records, cursor_after):
        offsets = None if self.source is None else [record.offset for record in records]
        cursor.execute(ACCEPT, {"bodies": [record.body.decode() for record in records], "source": self.source,
                                "partition": None if offsets is None else partition or 0, "offsets": offsets})
        receipts = [Receipt(*row) for row in cursor.fetchall()]
        next_offset = cursor_after(receipts)
        if next_offset is not None:
            cursor.execute(ADVANCE, (self.source, partition or 0, next_offset))
        steps.at("judged")
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
        """A connection that is closed here leaves nothing undone: what was not committed is gone."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None
