"""A disk that is really full: of tables, or of WAL. Four clients vote until there is no room, again and again.

usage: full_disk.py DSN SEED ROUNDS FOLDER

FOLDER lies on the small disk. Files of ballast are put there, and one of them is taken away in each round to make room. Each
client sends single events and batches and keeps what it was told. On a full disk of tables a client is told 53100 and goes
on in the same session; on a full disk of WAL the server restarts, and who was not answered does not know.

Then: what was acknowledged is in the ledger, what was refused is not, of a batch all or nothing, and what was refused or not
answered is accepted, or found to be there, when it is sent again. Prints NAME=VALUE lines.
"""

import json
import os
import random
import sys
import threading

import psycopg2

from crash_points import CHOICES, Points

BALLAST = 4 * 1024 * 1024
CLIENTS = 4
SIZES = (1, 1, 1, 50, 2000)


def send(connection, events):
    ids, choices = events
    cursor = connection.cursor()
    cursor.execute("SELECT DISTINCT outcome::text FROM poll_tally.accept_events('disk', %s, %s, payloads => %s::jsonb[])",
                   (ids, choices, [json.dumps({"text": 200 * "x"})] * len(ids)))
    return {row[0] for row in cursor.fetchall()}


class Client(threading.Thread):
    """Votes until there is no room. Events are kept as (ids, choices)."""

    def __init__(self, name, connection, rng):
        super().__init__()
        self.prefix, self.connection, self.rng = name, connection, rng
        self.accepted, self.refused, self.unknown, self.odd = [], [], [], []
        self.number = 0

    def run(self):
        while not self.refused and not self.unknown and not self.odd:
            ids = ["%s-%d" % (self.prefix, self.number + n) for n in range(self.rng.choice(SIZES))]
            self.number += len(ids)
            self.send((ids, [self.rng.choice(CHOICES) for _ in ids]))

    def send(self, events):
        try:
            answers = send(self.connection, events)
            (self.accepted if answers == {"accepted"} else self.odd).append(events)
        except psycopg2.Error as error:
            if self.connection.closed:
                self.unknown.append(events)
            elif error.pgcode == "53100":
                self.refused.append(events)
            else:
                self.odd.append(([error.pgcode], [str(error)]))


class FullDisk(Points):
    def __init__(self, dsn, seed, folder):
        super().__init__(dsn, seed)
        self.folder = folder

    def put_ballast(self, files):
        for number in range(files):
            with open(os.path.join(self.folder, "ballast-%d" % number), "wb") as file:
                file.write(b"\0" * BALLAST)

    def take_ballast(self, number):
        os.unlink(os.path.join(self.folder, "ballast-%d" % number))

    def round(self, number):
        clients = [Client("%d-%d" % (number, n), self.connect(), random.Random(self.rng.getrandbits(64))) for n in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        self.take_ballast(number)
        for client in clients:
            self.judge(client)
            self.send_again(client)

    def there(self, what, events, *counts):
        """How many of these events are in the ledger has to be one of counts."""
        ids = events[0]
        have, = self.rows("SELECT count(*) FROM poll_tally.events WHERE event_id = ANY (%s)", (ids,))[0]
        self.figures["checks"] += 1
        if have not in counts:
            self.wrong(what, have, "of", len(ids), "are there, the first is", ids[0])

    def judge(self, client):
        for ids, choices in client.odd:
            self.wrong("told what nobody should be told:", ids[0], choices[0])
        for events in client.accepted:
            self.there("acknowledged:", events, len(events[0]))
        for events in client.refused:
            self.there("refused:", events, 0)
        for events in client.unknown:
            self.there("not answered:", events, 0, len(events[0]))
        self.figures["accepted"] += sum(len(events[0]) for events in client.accepted)
        self.figures["refused"] += len(client.refused)
        self.figures["unknown"] += len(client.unknown)

    def send_again(self, client):
        """In the same session, if it has outlived the full disk."""
        connection = self.connect() if client.connection.closed else client.connection
        for events in client.refused + client.unknown:
            answers = send(connection, events)
            if answers not in ({"accepted"}, {"duplicate"}):
                self.wrong("sent again:", sorted(answers))
            self.there("sent again:", events, len(events[0]))
        connection.close()


def main(dsn, seed, rounds, folder):
    disk = FullDisk(dsn, seed, folder)
    cursor = disk.connect().cursor()
    cursor.execute("SELECT poll_tally.create_poll('disk', %s, counting => 'every')", (CHOICES,))
    disk.put_ballast(rounds)
    for number in range(rounds):
        disk.round(number)
    for text in disk.violations[:10]:
        print("# violation: " + " ".join(text.split()))
    for name in ("checks", "accepted", "refused", "unknown"):
        print("%s=%d" % (name, disk.figures[name]))
    print("violations=%d" % len(disk.violations))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
