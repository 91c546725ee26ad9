#!/usr/bin/python3
"""Runs the scenarios of the benchmark on servers that bench/run started; see README.md.

Writes the figures as JSON, and a table to standard output. Fails when a poll does not hold together, or when a side
counted something else than what was sent; a missed target is no failure.
"""

import argparse
import dataclasses
import datetime
import json
import os
import platform
import sys
import time

from lib import batch, many, report, single, size
from lib.place import FORMS, Mismatch, Place, connect

# Which scenarios a function measures. Those of LONG are left out unless asked for.
SCENARIOS = [
    ((1, 2), single.spread), ((3,), single.hot_fast), ((4,), single.hot_slow), ((5,), single.hot_against_spread),
    ((6,), single.retries), ((7,), batch.one_poll), ((8,), batch.many_polls), ((9,), batch.redis),
    ((10,), batch.one_transaction), ((11, 15), many.large), ((12,), many.held_back), ((13,), size.bytes_on_disk),
    ((14,), many.results), ((16,), single.seats), ((17,), size.memory),
]
LONG = {11, 12, 15}
SHOWN_SETTINGS = ("fsync", "synchronous_commit", "wal_sync_method", "full_page_writes", "shared_buffers", "max_wal_size",
                  "checkpoint_timeout", "autovacuum", "lc_collate", "poll_tally.publish")


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--form", choices=FORMS, default="full")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", required=True)
    parser.add_argument("--disk-port", required=True)
    parser.add_argument("--tools", required=True, help="where slow_disk.so and batches are")
    parser.add_argument("--fast", required=True, help="a folder in memory, with the file of the slow disk")
    parser.add_argument("--revision", default="unknown")
    parser.add_argument("--json", required=True)
    return parser.parse_args()


def chosen(given):
    known = {number for numbers, _ in SCENARIOS for number in numbers}
    if given.only:
        only = {int(number) for number in given.only.split(",")}
        if not only <= known:
            sys.exit("no such scenario: %s" % sorted(only - known))
        return only
    return known if given.form in ("long", "smoke") else known - LONG


def cpu():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return "%d x %s" % (os.cpu_count(), names[0] if names else platform.machine())


def machine(place, given):
    connection = connect(place.host, place.port, "postgres")
    cursor = connection.cursor()
    settings = {}
    for name in SHOWN_SETTINGS:
        cursor.execute("SELECT current_setting(%s, true)", (name,))
        settings[name] = cursor.fetchone()[0]
    cursor.execute("SELECT current_setting('server_version')")
    version = cursor.fetchone()[0]
    connection.close()
    with open("/proc/meminfo", encoding="utf-8") as file:
        memory_kb = int(file.readline().split()[1])
    return {"cpu": cpu(), "memory_gb": round(memory_kb / 1024 / 1024), "kernel": platform.release(), "server": version,
            "settings": settings, "revision": given.revision, "form": given.form,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "real_disk_flush_us": place.real_flush_us()}


def measure(place, wanted):
    rows = []
    for numbers, function in SCENARIOS:
        asked = wanted & set(numbers)
        if asked:
            start = time.monotonic()
            found = function(place, asked)
            for row in found:
                print(report.line(row), file=sys.stderr)
            print("scenario %s took %.0f s" % (", ".join(map(str, sorted(asked))), time.monotonic() - start),
                  file=sys.stderr, flush=True)
            rows += found
    return sorted(rows, key=lambda row: row["scenario"])


def main():
    given = arguments()
    form = FORMS[given.form]
    if given.rounds:
        form = dataclasses.replace(form, rounds=given.rounds)
    place = Place(given, form)
    head = machine(place, given)
    try:
        head["emulated_flush_us"] = place.emulated_flushes_us()
        rows = measure(place, chosen(given))
    except Mismatch as mismatch:
        sys.exit("bench: NOT VALID: %s" % mismatch)
    verified = [dict(zip(("scenario", "checks", "polls", "events"), entry)) for entry in place.verified]
    results = {"machine": head, "rows": rows, "verified": verified}
    with open(given.json, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    print(report.text(results), flush=True)


if __name__ == "__main__":
    main()
