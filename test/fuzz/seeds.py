"""Writes the seeds of the fuzz targets: the literals of the SQL tests, and wire forms of the tallies among them.

    seeds.py TREE FOLDER        makes FOLDER/TARGET.seeds/
"""

import glob
import hashlib
import json
import os
import re
import struct
import sys

LITERAL = re.compile(r"(E?)'((?:[^']|'')*)'")


def literals(tree):
    """Every string literal of the regress and pgTAP tests, unquoted."""
    found = set()
    for path in glob.glob(f"{tree}/test/sql/*.sql") + glob.glob(f"{tree}/test/pgtap/*.sql"):
        with open(path, encoding="utf-8") as file:
            for escaped, text in LITERAL.findall(file.read()):
                text = text.replace("''", "'")
                if escaped:
                    text = re.sub(r"\\n", "\n", re.sub(r"\\t", "\t", text))
                if 0 < len(text) <= 2000:
                    found.add(text)
    return sorted(found)


def wire(text):
    """The binary form of a tally's text, or None where it is none."""
    try:
        counts = json.loads(text)
        entries = sorted((key.encode(), value) for key, value in counts.items())
        packed = b"".join(struct.pack("!B", len(key)) + key + struct.pack("!q", value) for key, value in entries)
    except (ValueError, AttributeError, struct.error, TypeError):
        return None
    return struct.pack("!i", len(entries)) + packed


def write(folder, target, inputs):
    path = f"{folder}/{target}.seeds"
    os.makedirs(path, exist_ok=True)
    for data in inputs:
        with open(f"{path}/{hashlib.sha1(data).hexdigest()}", "wb") as file:
            file.write(data)
    print(f"fuzz {target}: {len(inputs)} seeds")


def main():
    tree, folder = sys.argv[1:]
    texts = literals(tree)
    bodies = [text for text in texts if "_id" in text and "{" in text]
    tallies = [text for text in texts if text.lstrip()[:1] in ("{", "[", '"') and text not in bodies]
    positions = [text for text in texts if re.fullmatch(r"[-+ 0-9/a-f]{1,24}", text)]
    wires = [data for data in map(wire, tallies) if data is not None]
    write(folder, "tally_text", [text.encode() for text in tallies])
    write(folder, "tally_wire", wires)
    write(folder, "position", [text.encode() for text in positions])
    write(folder, "body", [text.encode() for text in bodies])


main()
