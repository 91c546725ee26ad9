#!/usr/bin/python3
"""Binds every argument of every function in the view calls with psycopg2, and reads every column in reads as text.

usage: bind.py        prints how many calls were found and how many values were read; the casts are those of the reference
"""

from datetime import datetime, timedelta, timezone

import psycopg2
from psycopg2.extras import Json

NOW = datetime.now(timezone.utc)
VALUES = {
    "text": ("x'", "%s"), "integer": (1, "%s"), "bigint": (2**40, "%s"), "boolean": (True, "%s"), "interval": (timedelta(1), "%s"),
    "jsonb": (Json({"a": '"\\'}), "%s"), "timestamp with time zone": (NOW, "%s"), "text[]": (["x'", "{,}"], "%s"),
    "bigint[]": ([1, 2], "%s"), "jsonb[]": ([Json({"a": '"\\'}), None], "%s::jsonb[]"), "timestamp with time zone[]": ([NOW, None], "%s"),
    "regrole": ("postgres", "%s"), "poll_tally.tally": ('{"a": 1}', "%s"), "poll_tally.event_position": ("0/1", "%s"),
}


def main():
    bound = read = 0
    with psycopg2.connect("") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT name, names, types FROM calls")
        for name, names, types in cursor.fetchall():
            arguments = ", ".join("%s => %s" % (argument, VALUES[type][1]) for argument, type in zip(names, types))
            cursor.execute("EXPLAIN SELECT poll_tally.%s(%s)" % (name, arguments), [VALUES[type][0] for type in types])
            bound += 1
        cursor.execute("SELECT source FROM reads")
        for source, in cursor.fetchall():
            cursor.execute("SELECT * FROM poll_tally." + source)
            read += sum(isinstance(str(value), str) for row in cursor for value in row if value is not None)
    print("bound=%d\nread=%d" % (bound, read))


if __name__ == "__main__":
    main()
