"""What an event costs in a transaction of few and of many, and whether the next statement sees it.

usage: linear.py DSN FEW MANY TIMES FORM...

Each form is run TIMES times with FEW and with MANY events in one transaction, in turn, each in a poll of its own that
is made beforehand; the transaction is committed and then the poll is recounted. Printed is the best time of each size
per event, in microseconds, and how often something was not there at once.
"""

import sys

import psycopg2

CHOICES = 10
CALL = "poll_tally.accept_event('{poll}', '{poll}-' || {n}, 'choice-' || {n} % 10, 'voter-' || {n})"

# Blocks are PL/pgSQL; a view that lags behind by one event raises.
LOOP = """
DO $$
DECLARE
    verdict text;
    seen bigint;
BEGIN
    FOR n IN 1..{count} LOOP
        {body}
    END LOOP;
END
$$"""

ACCEPT = """
        SELECT a.outcome INTO verdict FROM {call} AS a;
        IF verdict <> 'accepted' THEN RAISE EXCEPTION 'event % got %', n, verdict; END IF;"""

# An exception block is a subtransaction; every tenth one is rolled back, and its event sent again.
ACCEPT_IN_BLOCK = """
        BEGIN
            SELECT a.outcome INTO verdict FROM {call} AS a;
            IF verdict <> 'accepted' THEN RAISE EXCEPTION 'event % got %', n, verdict; END IF;
            IF n % 10 = 0 THEN RAISE SQLSTATE 'UNDO1'; END IF;
        EXCEPTION WHEN SQLSTATE 'UNDO1' THEN
            SELECT a.outcome INTO verdict FROM {call} AS a;
            IF verdict <> 'accepted' THEN RAISE EXCEPTION 'event % again got %', n, verdict; END IF;
        END;"""

READ = """
        SELECT sum(r.count) INTO seen FROM poll_tally.results AS r WHERE r.poll = '{poll}';
        IF seen IS DISTINCT FROM n THEN RAISE EXCEPTION 'results show % of %', seen, n; END IF;
        SELECT p.accepted_position INTO seen FROM poll_tally.polls AS p WHERE p.poll = '{poll}';
        IF seen IS DISTINCT FROM n THEN RAISE EXCEPTION 'polls show % of %', seen, n; END IF;
        SELECT l.gap INTO seen FROM poll_tally.lag AS l WHERE l.poll = '{poll}';
        IF seen IS DISTINCT FROM n THEN RAISE EXCEPTION 'lag shows % of %', seen, n; END IF;
        SELECT poll_tally.seq(e.position) INTO seen FROM poll_tally.events AS e WHERE e.event_id = '{poll}-' || n;
        IF seen IS DISTINCT FROM n THEN RAISE EXCEPTION 'events shows seq % of %', seen, n; END IF;
        SELECT poll_tally.seq(s.position) INTO seen FROM poll_tally.event_status('{poll}-' || n) AS s;
        IF seen IS DISTINCT FROM n THEN RAISE EXCEPTION 'event_status shows seq % of %', seen, n; END IF;
        SELECT poll_tally.seq(a.position) INTO seen FROM {call} AS a WHERE a.outcome = 'duplicate';
        IF seen IS DISTINCT FROM n THEN RAISE EXCEPTION 'a repeat shows seq % of %', seen, n; END IF;"""


def one_select(cursor, poll, count):
    cursor.execute("SELECT count(*) FROM generate_series(1, %d) AS n, %s AS a WHERE a.outcome = 'accepted'"
                   % (count, CALL.format(poll=poll, n="n")))
    return count - cursor.fetchone()[0]


def new_keys(cursor, poll, count):
    """Each event brings a key of its own."""
    cursor.execute("SELECT count(*) FROM generate_series(1, %d) AS n, %s AS a WHERE a.outcome = 'accepted'"
                   % (count, CALL.format(poll=poll, n="n").replace("'choice-' || n % 10", "'key-' || n")))
    return count - cursor.fetchone()[0]


def loop(body):
    def run(cursor, poll, count):
        call = CALL.format(poll=poll, n="n")
        try:
            cursor.execute(LOOP.format(count=count, body=body.format(poll=poll, call=call)))
        except psycopg2.errors.RaiseException as error:
            print("# " + str(error).splitlines()[0])
            return 1
        return 0
    return run


def statements(cursor, poll, count):
    """A statement an event; every hundredth is looked for by the next one."""
    missing = 0
    for n in range(1, count + 1):
        cursor.execute("SELECT outcome FROM " + CALL.format(poll=poll, n=n))
        missing += cursor.fetchone()[0] != "accepted"
        if n % 100 == 0:
            cursor.execute("SELECT sum(count) FROM poll_tally.results WHERE poll = %s", (poll,))
            missing += cursor.fetchone()[0] != n
    return missing


def savepoints(cursor, poll, count):
    """A savepoint an event, released; every tenth one rolled back to first."""
    missing = 0
    for n in range(1, count + 1):
        call = "SELECT outcome FROM " + CALL.format(poll=poll, n=n)
        cursor.execute("SAVEPOINT here")
        if n % 10 == 0:
            cursor.execute(call)
            cursor.execute("ROLLBACK TO SAVEPOINT here")
        cursor.execute(call)
        missing += cursor.fetchone()[0] != "accepted"
        cursor.execute("RELEASE SAVEPOINT here")
    return missing


FORMS = {
    "select": (one_select, CHOICES),
    "wide": (one_select, 1500),
    "keys": (new_keys, None),           # as many choices as events, and an open set of them
    "loop": (loop(ACCEPT), CHOICES),
    "statements": (statements, CHOICES),
    "reads": (loop(ACCEPT + READ), CHOICES),
    "blocks": (loop(ACCEPT_IN_BLOCK), CHOICES),
    "savepoints": (savepoints, CHOICES),
}


def processor_seconds(connection):
    """That the session's process has had so far."""
    with open("/proc/%d/schedstat" % connection.get_backend_pid(), encoding="ascii") as file:
        return int(file.read().split()[0]) / 1e9


def measure(connection, form, poll, count):
    """Seconds of one transaction with its commit; how often something was missing, in it or after it."""
    run, choices = FORMS[form]
    cursor = connection.cursor()
    cursor.execute("SELECT poll_tally.create_poll(%s, array(SELECT 'choice-' || n FROM generate_series(0, %s) AS n),"
                   " open_choices => %s)", (poll, (choices or count) - 1, choices is None))
    connection.commit()
    start = processor_seconds(connection)
    missing = run(cursor, poll, count)
    connection.rollback() if missing else connection.commit()
    seconds = processor_seconds(connection) - start
    cursor.execute("SELECT sum(count) FROM poll_tally.results WHERE poll = %s", (poll,))
    missing += cursor.fetchone()[0] != count
    cursor.execute("SELECT count(*) FROM poll_tally.verify_poll(%s) WHERE NOT ok", (poll,))
    missing += cursor.fetchone()[0]
    connection.commit()
    return seconds, missing


def run(dsn, few, many, times, forms):
    connection = psycopg2.connect(dsn)
    for form in forms:
        best = {few: None, many: None}
        wrong = 0
        for attempt in range(times):
            for count in (few, many):
                seconds, missing = measure(connection, form, "%s-%d-%d" % (form, count, attempt), count)
                wrong += missing
                best[count] = seconds if best[count] is None else min(best[count], seconds)
        print("%s_few=%.3f" % (form, best[few] * 1e6 / few))
        print("%s_many=%.3f" % (form, best[many] * 1e6 / many))
        print("%s_wrong=%d" % (form, wrong))


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
