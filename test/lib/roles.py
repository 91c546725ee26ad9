"""The privilege matrix by real attempts: every object, every verb, every role, each logged in for itself.

usage: roles.py DSN

What is expected stands in matrix.py; what is tried comes from there and from the catalog, and an object that the table
does not know, or knows and is not there, is a mistake. An attempt is one statement in a transaction that is rolled back.
It was denied when it raised 42501, and otherwise not, whatever else it met. Two exceptions: a view that cannot be
written to says so before anybody looks at privileges, and a setting that only a reload changes has a state of its own.
Prints NAME=VALUE lines.
"""

import collections
import io
import sys

import psycopg2

import matrix

ROLES = {"s": "site", "v": "screen", "u": "office", "a": "organiser", "o": "keeper", "-": "stranger", "x": "outsider"}
GRANTS = {"s": "submitter", "v": "viewer", "u": "auditor", "a": "admin"}
DENIED = {"42501"}
DENIED_FOR = {"write a view": DENIED | {"55000", "0A000", "42809"}, "SET": DENIED | {"55P02"}}


def set_up(connection):
    """A keeper installs, and is no superuser any more."""
    with connection.cursor() as cursor:
        for letter, role in ROLES.items():
            cursor.execute(matrix.role_sql(role))
            cursor.execute("CREATE SCHEMA own_%s AUTHORIZATION %s" % (role, role))
            cursor.execute("CREATE FUNCTION own_%s.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'" % role)
            cursor.execute("ALTER FUNCTION own_%s.nothing() OWNER TO %s" % (role, role))
            cursor.execute("CREATE TABLE own_%s.mine (poll text, id text)" % role)
            cursor.execute("ALTER TABLE own_%s.mine OWNER TO %s" % (role, role))
        cursor.execute("ALTER ROLE keeper SUPERUSER; SET SESSION AUTHORIZATION keeper; CREATE EXTENSION poll_tally")
        cursor.execute("RESET SESSION AUTHORIZATION; ALTER ROLE keeper NOSUPERUSER; SET SESSION AUTHORIZATION keeper")
        for letter, kind in GRANTS.items():
            cursor.execute("SELECT poll_tally.grant_%s('%s')" % (kind, ROLES[letter]))
        cursor.execute("GRANT USAGE ON SCHEMA poll_tally TO stranger; " + matrix.SETUP)
        cursor.execute("RESET SESSION AUTHORIZATION")


class Attempts:
    """What is tried: (what, verb, who may, statement, arguments)."""

    def __init__(self, connection):
        self.cursor = connection.cursor()
        self.list = []
        self.mistakes = []

    def add(self, what, verb, who, statement, arguments=()):
        self.list.append((what, verb, who, statement, arguments))

    def compare(self, kind, known, sql):
        self.cursor.execute(sql)
        there = {row[0] for row in self.cursor.fetchall()}
        for name in there ^ set(known):
            self.mistakes.append("%s %s is %s" % (kind, name, "not in the table" if name in there else "not there"))

    def functions(self):
        known = set(matrix.FUNCTIONS) | set(matrix.TRIGGER_FUNCTIONS) | set(matrix.INTERNAL_FUNCTIONS)
        self.compare("function", known, "SELECT proname FROM pg_proc WHERE pronamespace = 'poll_tally'::regnamespace")
        for name, (who, arguments) in matrix.FUNCTIONS.items():
            self.add(name, "EXECUTE", who, matrix.call_of(name, [kind for _, kind in matrix.arguments_of(self.cursor, name)]), arguments)
            self.add(name, "DROP", "o", "DROP ROUTINE poll_tally.%s" % name)
            self.add(name, "ALTER", "o", "ALTER ROUTINE poll_tally.%s RENAME TO other" % name)
        for name, who in matrix.TRIGGER_FUNCTIONS.items():
            self.add(name, "EXECUTE", who, "CREATE TRIGGER t AFTER INSERT ON {own}.mine FOR EACH STATEMENT"
                     " EXECUTE FUNCTION poll_tally.%s()" % name)
            self.add(name, "DROP", "o", "DROP ROUTINE poll_tally.%s" % name)

    def relation(self, name, select, insert):
        column = self.column_of(name)
        what = "poll_tally." + name
        self.add(name, "SELECT", select, "SELECT * FROM %s LIMIT 1" % what)
        self.add(name, "SELECT count(*)", select, "SELECT pg_catalog.count(*) FROM %s" % what)
        for verb, who, statement in (("INSERT", insert, "INSERT INTO %s DEFAULT VALUES" % what),
                                     ("UPDATE", "o", "UPDATE %s SET %s = NULL" % (what, column)),
                                     ("DELETE", "o", "DELETE FROM %s" % what),
                                     ("COPY FROM", insert, "COPY %s FROM STDIN" % what)):
            # The owner may do what it can to a view; that is no matter of privileges.
            reserved = name in matrix.VIEWS and who == "o"
            self.add(name, "write a view" if reserved else verb, who, statement)
        self.add(name, "COPY TO", select, "COPY (SELECT * FROM %s) TO STDOUT" % what)
        self.add(name, "LOCK", "o", "LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT" % what)
        self.add(name, "COMMENT", "o", "COMMENT ON %s %s IS 'mine'" % ("VIEW" if name in matrix.VIEWS else "TABLE", what))
        self.add(name, "ALTER", "o", "ALTER TABLE %s RENAME TO other" % what)
        self.add(name, "DROP", "o", "DROP %s %s" % ("VIEW" if name in matrix.VIEWS else "TABLE", what))

    def column_of(self, name):
        self.cursor.execute("SELECT quote_ident(attname) FROM pg_attribute WHERE attnum = 1 AND attrelid = %s::regclass",
                            ("poll_tally." + name,))
        return self.cursor.fetchone()[0]

    def relations(self):
        self.compare("table", matrix.TABLES, RELATIONS_OF_KIND % "r")
        self.compare("view", matrix.VIEWS, RELATIONS_OF_KIND % "v")
        self.compare("sequence", matrix.SEQUENCES, RELATIONS_OF_KIND % "S")
        for name in matrix.TABLES:
            what = "poll_tally." + name
            self.relation(name, "o", "o")
            self.add(name, "TRUNCATE", "o", "TRUNCATE %s" % what)
            self.add(name, "REFERENCES", "o", "CREATE TABLE {own}.other (LIKE %s, FOREIGN KEY (%s) REFERENCES %s)"
                     % (what, self.key_of(name), what))
            self.add(name, "TRIGGER", "o", "CREATE TRIGGER t BEFORE INSERT ON %s EXECUTE FUNCTION {own}.nothing()" % what)
            self.add(name, "INDEX", "o", "CREATE INDEX ON %s (%s)" % (what, self.column_of(name)))
            self.add(name, "POLICY", "o", "ALTER TABLE %s ENABLE ROW LEVEL SECURITY" % what)
        for name, who in matrix.VIEWS.items():
            self.relation(name, who, matrix.INBOX_INSERT if name == "inbox" else "o")
            self.add(name, "TRIGGER", "o", "CREATE TRIGGER t INSTEAD OF UPDATE ON poll_tally.%s FOR EACH ROW"
                     " EXECUTE FUNCTION {own}.nothing()" % name)
        for name in matrix.SEQUENCES:
            for call in ("nextval('%s')", "setval('%s', 1)", "last_value FROM %s"):
                self.add(name, call[:7], "o", "SELECT " + call % ("poll_tally." + name))

    def key_of(self, name):
        self.cursor.execute("SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY k.place) FROM pg_index AS i"
                            " CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)"
                            " JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum"
                            " WHERE i.indisprimary AND i.indrelid = %s::regclass", ("poll_tally." + name,))
        return self.cursor.fetchone()[0]

    def others(self):
        for name, who in matrix.TYPES.items():
            self.add(name, "USAGE", who, "CREATE TABLE {own}.other (c poll_tally.%s)" % name)
            self.add(name, "ALTER", "o", "ALTER %s poll_tally.%s RENAME TO other"
                     % ("DOMAIN" if name == "ident" else "TYPE", name))
        for statement in ("CREATE TABLE poll_tally.other (i int)", "CREATE VIEW poll_tally.other AS SELECT 1",
                          "CREATE FUNCTION poll_tally.accept_event() RETURNS int LANGUAGE sql RETURN 1",
                          "CREATE OPERATOR poll_tally.+ (FUNCTION = int4pl, LEFTARG = int4, RIGHTARG = int4)"):
            self.add("schema", statement.split("(")[0], "o", statement)
        for statement in ("DROP EXTENSION poll_tally CASCADE", "ALTER EXTENSION poll_tally UPDATE",
                          "ALTER EXTENSION poll_tally DROP VIEW poll_tally.events", "DROP SCHEMA poll_tally CASCADE",
                          "ALTER EXTENSION poll_tally ADD FUNCTION {own}.nothing()"):
            self.add("extension", statement, "o", statement)
        for name in matrix.SETTINGS:
            self.add(name, "SET", "", "SET %s = DEFAULT" % name)


RELATIONS_OF_KIND = "SELECT relname FROM pg_class WHERE relnamespace = 'poll_tally'::regnamespace AND relkind = '%s'"


def attempt(connection, statement, arguments):
    """The SQLSTATE of a statement, '00000' for none; whatever it did is undone."""
    with connection.cursor() as cursor:
        try:
            if statement.startswith("COPY"):
                cursor.copy_expert(statement, io.StringIO())
            else:
                cursor.execute(statement, arguments or None)
            state = "00000"
        except psycopg2.Error as error:
            state = error.pgcode
    connection.rollback()
    return state


def tried(dsn, letter, attempts):
    """Make these attempts as one role; yields each with its SQLSTATE and whether that is what the table says."""
    connection = psycopg2.connect(dsn + " user=" + ROLES[letter])
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '10s'")
    connection.commit()
    for what, verb, who, statement, arguments in attempts:
        if letter == "o" and verb == "write a view":
            continue
        state = attempt(connection, statement.replace("{own}", "own_" + ROLES[letter]), arguments)
        yield what, verb, state, (state in DENIED_FOR.get(verb, DENIED)) != (letter in who)
    connection.close()


def by_catalog(cursor):
    """What SQL cannot call."""
    for name, who in matrix.INTERNAL_FUNCTIONS.items():
        for letter, role in ROLES.items():
            cursor.execute("SELECT has_schema_privilege(%s, 'poll_tally', 'USAGE') AND has_function_privilege(%s, oid, 'EXECUTE')"
                           " FROM pg_proc WHERE pronamespace = 'poll_tally'::regnamespace AND proname = %s", (role, role, name))
            yield name, role, cursor.fetchone()[0] == (letter in who)


def ledger_refusals(dsn):
    """Even its owner cannot change the ledger."""
    connection = psycopg2.connect(dsn + " user=keeper")
    states = [attempt(connection, verb + " poll_tally.ledger" + rest, ())
              for verb, rest in (("UPDATE", " SET reason = NULL"), ("DELETE FROM", ""), ("TRUNCATE", ""))]
    connection.close()
    return states


# What a slip would be; each has to be noticed.
SLIPS = [("v", "events", "GRANT SELECT ON poll_tally.events TO screen"),
         ("v", "accept_event", "GRANT EXECUTE ON FUNCTION poll_tally.accept_event TO PUBLIC"),
         ("-", "ledger", "GRANT INSERT ON poll_tally.ledger TO PUBLIC"),
         ("a", "close_poll", "REVOKE EXECUTE ON FUNCTION poll_tally.close_poll FROM organiser"),
         ("u", "ident", "GRANT USAGE ON DOMAIN poll_tally.ident TO office"),
         ("s", "outcome", "REVOKE USAGE ON TYPE poll_tally.outcome FROM site"),
         ("v", "schema", "GRANT CREATE ON SCHEMA poll_tally TO screen")]


def slips_noticed(dsn, superuser, attempts):
    noticed = 0
    for letter, name, slip in SLIPS:
        with superuser.cursor() as cursor:
            cursor.execute(slip)
        noticed += any(not right for *_, right in tried(dsn, letter, [a for a in attempts if a[0] == name]))
    return noticed


def run(dsn):
    superuser = psycopg2.connect(dsn)
    superuser.autocommit = True
    set_up(superuser)
    attempts = Attempts(superuser)
    attempts.functions()
    attempts.relations()
    attempts.others()
    wrong, count, allowed = attempts.mistakes, 0, collections.Counter()
    for letter, role in ROLES.items():
        for what, verb, state, right in tried(dsn, letter, attempts.list):
            count += 1
            allowed[state] += state not in DENIED_FOR.get(verb, DENIED)
            if not right:
                wrong.append("%s: %s %s: %s" % (role, verb, what, state))
    catalog = list(by_catalog(attempts.cursor))
    wrong += ["%s: EXECUTE %s by the catalog" % (role, name) for name, role, right in catalog if not right]
    for line in wrong[:20]:
        print("# wrong: " + line)
    print("# what was allowed ended with: " + ", ".join("%s %d" % pair for pair in sorted(allowed.items()) if pair[1]))
    print("attempts=%d\nallowed=%d\nby_catalog=%d\nwrong=%d" % (count, sum(allowed.values()), len(catalog), len(wrong)))
    print("roles=%d\nobjects=%d" % (len(ROLES), len({what for what, *_ in attempts.list})))
    print("ledger=%s" % " ".join(ledger_refusals(dsn)))
    print("slips=%d\nslips_noticed=%d" % (len(SLIPS), slips_noticed(dsn, superuser, attempts.list)))


if __name__ == "__main__":
    run(sys.argv[1])
