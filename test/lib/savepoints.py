"""Trees of savepoints, to a depth of 70, against a model that knows which branches were rolled back.

usage: savepoints.py DSN SEED TREES DEPTH

A tree enters events before, between and after its branches; each branch is released or rolled back to, at random. Half of
the trees are SAVEPOINTs sent one by one, half are exception blocks of a PL/pgSQL function that calls itself. A tree is
committed, rolled back, or prepared and then committed. After each: the ledger has exactly the events of the model, each
was visible to the statement after it, and the counts are theirs.
"""

import collections
import random
import sys

import psycopg2
import psycopg2.extras

CHOICES = ["red", "green", "blue"]
POLLS = collections.OrderedDict((
    ("lanes", "counting => 'every'"), ("strict", "counting => 'every', max_lanes => 1"), ("latest", "counting => 'latest'"),
    ("wide", None)))
ACCEPT = "SELECT a.outcome::text FROM poll_tally.accept_event(%(poll)s, %(id)s, %(choice)s, %(principal)s) AS a"

# A tree is {"parts": [event or tree, ...], "undo": boolean}; one that is undone raises at its end.
BLOCKS = """
CREATE FUNCTION public.play_tree(tree jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    part jsonb;
BEGIN
    FOR part IN SELECT * FROM jsonb_array_elements(tree -> 'parts') LOOP
        IF part ? 'id' THEN
            PERFORM a.outcome FROM poll_tally.accept_event(part ->> 'poll', part ->> 'id', part ->> 'choice', part ->> 'principal') AS a;
        ELSE
            BEGIN
                PERFORM public.play_tree(part);
                IF (part ->> 'undo')::boolean THEN
                    RAISE EXCEPTION USING ERRCODE = 'PT001';
                END IF;
            EXCEPTION WHEN SQLSTATE 'PT001' THEN
                NULL;
            END;
        END IF;
    END LOOP;
END $$"""


class Trees:
    def __init__(self, dsn, seed):
        self.rng = random.Random(seed)
        self.connection = psycopg2.connect(dsn)
        self.connection.autocommit = True
        self.cursor = self.connection.cursor()
        self.number = 0
        self.model = []                 # events that stay, in order
        self.wrong = []
        self.figures = collections.Counter()

    def event(self):
        self.number += 1
        poll = self.rng.choice(list(POLLS))
        return {"poll": poll, "id": "t%d" % self.number, "choice": self.rng.choice(CHOICES),
                "principal": "p%d" % self.rng.randrange(20) if poll == "latest" else None}

    def tree(self, depth, undo=False):
        """A chain down to the depth, with side branches."""
        parts = [self.event()]
        if depth > 0:
            parts.append(self.tree(depth - 1, self.rng.random() < 0.02))
            if self.rng.random() < 0.3:
                parts.append(self.tree(min(depth - 1, self.rng.randint(0, 3)), self.rng.random() < 0.5))
            if self.rng.random() < 0.5:
                parts.append(self.event())
        return {"parts": parts, "undo": undo}

    def staying(self, tree):
        for part in tree["parts"]:
            if "id" in part:
                yield part
            elif not part["undo"]:
                yield from self.staying(part)

    def play(self, tree, depth):
        """By SAVEPOINTs; what a statement sees is asked for now and then."""
        self.figures["deepest"] = max(self.figures["deepest"], depth)
        for part in tree["parts"]:
            if "id" in part:
                self.cursor.execute(ACCEPT, part)
                if self.cursor.fetchone()[0] != "accepted":
                    self.wrong.append("%s was not accepted" % part["id"])
                self.figures["events"] += 1
                continue
            look = self.rng.random() < 0.2
            before = self.counts() if look else None
            self.cursor.execute("SAVEPOINT s%d" % depth)
            self.play(part, depth + 1)
            self.cursor.execute(("ROLLBACK TO s%d" if part["undo"] else "RELEASE s%d") % depth)
            self.figures["undone" if part["undo"] else "released"] += 1
            if part["undo"] and look and before != self.counts():
                self.wrong.append("a branch that was rolled back left something")

    def counts(self):
        self.figures["looks"] += 1
        self.cursor.execute("SELECT poll, choice, count FROM poll_tally.results WHERE count <> 0 ORDER BY 1, 2")
        return self.cursor.fetchall()

    def one(self, depth, number):
        tree = self.tree(depth)
        self.cursor.execute("BEGIN")
        if number % 2 == 0:
            self.play(tree, 0)
        else:
            self.cursor.execute("SELECT public.play_tree(%s)", (psycopg2.extras.Json(tree),))
            self.figures["blocks"] += 1
        end = self.rng.choice(("commit", "commit", "rollback", "prepare"))
        self.figures[end] += 1
        if end == "prepare":
            self.cursor.execute("PREPARE TRANSACTION 'tree'")
            self.cursor.execute("COMMIT PREPARED 'tree'")
        else:
            self.cursor.execute(end)
        if end != "rollback":
            self.model += self.staying(tree)
        self.compare()

    def compare(self):
        """Ledger and counts against the model, counted here."""
        self.cursor.execute("SELECT event_id FROM poll_tally.events")
        if {row[0] for row in self.cursor.fetchall()} != {event["id"] for event in self.model}:
            self.wrong.append("the ledger is not what the model says")
        expected, current = collections.Counter(), {}
        for event in self.model:
            expected[event["poll"], event["choice"]] += 1
            if event["poll"] == "latest":
                if event["principal"] in current:
                    expected["latest", current[event["principal"]]] -= 1
                current[event["principal"]] = event["choice"]
        counts = {row[:2]: row[2] for row in self.counts()}
        if counts != {key: count for key, count in expected.items() if count}:
            self.wrong.append("results are not what the model says")
        self.figures["compared"] += 1


def main(dsn, seed, count, depth):
    trees = Trees(dsn, seed)
    for poll, rules in POLLS.items():
        if rules is None:
            trees.cursor.execute("SELECT poll_tally.create_counter(%s)", (poll,))
        else:
            trees.cursor.execute("SELECT poll_tally.create_poll(%%s, %%s, %s)" % rules, (poll, CHOICES))
    trees.cursor.execute(BLOCKS)
    for number in range(count):
        trees.one(depth, number)
    for text in trees.wrong[:10]:
        print("# violation: " + text)
    for name in ("deepest", "events", "undone", "released", "looks", "blocks", "commit", "rollback", "prepare", "compared"):
        print("%s=%d" % (name, trees.figures[name]))
    print("entries=%d" % len(trees.model))
    print("violations=%d" % len(trees.wrong))


if __name__ == "__main__":
    main(sys.argv[1], *[int(argument) for argument in sys.argv[2:]])
