"""Reads what gcov counted and judges the lines of src/ that no test reached.

    coverage.py FOLDER REASONS

FOLDER holds sources, .gcno and .gcda files of a build with --coverage. REASONS is a file of entries "NAME.c: TEXT =>
REASON", TEXT being the line without its indentation: lines that no test can reach, and why. Prints the share of lines
reached, each line that is not and has no reason, and each reason that no longer meets such a line; fails on either.
"""

import collections
import glob
import os
import subprocess
import sys
import tempfile


def count_lines(folder):
    """{(file, line): (executions, text)} of the .c files of the folder."""
    lines = {}
    with tempfile.TemporaryDirectory() as scratch:
        # gcov looks for the sources where the compiler found them, and writes where it runs.
        os.symlink(os.path.abspath(folder), f"{scratch}/src")
        notes = sorted(glob.glob("src/*.gcno", root_dir=scratch))
        subprocess.run(["gcov", "--preserve-paths", *notes], cwd=scratch, check=True, capture_output=True)
        for path in glob.glob(f"{scratch}/*.c.gcov"):
            name = None
            with open(path, encoding="utf-8") as file:
                for line in file:
                    count, number, text = line.rstrip("\n").split(":", 2)
                    count, number = count.strip(), int(number)
                    if number == 0 and text.startswith("Source:"):
                        name = os.path.basename(text[len("Source:"):])
                    elif number > 0 and count != "-":
                        reached = 0 if count in ("#####", "=====") else int(count.rstrip("*"))
                        lines[name, number] = (reached, text.strip())
    return lines


def read_reasons(path):
    reasons = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                place, reason = line.rstrip("\n").split(" => ", 1)
                name, text = place.split(": ", 1)
                assert reason.strip(), line
                reasons[name, text] = reason
    return reasons


def main():
    folder, path = sys.argv[1:]
    lines = count_lines(folder)
    reasons = read_reasons(path)
    used = set()
    unexplained = []
    missed = collections.Counter()
    for (name, number), (reached, text) in sorted(lines.items()):
        if reached:
            continue
        missed[name] += 1
        if (name, text) in reasons:
            used.add((name, text))
        else:
            unexplained.append(f"{name}:{number}: {text}")
    total, reached = len(lines), len(lines) - sum(missed.values())
    assert total > 0, "no counters were found"
    print("\n".join(unexplained))
    for name, text in sorted(set(reasons) - used):
        print(f"# reached after all, or gone: {name}: {text}")
    print(f"figure: {reached} of {total} lines of src/ reached ({100 * reached / total:.1f} %), "
          f"{total - reached - len(unexplained)} not reached for a reason, {len(unexplained)} without one")
    sys.exit(1 if unexplained else 0)


main()
