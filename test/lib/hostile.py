"""Every function and view under a search path full of traps: what it answers is what it answers without them.

usage: hostile.py DSN

mallory holds all four grants and a schema in which names of the system stand for a function that raises: its functions,
operators and types, its relations, and ours; the same relations as temporary views, which are found before all others.
Each function is called with the arguments of matrix.py, each view read, an event inserted into the inbox and one by a
trigger, in two sessions that do so in opposite orders, since plans are made at the first call: by mallory, who would
gain the owner's rights, and by a superuser with her search path, who would lend her his. A trap that sprang shows as
an answer that differs. Last, her casts, from a type of her own to every type of our arguments: they run as mallory or
not at all.

Prints NAME=VALUE lines.
"""

import re
import sys

import psycopg2

import matrix

# Types that traps take: those of our statements, but no pseudo-types.
PLAIN = ("text", "name", "oid", "bool", "int2", "int4", "int8", "float8", "numeric", "timestamptz", "timestamp", "interval",
         "jsonb", "json", "regclass", "regtype", "regrole", "xid", "bytea", "_text", "_int8", "_int4")
SHADOWED_TYPES = ("text", "jsonb", "json", "name", "oid", "regclass", "regtype", "regrole", "timestamptz", "bytea", "int8", "int4",
                  "bool", "_text", "tally", "ident", "event_position", "outcome", "receipt")
OUR_RELATIONS = matrix.TABLES + list(matrix.VIEWS)
AGGREGATES = ("count(*)", "count(int8)", "sum(int8)", "sum(int4)", "sum(numeric)", "min(int8)", "max(int8)", "max(int4)", "min(timestamptz)",
              "max(timestamptz)", "bool_and(bool)", "bool_or(bool)", "string_agg(text, text)", "array_agg(int8)",
              "array_agg(text)")

TRAPS = """
CREATE SCHEMA evil;
CREATE FUNCTION evil.spring() RETURNS pg_catalog.bool LANGUAGE plpgsql AS
    'BEGIN RAISE ''a trap sprang as %%'', current_user USING ERRCODE = ''TRAPS''; END';
DO $do$
DECLARE
    r record;
BEGIN
    FOR r IN
        SELECT DISTINCT p.proname, p.proargtypes, p.prorettype,
               (SELECT coalesce(string_agg(format('pg_catalog.%%I', t.typname), ', ' ORDER BY a.n), '')
                FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (type, n) JOIN pg_type AS t ON t.oid = a.type) AS arguments
        FROM pg_proc AS p
        WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND NOT p.proretset
          AND p.prorettype = ANY (%(plain)s::regtype[]) AND p.proargtypes::oid[] <@ %(plain)s::regtype[]::oid[]
    LOOP
        EXECUTE format($f$CREATE FUNCTION evil.%%I(%%s) RETURNS %%s LANGUAGE plpgsql AS
                          'BEGIN PERFORM evil.spring(); END'$f$, r.proname, r.arguments, format_type(r.prorettype, NULL));
    END LOOP;
    FOR r IN
        SELECT o.oprname, o.oprleft::regtype AS l, o.oprright::regtype AS r, o.oprresult::regtype AS result, o.oid
        FROM pg_operator AS o
        WHERE o.oprnamespace = ANY (%(homes)s::regnamespace[]) AND o.oprright = ANY (%(plain)s::regtype[])
          AND (o.oprleft = 0 OR o.oprleft = ANY (%(plain)s::regtype[])) AND o.oprresult = ANY (%(plain)s::regtype[])
    LOOP
        EXECUTE format($f$CREATE FUNCTION evil.%%I(%%s) RETURNS %%s LANGUAGE plpgsql AS
                          'BEGIN PERFORM evil.spring(); END'$f$,
                       'operator_' || r.oid, concat_ws(', ', CASE WHEN r.l <> 0 THEN r.l END, r.r), r.result);
        EXECUTE format('CREATE OPERATOR evil.%%s (FUNCTION = evil.%%I, %%s RIGHTARG = %%s)', r.oprname, 'operator_' || r.oid,
                       CASE WHEN r.l <> 0 THEN format('LEFTARG = %%s,', r.l) ELSE '' END, r.r);
    END LOOP;
END
$do$;
CREATE FUNCTION evil.step(anyelement) RETURNS anyelement LANGUAGE plpgsql AS 'BEGIN PERFORM evil.spring(); END';
"""


def set_traps(cursor):
    """Made by mallory, but for what only a superuser could make her the owner of."""
    cursor.execute(TRAPS % {"plain": "'{%s}'" % ",".join(PLAIN), "homes": "'{pg_catalog,poll_tally}'"})
    for name in SHADOWED_TYPES:
        cursor.execute("CREATE DOMAIN evil.%s AS pg_catalog.text CHECK (evil.spring())" % name)
    for number, aggregate in enumerate(AGGREGATES):
        arguments = aggregate[aggregate.index("(") + 1:-1]
        types = "" if arguments == "*" else ", " + ", ".join(
            "pg_catalog." + a if "." not in a else a for a in arguments.split(", "))
        cursor.execute("CREATE FUNCTION evil.step_%d(pg_catalog.int8%s) RETURNS pg_catalog.int8 LANGUAGE plpgsql AS"
                       " 'BEGIN PERFORM evil.spring(); END'" % (number, types))
        cursor.execute("CREATE AGGREGATE evil.%s(%s) (SFUNC = evil.step_%d, STYPE = pg_catalog.int8, INITCOND = '0')"
                       % (aggregate.split("(")[0], types[2:] or "*", number))
    for name in relations(cursor):
        cursor.execute("CREATE VIEW evil.%s AS SELECT evil.spring() AS x" % name)
    cursor.execute("SELECT count(*) FROM pg_depend WHERE refclassid = 'pg_namespace'::regclass"
                   " AND refobjid = 'evil'::regnamespace")
    return cursor.fetchone()[0]


def relations(cursor):
    cursor.execute("SELECT relname FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v')")
    return sorted({row[0] for row in cursor.fetchall()} | set(OUR_RELATIONS))


def statements(cursor, role):
    """(name, statement, arguments) of what is asked."""
    every = matrix.EVERY_ROLE if role == "postgres" else "svua"
    found = [(name, matrix.call_of(name, [kind for _, kind in matrix.arguments_of(cursor, name)]), arguments)
             for name, (who, arguments) in matrix.FUNCTIONS.items() if set(who) & set(every)]
    found += [(name, "SELECT * FROM poll_tally.%s" % name, None)
              for name, who in matrix.VIEWS.items() if set(who) & set(every)]
    found.append(("inbox", "INSERT INTO poll_tally.inbox (poll, event_id, choice, principal) VALUES ('p', 'new', 'a', 'otto')", None))
    found.append(("accept_rows", "INSERT INTO public.mine VALUES ('p', 'new', 'a', 'otto') RETURNING id", None))
    return found


# Times, ages and numbers that change by themselves; of these only that there is an answer, and of how many columns.
TIME = re.compile(r"datetime\.(datetime\([^)]*(\([^)]*\))?[^)]*\)|timedelta\([^)]*\))|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.\d]*")
RESTLESS = {"stats", "metrics", "stats_counters", "workers", "worker_rows", "lag", "progress", "stalled", "publisher_counts", "blockers"}


def ask(connection, name, statement, arguments):
    """The answer as text; whatever it did is undone."""
    with connection.cursor() as cursor:
        try:
            cursor.execute(statement, arguments)
            rows = cursor.fetchall() if cursor.description else []
            rows = [tuple(bytes(value) if isinstance(value, memoryview) else value for value in row) for row in rows]
            answer = "%d columns" % len(cursor.description or []) if name in RESTLESS else TIME.sub("TIME", repr(rows))
        except psycopg2.Error as error:
            answer = "%s %s" % (error.pgcode, error.diag.message_primary)
    connection.rollback()
    return answer


def session(dsn, role, path):
    connection = psycopg2.connect("%s user=%s" % (dsn, role))
    with connection.cursor() as cursor:
        if path:
            for name in relations(cursor):
                cursor.execute("CREATE TEMP VIEW %s AS SELECT evil.spring() AS x" % name)
            cursor.execute("SET search_path = " + path)
    connection.commit()
    return connection


# Each has to spring its trap, or the others prove nothing.
BAIT = ["SELECT md5('x'::pg_catalog.text)", "SELECT 1 + 1", "SELECT 'a'::pg_catalog.text = 'a'", "SELECT 'a'::text",
        "SELECT count(*) FROM (VALUES (1)) AS v", "SELECT * FROM pg_class", "SELECT * FROM ledger", "SELECT now()",
        "SELECT '{}'::jsonb", "SELECT '{}'::tally", "SELECT sum(1::pg_catalog.int8)",
        "SELECT 'a'::pg_catalog.text || 'b'::pg_catalog.text"]


def baits_taken(connection):
    return sum(ask(connection, "", bait, None).startswith("TRAPS") for bait in BAIT)


CASTS = """
CREATE TYPE evil.shape AS ENUM ('p', 'new', 'a', 'e', 'screen');
CREATE FUNCTION evil.as_text(evil.shape) RETURNS pg_catalog.text LANGUAGE plpgsql AS $$
BEGIN
    IF current_user <> session_user THEN
        PERFORM evil.spring();
    END IF;
    RETURN $1::pg_catalog.text COLLATE pg_catalog."C";
END $$;
CREATE CAST (evil.shape AS pg_catalog.text) WITH FUNCTION evil.as_text(evil.shape) AS IMPLICIT;
"""


def hostile_casts(dsn):
    """Casts of her own type run as mallory; over ours she has no say. Returns how many were refused, and wrong answers."""
    connection = psycopg2.connect(dsn + " user=mallory")
    connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute(CASTS.replace("$1::pg_catalog.text", "pg_catalog.textin(pg_catalog.enum_out($1))"))
    wrong, refused = [], 0
    for sql, expected in (("SELECT outcome::pg_catalog.text FROM poll_tally.accept_event('p'::evil.shape, 'new'::evil.shape, 'a'::evil.shape)", "invalid"),
                          ("SELECT status FROM poll_tally.event_status('e'::evil.shape)", "accepted"),
                          ("SELECT poll FROM poll_tally.snapshot('p'::evil.shape)", "p")):
        cursor.execute(sql)
        answer = cursor.fetchone()[0]
        if answer != expected:
            wrong.append("%s: %s" % (sql, answer))
    for source, target in (("poll_tally.outcome", "pg_catalog.text"), ("poll_tally.tally", "pg_catalog.text"),
                           ("pg_catalog.text", "poll_tally.tally"), ("poll_tally.event_position", "pg_catalog.int8"),
                           ("poll_tally.ident", "pg_catalog.jsonb")):
        try:
            cursor.execute("CREATE CAST (%s AS %s) WITH INOUT AS IMPLICIT" % (source, target))
            wrong.append("a cast from %s to %s was made" % (source, target))
        except psycopg2.errors.InsufficientPrivilege:
            refused += 1
    connection.close()
    return refused, wrong


def run(dsn):
    superuser = psycopg2.connect(dsn)
    superuser.autocommit = True
    cursor = superuser.cursor()
    cursor.execute("; ".join((matrix.role_sql("mallory"), matrix.role_sql("screen"), "CREATE EXTENSION poll_tally", matrix.SETUP)))
    for kind in ("submitter", "viewer", "auditor", "admin"):
        cursor.execute("SELECT poll_tally.grant_%s('mallory')" % kind)
    cursor.execute("GRANT CREATE ON DATABASE %s TO mallory" % superuser.info.dbname)
    traps = psycopg2.connect(dsn + " user=mallory")
    traps.autocommit = True
    count = set_traps(traps.cursor())
    cursor.execute("CREATE TABLE public.mine (poll text, id text, choice text, who text);"
                   "CREATE TRIGGER t AFTER INSERT ON public.mine REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION"
                   " poll_tally.accept_rows('poll=poll', 'event_id=id', 'choice=choice', 'principal=who');"
                   "GRANT ALL ON public.mine TO mallory")
    wrong, asked, taken, errors = [], 0, [], []
    for role in ("mallory", "postgres"):
        questions = statements(cursor, role)
        calm = session(dsn, role, None)
        expected = {(name, statement): ask(calm, name, statement, arguments) for name, statement, arguments in questions}
        errors += [name + ": " + answer for (name, _), answer in expected.items() if re.match(r"[0-9A-Z]{5} ", answer)]
        for order in (questions, questions[::-1]):
            trapped = session(dsn, role, "evil, pg_catalog, public")
            for name, statement, arguments in order:
                answer = ask(trapped, name, statement, arguments)
                asked += 1
                if answer != expected[name, statement]:
                    wrong.append("%s, %s: %s, not %s" % (role, name, answer[:200], expected[name, statement][:200]))
            taken.append(baits_taken(trapped))
            trapped.close()
        calm.close()
    refused, wrong_casts = hostile_casts(dsn)
    wrong += wrong_casts
    for line in wrong[:20]:
        print("# wrong: " + line)
    print("# errors in both: " + "; ".join(errors))
    print("traps=%d\nasked=%d\nerrors=%d\nwrong=%d" % (count, asked, len(errors), len(wrong)))
    print("baits=%d\nbaits_taken=%d\ncasts_refused=%d" % (len(BAIT), min(taken), refused))


if __name__ == "__main__":
    run(sys.argv[1])
