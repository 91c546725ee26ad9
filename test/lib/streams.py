"""Streams of messages with everything that can happen to them, for the reference viewer.

usage: streams.py DSN VIEWER STREAMS SEED      (DSN is not used)

A stream is a poll's history and what a viewer hears of it: revisions that are dropped, repeated, swapped, late, or forged,
epochs that change, absences with a resume. After each step the viewer's state must be the newest of the history, and in
the end it must have counted as many gaps as were put in. The viewer is run in both ways: asking the table at each message
that is news, and, where nobody forges, by the client rule on the messages alone. Viewers with a mistake must be caught.
"""

import json
import random
import sys


class History:
    """What the table of snapshots would hold: the truth."""

    def __init__(self, rng):
        self.rng, self.epochs, self.messages = rng, 0, []
        self.new_epoch()

    def new_epoch(self):
        self.epochs += 1
        self.epoch, self.position, self.counts = "%016x" % self.rng.getrandbits(64), 0, {"a": 0, "b": 0}
        # Revisions may go on, or run backwards.
        self.revision = self.rng.randint(0, 30)
        self.messages = []
        return self.publish()

    def publish(self):
        self.revision += 1
        for _ in range(self.rng.randint(1, 3)):
            choice = self.rng.choice(("a", "b", "c%d" % self.rng.randint(1, 9)))
            self.counts[choice] = self.counts.get(choice, 0) + 1
            self.position += 1
        self.messages.append(json.dumps(self.newest()))
        return self.messages[-1]

    def newest(self):
        return {"pollId": "poll", "epoch": self.epoch, "revision": self.revision, "includedPosition": self.position,
                "publishedAt": "2026-01-01T00:00:00Z", "counts": dict(self.counts), "final": False}

    def ask(self, poll, epoch, revision):
        """snapshot(): nothing for who has the newest of this epoch; the newest for all others, those ahead too."""
        return None if (epoch, revision) == (self.epoch, self.revision) else self.newest()


class Stream:
    def __init__(self, viewer_class, seed, asks):
        self.rng = random.Random(seed)
        self.history = History(self.rng)
        self.viewer = viewer_class("poll", self.history.ask)
        self.asks, self.gaps, self.wrong, self.injected = asks, 0, 0, {}
        self.viewer.resume()

    def deliver(self, payload):
        if self.asks:
            self.viewer.hear(payload)
        else:
            self.viewer.apply(json.loads(payload))

    # --- what can happen: each ends where the viewer can know the newest ---

    def clean(self):
        self.deliver(self.history.publish())

    def dropped(self):
        for _ in range(self.rng.randint(1, 3)):
            self.history.publish()
        self.clean()
        self.gaps += 1

    def repeated(self):
        for _ in range(self.rng.randint(1, 3)):
            self.deliver(self.history.messages[-1])

    def late(self):
        self.deliver(self.rng.choice(self.history.messages))

    def swapped(self):
        first, second = self.history.publish(), self.history.publish()
        self.deliver(second)
        self.deliver(first)
        self.gaps += 1

    def slow(self):
        """Both are published when the first arrives: the table is ahead of the messages."""
        first, second = self.history.publish(), self.history.publish()
        self.deliver(first)
        self.deliver(second)
        self.gaps += self.asks

    def away(self):
        missed = self.rng.randint(0, 4)
        for _ in range(missed):
            self.history.publish()
        self.viewer.resume()
        self.gaps += missed > 1

    def unknown_keys(self):
        message = json.loads(self.history.publish())
        message["newer"] = {"deep": [1, None]}
        self.deliver(json.dumps(message))

    def epoch(self):
        old = self.history.messages[-1]
        self.deliver(self.history.new_epoch())
        if self.asks:
            self.deliver(old)

    def forged(self):
        message = self.history.newest()
        message["counts"] = {"forged": 10**9}
        kind = self.rng.choice(("lower", "equal", "higher", "next", "epoch", "poll", "form") if self.asks
                               else ("lower", "equal"))
        change = {"lower": {"revision": self.history.revision - self.rng.randint(1, 50)}, "equal": {},
                  "higher": {"revision": self.history.revision + self.rng.randint(2, 10**12)},
                  "next": {"revision": self.history.revision + 1}, "epoch": {"epoch": "%016x" % self.rng.getrandbits(64)},
                  "poll": {"pollId": "other", "revision": 10**9}, "form": {}}[kind]
        message.update(change)
        if kind == "form":
            self.deliver(self.rng.choice(("", "x", "[]", "3", "null", "{}", '{"pollId": "poll"}', '{"revision": 7}', "{" * 50,
                                          json.dumps(dict(message, revision="99")), json.dumps(dict(message, revision=None)))))
        else:
            self.deliver(json.dumps(message))

    STEPS = ("clean", "clean", "dropped", "repeated", "late", "swapped", "slow", "away", "unknown_keys", "epoch", "forged")

    def run(self):
        for _ in range(self.rng.randint(5, 40)):
            step = self.rng.choice(self.STEPS)
            getattr(self, step)()
            self.injected[step] = self.injected.get(step, 0) + 1
            state, truth = self.viewer.state, self.history.newest()
            self.wrong += any(state[key] != truth[key] for key in ("epoch", "revision", "includedPosition", "counts"))
        return self


def mutants(viewer_class):
    """Viewers with one mistake each."""

    class Trusting(viewer_class):           # takes a message for the truth
        def hear(self, payload):
            try:
                return self.apply(json.loads(payload))
            except (ValueError, TypeError, KeyError):
                return False

    class Eager(viewer_class):              # does not discard lower revisions
        def apply(self, state):
            self.revision = min(self.revision or 0, state["revision"] - 1) if state["epoch"] == self.epoch else self.revision
            return super().apply(state)

    class Stubborn(viewer_class):           # does not know of epochs
        def apply(self, state):
            return super().apply(dict(state, epoch=self.epoch if self.epoch else state["epoch"]))

    class Careless(viewer_class):           # counts no gaps
        def apply(self, state):
            gaps, changed = self.gaps, super().apply(state)
            self.gaps = gaps
            return changed

    return Trusting, Eager, Stubborn, Careless


def is_caught(mutant, rng):
    for number in range(100):
        try:
            stream = Stream(mutant, rng.getrandbits(64), number % 2 == 0).run()
        except TypeError:       # it took in what is no state at all
            return True
        if stream.wrong or stream.gaps != stream.viewer.gaps:
            return True
    return False


def run(_, path, count, seed):
    sys.path.insert(0, path.rsplit("/", 1)[0])
    viewer_class = __import__("viewer").Viewer
    rng = random.Random(seed)
    total = {"streams": 0, "wrong": 0, "wrong_end": 0, "gaps_injected": 0, "gaps_recorded": 0, "gaps_differ": 0}
    for number in range(count):
        stream = Stream(viewer_class, rng.getrandbits(64), number % 2 == 0).run()
        total["streams"] += 1
        total["wrong"] += stream.wrong
        total["wrong_end"] += any(stream.viewer.state[key] != value for key, value in stream.history.newest().items()
                                  if key not in ("pollId", "publishedAt"))
        total["gaps_injected"] += stream.gaps
        total["gaps_recorded"] += stream.viewer.gaps
        total["gaps_differ"] += stream.gaps != stream.viewer.gaps
        for name, times in stream.injected.items():
            total["did_" + name] = total.get("did_" + name, 0) + times
    total["mutants"] = len(mutants(viewer_class))
    total["caught"] = sum(is_caught(mutant, rng) for mutant in mutants(viewer_class))
    for name, value in total.items():
        print("%s=%d" % (name, value))


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
