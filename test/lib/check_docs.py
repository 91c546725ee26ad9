"""Runs the SQL of Markdown files and compares what psql prints with what the files say.

usage: check_docs.py [--write] FILE...

All ```sql blocks of a file are run in order, in one psql session, in a fresh database of the server that the
environment names (PGHOST, PGPORT, PGUSER). A ```text block that follows a ```sql block holds the expected output of
psql, errors included. A ```sql block that none follows must run without an error.

Compared is text, with three differences allowed for. A time of day and an epoch (16 hex digits) are as good as any
other; since the fraction of a time has up to six digits, the widths of columns do not count in a block that shows one.
Blanks at the ends of lines do not count: an editor may remove them.

The result is TAP, one test a ```sql block. With --write, blocks that differ are rewritten with what was printed; read
the difference before you keep it. Roles that a file makes are dropped at its end, with the database.
"""

import difflib
import os
import re
import subprocess
import sys
from dataclasses import dataclass

TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d(:\d\d)?|Z)?")
EPOCH = re.compile(r"(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f])")
SHOWN = 3  # differences a file
MARK = "check_docs: end of block"
# Before a block that looks at the publisher: it comes up a moment after the extension does.
LOOKS_AT_PUBLISHER = re.compile(r"poll_tally\.workers|poll_tally publisher")
AWAIT_PUBLISHER = r"""\o /dev/null
DO $$
BEGIN
    FOR try IN 1..1200 LOOP
        EXIT WHEN (SELECT count(*) > 0 FROM poll_tally.workers AS w
                   WHERE w.database = current_database() AND w.pid IS NOT NULL AND w.state IN ('idle', 'busy'));
        PERFORM pg_sleep(0.05);
    END LOOP;
END
$$;
\o
"""
SESSION = {"PGTZ": "UTC", "PGCLIENTENCODING": "UTF8", "PGOPTIONS": "", "PGAPPNAME": "check_docs", "LC_ALL": "C.UTF-8"}


@dataclass
class Block:
    line: int  # of its first line in the file, from 1
    sql: list
    expected: tuple | None = None  # (first, last) of the lines of the text block, as a slice of the file's


def fenced(lines):
    """(language, first, last) of each fenced block; lines[first:last] is what it holds."""
    language = None
    for number, line in enumerate(lines):
        if language is None and line.startswith("```"):
            language, first = line[3:].strip(), number + 1
        elif language is not None and line.rstrip() == "```":
            yield language, first, number
            language = None
    if language is not None:
        raise ValueError(f"the block at line {first} has no end")


def blocks_of(lines):
    blocks, end = [], None
    for language, first, last in fenced(lines):
        if language == "sql":
            blocks.append(Block(first, lines[first:last]))
        elif language == "text" and end is not None and not "".join(lines[end + 1:first - 1]).strip():
            blocks[-1].expected = (first, last)
        end = last if language == "sql" else None
    return blocks


def psql(database, script, *options):
    """What psql prints for a script that it reads from its standard input, and its exit status."""
    result = subprocess.run(["psql", "-X", "-d", database, *options], input=script, env=os.environ | SESSION,
                            encoding="utf-8", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return result.stdout, result.returncode


def administer(*statements):
    script = "".join(f"{statement};\n" for statement in statements)
    output, status = psql("postgres", script, "-v", "ON_ERROR_STOP=1", "-Atq")
    if status != 0:
        raise SystemExit(output)
    return output


def roles():
    return set(administer("SELECT rolname FROM pg_roles").split("\n"))


def run_blocks(blocks):
    """The lines that psql printed for each block; None for one that was not reached."""
    script = "".join(
        (AWAIT_PUBLISHER if any(map(LOOKS_AT_PUBLISHER.search, block.sql)) else "")
        + "\n".join(block.sql) + f"\n\\echo {MARK} {number}\n" for number, block in enumerate(blocks))
    before = roles()
    administer("DROP DATABASE IF EXISTS check_docs", "CREATE DATABASE check_docs")
    try:
        output, _ = psql("check_docs", script)
    finally:
        administer("DROP DATABASE check_docs WITH (FORCE)",
                   *(f'DROP ROLE "{role}"' for role in sorted(roles() - before)))
    printed = []
    for number in range(len(blocks)):
        part, mark, output = output.partition(f"{MARK} {number}\n")
        printed.append(trimmed(part.split("\n")) if mark else None)
    return printed


def trimmed(lines):
    """Without blanks at the ends of lines, and without empty lines at both ends."""
    return "\n".join(line.rstrip() for line in lines).strip("\n").split("\n")


def normalised(*texts):
    """The texts without what may differ; widths of columns go where any of them shows a time."""
    timed = any(TIME.search(text) for text in texts)
    for text in texts:
        text = EPOCH.sub("EPOCH", TIME.sub("TIME", text))
        if timed:
            text = re.sub(r"-{2,}", "--", re.sub(r" *$", "", re.sub(r" {2,}", " ", text), flags=re.MULTILINE))
        yield text


def what_differs(block, lines, printed):
    """The difference as text; empty when there is none."""
    if printed is None:
        return "psql did not come to the end of this block: is a statement unfinished?"
    if block.expected is None:
        return "\n".join(printed) if any(re.match(r"(ERROR|FATAL):|\S+: error:", line) for line in printed) else ""
    expected = "\n".join(trimmed(lines[slice(*block.expected)]))
    left, right = normalised(expected, "\n".join(printed))
    if left == right:
        return ""
    return "\n".join(difflib.unified_diff(expected.split("\n"), printed, "expected", "printed", lineterm=""))


def check(path, number, write):
    """Checks one file; the tests are numbered from `number`. Returns (number of the next, how many failed)."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    blocks, failed = blocks_of(lines), 0
    output = run_blocks(blocks)
    for block, printed in reversed(list(zip(blocks, output))) if write else []:
        if block.expected and printed is not None and what_differs(block, lines, printed):
            lines[slice(*block.expected)] = printed
    if write:
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))
        blocks = blocks_of(lines)
    for block, printed in zip(blocks, output):
        difference = what_differs(block, lines, printed)
        print(f"{'not ' if difference else ''}ok {number} - {path}:{block.line}", flush=True)
        if difference:
            failed += 1
            # What goes wrong first is often the reason for all that follows.
            if failed <= SHOWN:
                print(f"{path}:{block.line}:\n{difference}\n", file=sys.stderr, flush=True)
        number += 1
    return number, failed


def main(arguments):
    write = "--write" in arguments
    number, failures = 1, 0
    for path in (argument for argument in arguments if argument != "--write"):
        number, failed = check(path, number, write)
        failures += failed
    print(f"1..{number - 1}")
    return 1 if failures or number == 1 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
