"""Who hands in what and when: the last two minutes of an exam, compressed into ten seconds.

Everything follows from the seed, so a hand-in can be made anew wherever it is needed: by the client that sends it, by
the one that sends it again, and by the check that compares it with what was stored.
"""

import json
import random
import uuid
from dataclasses import dataclass

HAND_INS = 2000
CLIENTS = 8
WINDOW_S = 10  # from the first hand-in to the deadline
LATE = 60  # so many are sent after the deadline only
CHANGED = 20  # so many are sent once more with other answers
PARAGRAPHS = 100  # an exam has so many answers, of about 1,000 bytes each
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Send:
    at: float  # seconds from the deadline; negative is before it
    number: int  # of the hand-in
    kind: str  # "first", "again" or "changed"


class Plan:
    def __init__(self, seed):
        rng = random.Random(seed)
        words = ["".join(rng.choices(LETTERS, k=rng.randint(2, 9))) for _ in range(4000)]
        self._pool = [" ".join(rng.choices(words, k=145)) for _ in range(300)]
        self._seeds = [rng.getrandbits(64) for _ in range(HAND_INS)]
        self.keys = [str(uuid.UUID(int=rng.getrandbits(128), version=4)) for _ in range(HAND_INS)]
        self.students = [f"student-{number:04}" for number in range(HAND_INS)]
        self.streams = [[] for _ in range(CLIENTS)]
        self._schedule(rng)

    def _schedule(self, rng):
        late = set(rng.sample(range(HAND_INS), LATE))
        for number in range(HAND_INS):
            # The closer to the deadline, the more there are.
            at = rng.uniform(0.05, 0.6) if number in late else -WINDOW_S * rng.random() ** 1.2
            self._send(number, Send(at, number, "first"))
            if number % 2:
                # At once, while the first is in flight, or up to a second later, through another client.
                self._send(number + 1, Send(at + rng.choice((0, rng.random())), number, "again"))
        for number in rng.sample([n for n in range(0, HAND_INS, 2) if n not in late], CHANGED):
            self._send(number + 2, Send(1.0 + rng.random() / 2, number, "changed"))
        for stream in self.streams:
            stream.sort(key=lambda send: send.at)

    def _send(self, client, send):
        self.streams[client % CLIENTS].append(send)

    def answers(self, number, changed=False):
        """The payload of a hand-in, as a dictionary."""
        rng = random.Random(self._seeds[number])
        answers = [{"question": question, "answer": text}
                   for question, text in enumerate(rng.choices(self._pool, k=PARAGRAPHS), 1)]
        if changed:
            answers[-1]["answer"] = "what came to mind on the stairs"
        return {"student": self.students[number], "answers": answers}

    def payload(self, number, changed=False):
        return json.dumps(self.answers(number, changed))
