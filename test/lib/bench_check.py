"""Shows that the benchmark refuses figures of a database in which something else is counted than what was sent.

usage: bench_check.py HOST PORT TOOLS FAST

Prints a line NAME=MESSAGE for each thing that is done to a database behind the benchmark's back: what the benchmark
says of it, or "not noticed".
"""

import os
import sys
from types import SimpleNamespace

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))

from lib.place import FORMS, Mismatch, Place  # noqa: E402

DONE = {
    "nothing": [],
    "an_event_more": ["SELECT poll_tally.accept_event('1', 'more', '0')"],
    "counts_moved": ["UPDATE poll_tally.lane SET counts = '{\"1\": 3}'"],
    "a_row_more": ["INSERT INTO usual.event VALUES ('more', '1', '0')"],
    "a_count_less": ["UPDATE usual.count SET count = count - 1 WHERE choice = '0'"],
}


def look(place, statements):
    try:
        with place.database("check", disk_us=80) as database:
            database.make_polls(1)
            for number in range(3):
                database.run("SELECT poll_tally.accept_event('1', %s, '0')", str(number))
            database.sent["ours"] += 3
            for statement in statements:
                database.run(statement)
    except Mismatch as mismatch:
        return str(mismatch)
    return "not noticed"


def main(host, port, tools, fast):
    place = Place(SimpleNamespace(host=host, port=port, disk_port=port, tools=tools, fast=fast), FORMS["smoke"])
    for name, statements in DONE.items():
        print("%s=%s" % (name, look(place, statements).replace("\n", " ")))


if __name__ == "__main__":
    main(*sys.argv[1:])
