"""The model of polls against the server: sequences of operations, answer by answer.

usage: model_check.py DSN EXHAUSTIVE SAMPLED SEED

For each of the rules below: all sequences of length 2 to EXHAUSTIVE (where it is a bare counting mode), and SAMPLED
random ones of lengths 3 to 8. A sequence has two polls of its own, "p" with fixed choices and "q" with open ones, both
with the rules at hand, and runs in one of three ways: as one transaction that commits, as one that is rolled back after
the checks, or, where it has no savepoint, with each operation a transaction. It ends in verify_poll, in the ledger
entry by entry against the model's, and in a recount of the ledger that is compared with the results.

A sequence is one query string: the server answers all of it in one round trip.
"""

import collections
import ctypes
import itertools
import json
import multiprocessing
import random
import sys

import psycopg2

from model import Model, Rules

PROCESSES = 2
WAYS = ("commit", "rollback", "each")
SHOWN = 5
RULES = {
    "once": Rules("once", None, None, None),
    "latest": Rules("latest", None, None, None),
    "every": Rules("every", None, None, None),
    "bounded_every": Rules("every", 1, None, None),
    "limited_latest": Rules("latest", 2, 0, 1),
    "limited_every": Rules("every", None, 0, 1),
}
SETUP = """
    SET synchronous_commit = off;
    -- Plans are made while the tables are empty, and kept.
    SET enable_seqscan = off;
    SET jit = off;
    SET plan_cache_mode = force_generic_plan;
    CREATE FUNCTION pg_temp.alter(poll text, attempts int) RETURNS text LANGUAGE plpgsql AS $$
    BEGIN
        IF attempts IS NULL THEN
            PERFORM poll_tally.alter_poll(poll, closes_at => clock_timestamp() + '1 day');
        ELSE
            PERFORM poll_tally.alter_poll(poll, max_attempts => attempts);
        END IF;
        RETURN '00000';
    EXCEPTION WHEN OTHERS THEN
        RETURN SQLSTATE;
    END $$;
    PREPARE make_poll (text, text[], bool, text, int, bigint, bigint) AS
        SELECT poll_tally.create_poll($1, $2, open_choices => $3, counting => $4, max_attempts => $5, min_count => $6,
                                      max_count => $7, max_lanes => CASE WHEN $6 IS NULL THEN 2 END);
    PREPARE accept (text, text, text, text, jsonb) AS
        SELECT format('%s %s %s %s', outcome, poll_tally.seq("position"), attempt, array_to_string(differs, ','))
        FROM poll_tally.accept_event($1, $2, $3, $4, payload => $5);
    PREPARE retract (text, text, text, bool) AS
        SELECT format('%s %s %s %s', outcome, poll_tally.seq("position"), attempt, array_to_string(differs, ','))
        FROM poll_tally.retract_event($1, $2, $3, may_respond_again => $4);
    PREPARE close (text) AS SELECT format('final %s %s', included_position, counts) FROM poll_tally.close_poll($1);
    PREPARE alter (text, int) AS SELECT 'altered_' || pg_temp.alter($1, $2);
    PREPARE verify (text) AS
        SELECT format('verified %s %s', count(*), string_agg(check_name, ',') FILTER (WHERE ok IS NOT TRUE))
        FROM poll_tally.verify_poll($1);
    PREPARE ledger (text) AS
        SELECT format('%s %s %s %s %s', event_id, "position", attempt, effect, retracts)
        FROM poll_tally.events WHERE poll = $1 ORDER BY poll_tally.seq("position");
    PREPARE results (text) AS
        SELECT format('results %s', coalesce(poll_tally.make_tally(array_agg(choice), array_agg(count)), '{}'))
        FROM poll_tally.results WHERE poll = $1;
"""


class Server:
    """A connection that takes a string of many statements and returns the rows of all of them, each one text."""

    def __init__(self, dsn):
        self.connection = psycopg2.connect(dsn)
        self.connection.autocommit = True
        # psycopg2 keeps only the last result; the libpq that it is linked to has them all.
        self.libpq = ctypes.CDLL(psycopg2._psycopg.__file__)
        self.pgconn = ctypes.c_void_p(self.connection.pgconn_ptr)
        for name in ("PQgetResult", "PQgetvalue", "PQresultErrorField"):
            getattr(self.libpq, name).restype = ctypes.c_void_p if name == "PQgetResult" else ctypes.c_char_p

    def rows(self, sql):
        assert self.libpq.PQsendQuery(self.pgconn, sql.encode())
        rows = []
        while True:
            result = self.libpq.PQgetResult(self.pgconn)
            if result is None:
                return rows
            result = ctypes.c_void_p(result)
            failed = self.libpq.PQresultErrorField(result, ord("M"))
            if failed is not None:
                rows.append("error " + failed.decode())
            rows.extend(self.libpq.PQgetvalue(result, row, 0).decode() for row in range(self.libpq.PQntuples(result)))
            self.libpq.PQclear(result)


# --- the alphabet, and what an operation is as SQL and to the model --------------------------------------------------

def alphabet():
    polls = ("p", "q")
    for poll, event, choice, principal, payload in itertools.product(polls, "abc", "xy", "uv", "12"):
        yield ("accept", poll, event, choice, principal, payload)
    for poll, event in itertools.product(polls, "abc"):
        # "c" is also an event's id: an id space of its own would let both in.
        for retraction, again in (("c", True), ("d", True), ("d", False)):
            yield ("retract", poll, event, retraction, again)
    for poll in polls:
        yield ("close", poll)
        yield ("alter", poll, 2)
        yield ("alter", poll, None)
    yield ("savepoint",)
    yield ("rollback_to",)


def literal(value):
    return "NULL" if value is None else str(value) if isinstance(value, (bool, int)) else "'%s'" % value


def statement(operation, number):
    """Polls and ids are the sequence's own, by its number."""
    name, arguments = operation[0], list(operation[1:])
    if name == "savepoint":
        return "SAVEPOINT s"
    if name == "rollback_to":
        return "ROLLBACK TO s"
    for i in range({"accept": 2, "retract": 3}.get(name, 1)):
        arguments[i] = "%s%d" % (arguments[i], number)
    return "EXECUTE %s (%s)" % (name, ", ".join(map(literal, arguments)))


def tally(counts):
    return json.dumps({choice: counts[choice] for choice in sorted(counts) if counts[choice]})


def text(value):
    return "" if value is None else str(value)


def answer(model, operation):
    """What the model says, as the server writes it; no row for a savepoint."""
    result = getattr(model, operation[0])(*operation[1:])
    if operation[0] in ("accept", "retract"):
        return ["%s %s %s %s" % (result[0], text(result[1]), text(result[2]), ",".join(result[3] or ()))]
    if operation[0] == "close":
        return ["final %d %s" % (result[0], tally(result[1]))]
    return ["altered_" + result] if operation[0] == "alter" else []


# --- one sequence ---------------------------------------------------------------------------------------------------

def playable(sequence):
    """ROLLBACK TO needs a savepoint."""
    first = [operation[0] for operation in sequence]
    return "rollback_to" not in first or "savepoint" in first[:first.index("rollback_to")]


def make_polls(rules, number):
    for poll, choices, is_open in (("p", "{x,y}", False), ("q", "{x}", True)):
        arguments = ("%s%d" % (poll, number), choices, is_open) + tuple(rules)
        yield "EXECUTE make_poll (%s)" % ", ".join(map(literal, arguments))


def script(sequence, way, rules, number):
    create = list(make_polls(rules, number))
    operations = [statement(operation, number) for operation in sequence]
    checks = ["EXECUTE %s ('%s%d')" % (check, poll, number)
              for poll in "pq" for check in ("verify", "ledger", "results")]
    if way == "rollback":
        statements = ["BEGIN"] + create + operations + checks + ["ROLLBACK"]
    elif way == "commit":
        statements = ["BEGIN"] + create + ["COMMIT", "BEGIN"] + operations + ["COMMIT", "BEGIN"] + checks + ["COMMIT"]
    else:
        statements = ["BEGIN"] + create
        for operation in operations:
            statements += ["COMMIT", "BEGIN", operation]
        statements += ["COMMIT", "BEGIN"] + checks + ["COMMIT"]
    return ";".join(statements)


def ledger_rows(model, poll, number):
    for entry in model.of_poll(poll):
        yield "%s%d 0/%d %s %s %s" % (entry.event, number, entry.seq, text(entry.attempt), tally(entry.effect),
                                      entry.retracts + str(number) if entry.retracts else "")


def expected_checks(model, number):
    rows = []
    for poll in "pq":
        rows.append("verified 4 ")
        rows += ledger_rows(model, poll, number)
        rows.append("results " + tally(model.counts(poll)))
    return rows


def recount_differs(rows):
    """The server's ledger rows added up here, against the server's results: the model has no part in it."""
    counts = None
    for row in rows:
        if row.startswith("verified "):
            counts = collections.Counter()
        elif row.startswith("results "):
            if row != "results " + tally(counts):
                return True
            counts = None
        elif counts is not None:
            counts.update(json.loads(row[row.index("{"):row.index("}") + 1]))
    return False


# --- all of them ----------------------------------------------------------------------------------------------------

def random_operation(rng, letters, before):
    """Often one that has to do with an earlier one: a repeat, a near miss, the retraction of an event that is there."""
    dice = rng.random()
    if before and dice < 0.3:
        operation = rng.choice(before)
        if operation[0] == "accept" and dice < 0.2:
            field = rng.randint(1, 5)
            return rng.choice([letter for letter in letters if letter[0] == "accept"
                               and all(letter[i] == operation[i] for i in range(1, 6) if i != field)])
        return operation
    accepts = [operation for operation in before if operation[0] == "accept"]
    if accepts and dice < 0.5:
        event = rng.choice(accepts)
        return rng.choice([letter for letter in letters if letter[0] == "retract" and letter[1:3] == event[1:3]])
    if dice < 0.8:
        return rng.choice([letter for letter in letters if letter[0] == "accept"])
    return rng.choice([letter for letter in letters if letter[0] not in ("accept", "retract")])


def sequences(rules, exhaustive, sampled, rng):
    letters = list(alphabet())
    is_bare = rules[1:] == (None, None, None)
    for length in range(2, exhaustive + 1) if is_bare else ():
        yield from filter(playable, itertools.product(letters, repeat=length))
    while sampled > 0:
        sequence = []
        for _ in range(rng.randint(3, 8)):
            sequence.append(random_operation(rng, letters, sequence))
        if playable(sequence):
            sampled -= 1
            yield tuple(sequence)


def way_of(sequence, index):
    way = WAYS[index % len(WAYS)]
    return "commit" if way == "each" and ("savepoint",) in sequence else way


def check_sequence(server, rules, sequence, way, number, found):
    """None when server and model agree, else what they say. Counts what was seen."""
    model = Model({"p": rules, "q": rules})
    answers = [row for operation in sequence for row in answer(model, operation)]
    # create_poll answers for each poll too.
    expected = ["", ""] + answers + expected_checks(model, number)
    actual = server.rows(script(sequence, way, rules, number))
    found["way_" + way] += 1
    found["recounts_wrong"] += recount_differs(actual)
    found.update("said_" + row.split(" ")[0] for row in answers)
    return None if actual == expected else "expected %s\n#   actual   %s" % (expected, actual)


def check_share(share, dsn, exhaustive, sampled, seed):
    """One process: every PROCESSES-th sequence. Returns a Counter and the first mismatches."""
    server, found, shown = Server(dsn), collections.Counter(), []
    server.connection.cursor().execute(SETUP)
    number = share
    for name, rules in RULES.items():
        rng = random.Random("%d %s" % (seed, name))
        for index, sequence in enumerate(sequences(rules, exhaustive, sampled, rng)):
            if index % PROCESSES != share:
                continue
            number += PROCESSES
            way = way_of(sequence, index // PROCESSES)
            problem = check_sequence(server, rules, sequence, way, number, found)
            found["sequences_" + name] += 1
            found["mismatches_" + name] += problem is not None
            if problem is not None:
                server.rows("ROLLBACK")
                shown = (shown + ["# %s, %s: %s\n#   %s" % (name, way, sequence, problem)])[:SHOWN]
    return found, shown


def run(dsn, exhaustive, sampled, seed):
    total = collections.Counter()
    with multiprocessing.Pool(PROCESSES) as pool:
        shares = [(share, dsn, exhaustive, sampled, seed) for share in range(PROCESSES)]
        for found, shown in pool.starmap(check_share, shares, 1):
            total.update(found)
            print("".join(line + "\n" for line in shown), end="")
    print("letters=%d" % len(list(alphabet())))
    for name in sorted(total):
        print("%s=%d" % (name, total[name]))


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
