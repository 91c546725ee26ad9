"""Forged and malformed notifications, a hundred a second, by a role without any grant.

usage: forger.py DSN POLL SECONDS RATE SEED

Made from a true message, which anybody can hear: other revisions, epochs, counts and polls, members that are missing or
of another type, and text that is no message at all, among it what parsers fall over. Prints NAME=VALUE lines.
"""

import collections
import hashlib
import json
import random
import select
import sys
import time

import psycopg2

LIMIT = 7999
TEXTS = [
    "", " ", "null", "true", "0", "-1", '""', "[]", "{}", "{", "}", "[", "]", '"', "\\", "nan", "NaN", "Infinity", "-Infinity", "1e999", "'",
    "[" * 7900, '{"a":' * 1300, "[" * 3900 + "]" * 3900, '{"revision": ' + "9" * 7000 + "}", "9" * 7900, "x" * 7900, "é" * 3900, "\x01\x02\x1b[2J",
    '{"pollId": "%s"}', '{"pollId": "%s", "epoch": null, "revision": null}', '{"pollId": "%s", "revision": 1e400, "epoch": "x"}',
    '{"pollId": "%s", "epoch": "x", "revision": "1"}', '{"pollId": ["%s"], "epoch": {}, "revision": []}',
    '{"pollId": "%s", "epoch": "x", "revision": NaN}', '{"pollId": "%s", "epoch": "x", "revision": Infinity}', '{"pollId": "%s", "epoch": "x", "revision": true}',
    '{"pollId": "%s", "epoch": "x", "revision": 2, "revision": 1}', '{"pollId": "%s"} trailing', "\ufeff{}", '{"__proto__": {"revision": 9}}', '{"pollId": "\\ud800"}',
    "{'pollId': '%s'}", "<message/>", "DROP TABLE snapshots", "%s%n%x",
]
CHANGES = {
    "older": lambda m, rng: m.update(revision=m["revision"] - rng.randint(1, 5)),
    "newer": lambda m, rng: m.update(revision=m["revision"] + rng.randint(1, 10 ** rng.randint(0, 18))),
    "other counts": lambda m, rng: m.update(counts={"red": rng.randint(0, 2**63)}),
    "newer, other counts": lambda m, rng: m.update(revision=m["revision"] + 1, counts={"red": 1, "blue": 1, "green": 10}),
    "other epoch": lambda m, rng: m.update(epoch="%016x" % rng.getrandbits(64), revision=1),
    "other poll": lambda m, rng: m.update(pollId="other"),
    "final": lambda m, rng: m.update(final=True, revision=m["revision"] + 1),
    "no revision": lambda m, rng: m.pop("revision"),
    "no epoch": lambda m, rng: m.pop("epoch"),
    "no poll": lambda m, rng: m.pop("pollId"),
    "revision is text": lambda m, rng: m.update(revision=str(m["revision"] + 1)),
    "revision is a fraction": lambda m, rng: m.update(revision=m["revision"] + 0.5),
    "epoch is a number": lambda m, rng: m.update(epoch=7, revision=m["revision"] + 1),
    "unknown keys": lambda m, rng: m.update({"x" * 100: [1, {"y": None}]}),
}


def forge(true, rng):
    """(kind, payload) of a message that nobody ours has sent."""
    if rng.random() < 0.4:
        text = rng.choice(TEXTS)
        return "no message", text.replace("%s", true["pollId"], 1)
    kind = rng.choice(sorted(CHANGES))
    message = dict(true)
    CHANGES[kind](message, rng)
    return kind, json.dumps(message)


def run(dsn, poll, seconds, rate, seed):
    rng = random.Random(seed)
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    cursor = connection.cursor()
    channel = "poll_tally_" + hashlib.md5(poll.encode()).hexdigest()
    cursor.execute('LISTEN "%s"' % channel)
    true, kinds, forged = None, collections.Counter(), set()
    start = time.monotonic()
    while time.monotonic() < start + seconds or true is None:
        due = start + sum(kinds.values()) / rate
        select.select([connection], [], [], max(0, min(due - time.monotonic(), 0.5)))
        connection.poll()
        for notify in connection.notifies:
            if notify.pid != connection.info.backend_pid:
                true = json.loads(notify.payload)
        connection.notifies.clear()
        if true is None:
            if time.monotonic() > start + 180:
                raise RuntimeError("no true message came")
            continue
        if time.monotonic() >= due:
            kind, payload = forge(true, rng)
            if len(payload.encode(errors="surrogatepass")) <= LIMIT:
                cursor.execute("SELECT pg_notify(%s, %s)", (rng.choice((channel, channel, "poll_tally")), payload))
                kinds[kind] += 1
                forged.add(payload)
    took = time.monotonic() - start
    print("# sent: " + ", ".join("%s %d" % pair for pair in sorted(kinds.items())))
    print("sent=%d\nkinds=%d\ndistinct=%d\nrate=%.0f" % (sum(kinds.values()), len(kinds), len(forged), sum(kinds.values()) / took))


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
