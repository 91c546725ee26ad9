"""Polls are changed, closed, dropped and made anew, and their tables rewritten, while many vote in them.

usage: changes.py DSN CLIENTS SECONDS SEED

Clients send single events, batches over several polls, and retractions, at all levels, with savepoints and rollbacks;
refusals are many, since a batch that gives a lane back for one is what a close has to be waited for. Three sessions
close polls, look at them again, drop them and make others of the same name, put deadlines off, add choices, change the
roll, publish and repair. One more rewrites tables and indexes, so that rows move under the hints and plans of sessions.

Whenever a poll is looked at, every check of verify_poll has to hold; of a closed one that includes that its final
snapshot is all of its ledger. Nothing may be left of a dropped poll. Prints NAME=VALUE lines.
"""

import collections
import json
import random
import sys
import threading
import time

import psycopg2

KINDS = (
    "counting => 'every', max_count => 8, min_count => -8, min_weight => -3, max_weight => 3", "counting => 'latest', max_attempts => 3",
    "counting => 'once'", "counting => 'every', max_lanes => 2", "counting => 'every', max_attempts => 2, restricted => true",
    "counting => 'every', open_choices => true, min_weight => -9000000000000000000, max_weight => 9000000000000000000, max_choices => 5")
POLLS = 2 * len(KINDS)
WEIGHTS = (1, 1, 1, 1, 2, 2, 3, -1, 0, 10 ** 18, -10 ** 18)
LEVELS = 5 * ("read committed",) + ("repeatable read", "serializable")
SIZES = (1, 2, 5, 40, 300)
BATCH = ("SELECT outcome::text, count(*) FROM poll_tally.accept_events(NULL, %s, principals => %s, votes => %s::jsonb[],"
         " polls => %s) GROUP BY 1")
SINGLE = "SELECT outcome::text, 1 FROM poll_tally.accept_event(%s, %s, principal => %s, votes => %s)"
RETRACT = "SELECT 'retraction ' || outcome::text, 1 FROM poll_tally.retract_event(%s, %s, %s)"

# What a client may be told: to try again, a lock timeout, and that a count has no room.
TOLD = {"40001": "not serializable", "40P01": "deadlock", "22003": "no room in bigint"}
# What who changes polls may be told besides: it is gone, there already, closed, or of another kind.
TOLD_CHANGER = {**TOLD, "P0002": "gone", "42710": "there", "55000": "closed", "22023": "of another kind", "55P03": "lock timeout"}

LEFT_OVER = " + ".join("(SELECT count(*) FROM poll_tally.%s WHERE poll_id NOT IN (SELECT poll_id FROM poll_tally.poll))" % table
                       for table in ("choice", "roll", "lane", "lane_count", "ledger", "publication", "snapshot"))


class Worker(threading.Thread):
    """A session of its own; what it did and what went wrong is added up at the end."""

    def __init__(self, dsn, seed, until, told):
        super().__init__()
        self.connection = psycopg2.connect(dsn)
        self.connection.autocommit = True       # BEGIN and COMMIT are sent by hand
        self.cursor = self.connection.cursor()
        self.rng, self.until, self.told = random.Random(seed), until, told
        self.done, self.wrong = collections.Counter(), []

    def run(self):
        while time.monotonic() < self.until:
            try:
                self.step()
            except psycopg2.Error as error:
                self.done[self.told.get(error.pgcode, "error")] += 1
                if error.pgcode not in self.told:
                    self.wrong.append("%s %s" % (error.pgcode, str(error).strip()))
                    if self.connection.closed:
                        return
                self.cursor.execute("ROLLBACK")

    def ask(self, sql, arguments=None):
        self.cursor.execute(sql, arguments)
        return self.cursor.fetchall()

    def verify(self, poll):
        rows = self.ask("SELECT check_name, ok, expected, actual FROM poll_tally.verify_poll(%s)", (poll,))
        self.done["checks"] += len(rows)
        self.wrong += ["%s: %s" % (poll, row) for row in rows if not row[1]]


def name_of(number):
    return "changes-%d" % number


class Client(Worker):
    def step(self):
        rng, size = self.rng, self.rng.choice(SIZES)
        polls = [name_of(rng.randrange(POLLS + 1)) for _ in range(size)]
        ids = ["%s-%d" % (self.name if rng.random() < 0.9 else "shared", rng.randrange(100000 if rng.random() < 0.9 else 300))
               for _ in range(size)]
        principals = ["p%d" % rng.randrange(60) if rng.random() < 0.9 else None for _ in range(size)]
        votes = [json.dumps({"c%d" % rng.randint(1, 6): rng.choice(WEIGHTS)}) for _ in range(size)]
        self.cursor.execute("BEGIN ISOLATION LEVEL " + rng.choice(LEVELS))
        if rng.random() < 0.3:
            self.cursor.execute("SAVEPOINT s")
        if size == 1 or rng.random() < 0.1:
            answers = [self.ask(SINGLE, event)[0] for event in zip(polls, ids, principals, votes)]
        else:
            answers = self.ask(BATCH, (ids, principals, votes, polls))
            self.done["batches"] += 1
        if rng.random() < 0.2:
            answers += self.ask(RETRACT, (polls[0], ids[0], "%s-undo-%d" % (self.name, rng.randrange(10 ** 9))))
        for outcome, count in answers:
            self.done[outcome] += count
        self.cursor.execute("ROLLBACK" if rng.random() < 0.1 else "COMMIT")


class Changer(Worker):
    def step(self):
        number = self.rng.randrange(POLLS)
        change = self.rng.choice((self.replace, self.replace, self.deadline, self.title, self.choice, self.roll, self.publish,
                                  self.repair, self.verify))
        change(number if change == self.replace else name_of(number))
        self.done[change.__name__] += 1

    def replace(self, number):
        """Closed, looked at while those who were late find that out, and made anew."""
        poll = name_of(number)
        self.ask("SELECT poll_tally.close_poll(%s)", (poll,))
        for _ in range(self.rng.randrange(20)):
            self.ask("SELECT * FROM poll_tally.published WHERE poll = %s", (poll,))
        self.verify(poll)
        self.ask("SELECT poll_tally.drop_poll(%s)", (poll,))
        self.ask("SELECT poll_tally.create_poll(%%s, '{c1,c2,c3,c4,c5}', publish_every => '50 ms', %s)" % KINDS[number % len(KINDS)], (poll,))

    def deadline(self, poll):
        self.ask("SELECT poll_tally.alter_poll(%s, closes_at => clock_timestamp() + %s * interval '1 ms')",
                 (poll, self.rng.choice((100, 500, 100000))))

    def title(self, poll):
        self.ask("SELECT poll_tally.alter_poll(%s, title => 'changed')", (poll,))

    def choice(self, poll):
        self.ask("SELECT poll_tally.add_choice(%s, 'c6')", (poll,))

    def roll(self, poll):
        self.ask("SELECT poll_tally.set_eligible(%s, ARRAY(SELECT 'p' || i FROM generate_series(1, %s) AS i), %s)",
                 (poll, self.rng.randrange(60), self.rng.random() < 0.7))

    def publish(self, poll):
        self.ask("SELECT poll_tally.publish(%s, true)", (poll,))

    def repair(self, poll):
        repaired = self.ask("SELECT poll_tally.rebuild_tallies(%s)", (poll,))[0][0]
        if repaired != 0:
            self.wrong.append("%s: %d counts were repaired" % (poll, repaired))


class Mover(Worker):
    """Tables and indexes get other files, and rows other places."""

    def step(self):
        table = self.rng.choice(("poll", "choice", "lane", "lane_count", "ledger", "publication", "snapshot", "roll"))
        self.cursor.execute(self.rng.choice(("VACUUM FULL poll_tally.%s", "CLUSTER poll_tally.%s USING {0}_pkey",
                                             "REINDEX TABLE CONCURRENTLY poll_tally.%s", "VACUUM poll_tally.%s")).format(table) % table)
        self.done["tables moved"] += 1


def main(dsn, clients, seconds, seed):
    with psycopg2.connect(dsn) as connection, connection.cursor() as cursor:
        for number in range(POLLS):
            cursor.execute("SELECT poll_tally.create_poll(%%s, '{c1,c2,c3,c4,c5}', publish_every => '50 ms', %s)"
                           % KINDS[number % len(KINDS)], (name_of(number),))
    until = time.monotonic() + seconds
    workers = [Client(dsn, seed * 1000 + n, until, TOLD) for n in range(clients)]
    workers += [Changer(dsn, seed * 1000 + 100 + n, until, TOLD_CHANGER) for n in range(3)]
    workers.append(Mover(dsn, seed * 1000 + 200, until, TOLD_CHANGER))
    for worker in workers[clients:]:
        worker.cursor.execute("SET lock_timeout = '2s'")
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    last = Worker(dsn, seed, until, TOLD)
    workers.append(last)
    for (poll,) in last.ask("SELECT poll FROM poll_tally.polls"):
        last.verify(poll)
    print("left_over=%d" % last.ask("SELECT " + LEFT_OVER)[0][0])
    done, wrong = sum((w.done for w in workers), collections.Counter()), sum((w.wrong for w in workers), [])
    for line in wrong[:20]:
        print("# wrong: " + line)
    print("wrong=%d" % len(wrong))
    for what, count in sorted(done.items()):
        print("%s=%d" % (what.replace(" ", "_"), count))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
