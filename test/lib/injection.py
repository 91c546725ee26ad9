"""A list of strings that break careless code, through every textual argument of every function; and polls that live
under such names.

usage: injection.py DSN SHARE SEED         SHARE: of the list, one string in so many

Parameters are bound. After all strings went through an argument everything outside our tables is compared with what it
was: relations, functions, types, roles, privileges, settings, a table of somebody else; then it is rolled back. An
answer is a verdict or an SQLSTATE that the documents name; a syntax error, an internal error or a statement that does
not come back is not. Then every string that is an identifier is poll, choice, event id, principal and source at once,
for a whole life, beside triggers on tables and columns of that name, and titles, labels and payloads come back byte by
byte. Prints NAME=VALUE lines.
"""

import collections
import itertools
import sys

import libpq
import matrix

import psycopg2

STRINGS = [
    "'", "''", '"', '""', "\\", "\\'", "\\\\", ";", "--", "/*", "*/", "';", "'--", "');", "$1", "$$", "$a$", "%", "%s%n%x", "%1$s", ":x",
    "'; DROP TABLE public.canary; --", "\"; DROP TABLE public.canary; --", "'); DELETE FROM public.canary; --",
    "';DROP/**/TABLE/**/public.canary;--", "$$;DROP/**/TABLE/**/public.canary;$$", "x'||(SELECT/**/pg_sleep(60))||'",
    "'||(DELETE/**/FROM/**/public.canary)||'", "x' OR '1'='1", "';SELECT/**/pg_terminate_backend(pg_backend_pid());--",
    "1;ALTER/**/ROLE/**/mallory/**/SUPERUSER", "';SET/**/ROLE/**/postgres;--", "U&'\\0027'", "E'\\x27'", "\\x27", "&#39;", "%27",
    "poll_tally.ledger", "public.canary", "pg_catalog", "postgres", "mallory", "PUBLIC", "public", "-", "*", "NULL", "null", "DEFAULT",
    "true", "0", "-1", "1e999", "9223372036854775808", "{a,b}", '{"a": 1}', '{"a": "x"}', "{", "[", "}", "{{{{", "[]", "{}", "{NULL}",
    '{"a": 1, "a": 2}', "0/1", "0/0", "-1/-1", "99999999999/1", "infinity", "", " ", "\t", "\n", "a b", "\x01", "\x1b[2J", "\x7f", "é", "ÿ",
    "\u202e", "\U0001f642", "e\u0301", "../../etc/passwd", "<script>alert(1)</script>", "${jndi:x}", "`id`", "$(id)", "|id", "a" * 64,
    "a" * 65, "A" * 100000, "[" * 20000, b"\xff\xfe", b"\xc0\xa7", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80",
]
TEXTUAL = {"pg_catalog.text", "pg_catalog._text", "pg_catalog.jsonb", "pg_catalog._jsonb", "pg_catalog.regrole", "pg_catalog.cstring",
           "poll_tally.tally", "poll_tally.event_position", "pg_catalog.interval", "pg_catalog.timestamptz",
           "pg_catalog._timestamptz", "pg_catalog._int8", "pg_catalog.bool"}
# What may be answered, with the reason.
STATES = {
    "00000": "a verdict, or nothing found", "22023": "a bad argument", "22P02": "no such text of the type", "22003": "out of range",
    "22007": "no time", "22008": "no such time", "22021": "no UTF-8", "2202E": "arrays of unequal length", "P0002": "no such poll",
    "42710": "there already", "55000": "not in this state", "42704": "no such role", "42602": "no name of a role",
    "54001": "nested too deeply", "42501": "not eligible", "23505": "conflict, raised", "22004": "NULL in an array",
    "54000": "too long",
}

# Everything that is not ours to change, in one value.
FINGERPRINT = """
SELECT md5(concat_ws('|',
    (SELECT string_agg(c.oid || c.relname || c.relkind::text || c.relowner || coalesce(c.relacl::text, ''), ',' ORDER BY c.oid) FROM pg_class AS c),
    (SELECT string_agg(p.oid || p.proname || coalesce(p.proacl::text, ''), ',' ORDER BY p.oid) FROM pg_proc AS p WHERE p.oid >= 16384),
    (SELECT string_agg(t.oid || t.typname || coalesce(t.typacl::text, ''), ',' ORDER BY t.oid) FROM pg_type AS t WHERE t.oid >= 16384),
    (SELECT string_agg(r::text, ',' ORDER BY r.oid) FROM pg_authid AS r),
    (SELECT string_agg(m::text, ',' ORDER BY m::text) FROM pg_auth_members AS m),
    (SELECT string_agg(n::text, ',' ORDER BY n.oid) FROM pg_namespace AS n),
    (SELECT string_agg(t.oid || t.tgname, ',' ORDER BY t.oid) FROM pg_trigger AS t),
    (SELECT string_agg(s.name || s.setting, ',' ORDER BY s.name) FROM pg_settings AS s WHERE s.name NOT LIKE 'transaction%'),
    (SELECT string_agg(c::text, ',' ORDER BY c.i) FROM public.canary AS c), current_user, session_user))
"""


def fingerprint(connection):
    result = connection.run(FINGERPRINT)
    return result.rows or result.state


def in_array(value):
    """A string as the one element of an array's text form."""
    value = value if isinstance(value, bytes) else value.encode()
    return b'{"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"}'


def calls(cursor, strings):
    """(name, argument, statement, its place, arguments) of each call that differs from the sample in one argument."""
    for name, (_, sample) in matrix.FUNCTIONS.items():
        arguments = matrix.arguments_of(cursor, name)
        statement = matrix.call_of(name, [kind for _, kind in arguments])
        for number in range(len(arguments)):
            statement = statement.replace("%s", "$%d" % (number + 1), 1)
        for place, (argument, kind) in enumerate(arguments):
            if kind in TEXTUAL:
                for value in strings:
                    shapes = [value, in_array(value)] if kind.startswith("pg_catalog._") else [value]
                    for shape in shapes:
                        yield name, argument, statement, place, sample[:place] + [shape] + sample[place + 1:]


def renamed(sample, number):
    """New polls, ids and principals, so that no call meets what an earlier one has left."""
    for word in ("made", "new", "otto", "olga", "back"):
        sample = sample and sample.replace(word, word + str(number))
    return sample


def one_argument(connection, figures, name, argument, group):
    """All strings through one argument; yields what is wrong."""
    calm = fingerprint(connection)
    connection.must("BEGIN")
    for number, (*_, statement, place, values) in enumerate(group):
        values = [value if at == place else renamed(value, number) for at, value in enumerate(values)]
        connection.must("SAVEPOINT s")
        result = connection.run(statement, values)
        connection.must("RELEASE SAVEPOINT s" if result.state == "00000" else "ROLLBACK TO SAVEPOINT s")
        figures[result.state] += 1
        if result.state not in STATES:
            yield "%s(%s => %r): %s %s" % (name, argument, values[place][:60], result.state, result.fields.get("message", "")[:80])
    if not name.startswith(("grant_", "revoke_")) and fingerprint(connection) != calm:
        yield "%s(%s): something else is changed" % (name, argument)
    connection.must("ROLLBACK")


def through_every_argument(connection, cursor, strings, figures):
    arguments, wrong = 0, []
    for (name, argument), group in itertools.groupby(calls(cursor, strings), lambda call: call[:2]):
        arguments += 1
        wrong += one_argument(connection, figures, name, argument, group)
    return arguments, wrong


CARELESS = """
CREATE FUNCTION public.careless(t text) RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
    EXECUTE 'SELECT ''' || t || '''';
END $f$
"""


def careless_is_caught(connection):
    """A function that puts its argument between quotes: the list finds it, by syntax errors and by what it changes."""
    connection.must(CARELESS)
    group = [("careless", "t", "SELECT public.careless($1)", 0, [value]) for value in STRINGS
             if "pg_sleep" not in str(value) and "pg_terminate" not in str(value)]
    found = list(one_argument(connection, collections.Counter(), "careless", "t", group))
    connection.must("DROP FUNCTION public.careless(text)")
    return any(": 42601" in line for line in found) and any("is changed" in line for line in found)


def is_identifier(value):
    return isinstance(value, str) and 1 <= len(value) <= 64 and all(0x21 <= ord(c) <= 0x7e and c not in '"\\' for c in value)


def one_life(connection, name):
    """name as everything that can have a name; returns what is not as it was given."""
    free = "title of " + name
    one = lambda sql, *values: connection.must(sql, values)[0]
    connection.must("SELECT poll_tally.create_poll($1, ARRAY[$1, 'other'], title => $2)", [name, free])
    connection.must("SELECT poll_tally.add_choice($1, 'third', $2)", [name, free])
    expected = name.encode()
    got = {
        "accept": one("SELECT outcome, event_id FROM poll_tally.accept_event($1, $1, $1, $1, payload => to_jsonb($2::text), source => $1,"
                      " source_partition => 0, source_offset => 1)", name, free) == (b"accepted", expected),
        "again": one("SELECT outcome FROM poll_tally.accept_event($1, $1, $1, $1, payload => to_jsonb($2::text))", name, free) == (b"duplicate",),
        "status": one("SELECT poll FROM poll_tally.event_status($1)", name) == (expected,),
        "event": one("SELECT poll, event_id, principal, votes OPERATOR(poll_tally.->) $1, payload #>> '{}', source FROM poll_tally.events"
                     " WHERE event_id = $1", name) == (expected, expected, expected, b"1", free.encode(), expected),
        "poll": one("SELECT title FROM poll_tally.polls WHERE poll = $1", name) == (free.encode(),),
        "label": one("SELECT label FROM poll_tally.choices WHERE poll = $1 AND choice = 'third'", name) == (free.encode(),),
        "results": one("SELECT count FROM poll_tally.results WHERE poll = $1 AND choice = $1", name) == (b"1",),
        "results_of": one("SELECT count FROM poll_tally.results_of($1, ARRAY[$1])", name) == (b"1",),
        "feed": one("SELECT event_id FROM poll_tally.events_after($1)", name) == (expected,),
        "cursor": one("SELECT poll_tally.advance_source($1, 0, 2), poll_tally.source_position($1, 0)", name)[0] == b"2",
        "observed": one("SELECT poll_tally.observe_revision($1, $1, 1)", name) == (b"",),
        "published": one("SELECT (poll_tally.publish($1, true)).revision", name) == (b"2",),
        "message": one("SELECT poll_tally.snapshot_message($1) -> 'counts' ->> $1", name) == (b"1",),
        "retract": one("SELECT outcome FROM poll_tally.retract_event($1, $1, $2, $3)", name, name[:63] + "~", free) == (b"accepted",),
        "verify": one("SELECT bool_and(ok) FROM poll_tally.verify_poll($1)", name) == (b"t",),
        "trigger": trigger_life(connection, name),
        "closed": one("SELECT (poll_tally.close_poll($1)).final", name) == (b"t",),
    }
    connection.must("SELECT poll_tally.drop_poll($1)", [name])
    return [what for what, right in got.items() if not right]


def trigger_life(connection, name):
    """A table and a column of that name, and a constant in quotes."""
    quote = lambda text: connection.must("SELECT quote_ident($1), quote_literal($1)", [text])[0]
    table = quote(name)[0].decode()
    column = quote("#" + name[:40])[0].decode()
    constant = quote("poll=" + quote(name)[1].decode())[1].decode()
    field = quote("event_id=#" + name[:40])[1].decode()
    connection.must("CREATE TABLE public.%s (%s text)" % (table, column))
    connection.must("CREATE TRIGGER %s AFTER INSERT ON public.%s REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION"
                    " poll_tally.accept_rows(%s, %s, 'choice=''third''', 'principal=''trigger''')" % (table, table, constant, field))
    connection.must("INSERT INTO public.%s VALUES ($1)" % table, ["by-trigger"])
    connection.must("DROP TABLE public.%s" % table)
    return connection.must("SELECT poll FROM poll_tally.event_status('by-trigger')")[0][0] == name.encode()


def run(dsn, share, seed):
    strings = STRINGS[seed % share::share]
    superuser = psycopg2.connect(dsn)
    superuser.autocommit = True
    cursor = superuser.cursor()
    cursor.execute("; ".join((matrix.role_sql("mallory"), matrix.role_sql("screen"), "CREATE EXTENSION poll_tally", matrix.SETUP)))
    cursor.execute("CREATE TABLE public.canary (i int PRIMARY KEY, t text); INSERT INTO public.canary VALUES (1, 'sings')")
    connection = libpq.Connection(dsn)
    connection.must("SET statement_timeout = '20s'")
    figures = collections.Counter()
    arguments, wrong = through_every_argument(connection, cursor, strings, figures)
    names = [value for value in strings if is_identifier(value)]
    for name in names:
        wrong += ["life of %r: %s" % (name, what) for what in one_life(connection, name)]
    wrong += ["the canary is gone"] if connection.must("SELECT t FROM public.canary") != [(b"sings",)] else []
    for line in wrong[:20]:
        print("# wrong: " + line)
    print("# SQLSTATEs: " + ", ".join("%s %d" % pair for pair in sorted(figures.items())))
    print("strings=%d\narguments=%d\ncalls=%d\nnames=%d\nwrong=%d\ncareless_caught=%d"
          % (len(strings), arguments, sum(figures.values()), len(names), len(wrong), careless_is_caught(connection)))


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
