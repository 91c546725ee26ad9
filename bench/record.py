#!/usr/bin/python3
"""Makes a run the recorded one: results/latest.json, results/latest.svg, and the table in README.md.

usage: record.py RESULTS.json [TREE]

RESULTS.json is what a run wrote. Scenarios that it did not measure keep the figures of the run that did.
"""

import json
import os
import sys

from lib import picture, report

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BEGIN, END = "<!-- figures, written by bench/run --record -->\n", "<!-- end of figures -->\n"


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main(path, tree=TREE):
    readme, results = os.path.join(tree, "README.md"), os.path.join(tree, "bench", "results")
    latest = os.path.join(results, "latest.json")
    recorded = json.loads(read(latest))["runs"] if os.path.exists(latest) else []
    runs = report.merged(recorded, json.loads(read(path)))
    before, marked, rest = read(readme).partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not marked or not ended:
        sys.exit("README.md has no place for the figures")
    os.makedirs(results, exist_ok=True)
    write(latest, json.dumps({"runs": runs}, indent=1) + "\n")
    write(os.path.join(results, "latest.svg"), picture.svg(report.all_rows(runs)))
    figures = "\n![Ratio of ours to theirs, with targets](bench/results/latest.svg)\n\n" + report.markdown(runs) + "\n"
    write(readme, before + BEGIN + figures + END + after)


if __name__ == "__main__":
    main(*sys.argv[1:])
