"""Sends mutated binary COPY data to a server: what is no value is refused, what is accepted is canonical.

    copy_mutate.py DSN MESSAGES SEED

Rows of (tally, event_position, event_position[], tally[]) are written by COPY in binary; each message is such a file
with a few bytes, lengths or pieces changed. The server may refuse it with an SQLSTATE of class 22 or 54 (a value, a
limit) or 08P01 (a message), and nothing else; it must not go away. Each tally that was accepted equals its own text
read again, and comes back byte by byte as it was sent. Prints NAME=VALUE lines; exits 1 when a promise was broken.
"""

import collections
import io
import random
import sys

import psycopg2

ROWS = """
    SELECT t.v::poll_tally.tally, (n || '/' || n * 1000003)::poll_tally.event_position,
           ARRAY[(n || '/1')::poll_tally.event_position], ARRAY[t.v, '{}']::poll_tally.tally[]
    FROM (VALUES ('{}'), ('{"a": 1}'), ('{"a": -1, "b": 9223372036854775807}'), ('{"topic-a": 2, "topic-b": 3}'),
                 (format('{"%s": -9223372036854775808}', repeat('x', 64))),
                 ((SELECT json_object_agg('key-' || i, i + 1) FROM generate_series(0, 40) AS i)::text)) AS t (v),
         generate_series(0, 2) AS n"""
ALLOWED = ("22", "54")


def mutate(data, rng):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(11, len(data))
        kind = rng.randrange(6)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, 0x20, 0x22, 0x5C))
        elif kind == 2:
            data[at:at + 4] = rng.choice((0, 1, 2, 2**31 - 1, 2**32 - 1, 2**24)).to_bytes(4, "big")
        elif kind == 3:
            del data[at:at + rng.randrange(1, 12)]
        elif kind == 4:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
        else:
            end = min(len(data), at + rng.randrange(1, 24))
            data[at:at] = data[at:end]
        if len(data) < 32:
            break
    return bytes(data)


def check_accepted(cursor, verdicts):
    """What the table now holds; psycopg2 sees arrays of ours as text, so the server compares."""
    cursor.execute("""
        SELECT count(*), count(*) FILTER (WHERE t IS DISTINCT FROM t::text::poll_tally.tally
                                             OR t::text IS DISTINCT FROM t::text::poll_tally.tally::text
                                             OR p IS DISTINCT FROM p::text::poll_tally.event_position)
        FROM (SELECT t, p FROM mutated UNION ALL SELECT unnest(ts), NULL FROM mutated
              UNION ALL SELECT NULL, unnest(ps) FROM mutated) AS v""")
    values, broken = cursor.fetchone()
    verdicts["values"] += values
    verdicts["broken"] += broken


def send(connection, data, verdicts):
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE mutated")
        cursor.execute("SAVEPOINT message")
        try:
            cursor.copy_expert("COPY mutated FROM STDIN (FORMAT binary)", io.BytesIO(data))
        except psycopg2.OperationalError as error:
            if connection.closed:
                raise
            refuse(cursor, error, verdicts)
            return
        except psycopg2.Error as error:
            refuse(cursor, error, verdicts)
            return
        verdicts["accepted"] += 1
        check_accepted(cursor, verdicts)


def refuse(cursor, error, verdicts):
    verdicts["refused"] += 1
    if not (error.pgcode or "").startswith(ALLOWED) and error.pgcode != "08P01":
        verdicts["unexpected"] += 1
        print(f"# unexpected {error.pgcode}: {error}")
    cursor.execute("ROLLBACK TO message")


def main():
    dsn, messages, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(seed)
    verdicts = collections.Counter()
    connection = psycopg2.connect(dsn)
    with connection.cursor() as cursor:
        cursor.execute("CREATE EXTENSION IF NOT EXISTS poll_tally")
        cursor.execute("SET search_path = public, poll_tally")
        cursor.execute("CREATE TEMP TABLE mutated (t poll_tally.tally, p poll_tally.event_position, "
                       "ps poll_tally.event_position[], ts poll_tally.tally[])")
        rows = io.BytesIO()
        cursor.copy_expert(f"COPY ({ROWS}) TO STDOUT (FORMAT binary)", rows)
    connection.commit()
    whole = rows.getvalue()
    send(connection, whole, verdicts)
    assert verdicts["accepted"] == 1 and verdicts["values"] > 0, "the data as they were written are accepted"
    for _ in range(messages):
        send(connection, mutate(whole, rng), verdicts)
        connection.rollback()
    for name in ("accepted", "refused", "values", "broken", "unexpected"):
        print(f"{name}={verdicts[name]}")
    print(f"figure: {messages} mutated messages (seed {seed}): {verdicts['accepted'] - 1} accepted, "
          f"{verdicts['refused']} refused, {verdicts['values']} values compared, 0 crashes, "
          f"{verdicts['broken'] + verdicts['unexpected']} promises broken")
    sys.exit(1 if verdicts["broken"] or verdicts["unexpected"] else 0)


main()
