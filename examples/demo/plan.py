"""Who delivers what, and in which order: the same for the same file, whatever the machine.

Every response is delivered at least twice. Its first delivery by its home client, and that of a respondent's other
responses, keep the order of the file, so that it is certain which of them counts. The repeats go to any client and so
often meet the first delivery in flight. A tenth of the ids is used once more with another answer, by the home client
and after its own delivery of the id was answered.

The clients deliver in bursts, all at once, with a pause between two bursts for the viewer to catch up.

One client, the victim, is stopped in mid-stream at two places: at `lose` it commits and never passes the answer on,
and at `stop` it is killed within its transaction.
"""

import random
import zlib
from dataclasses import dataclass

from responses import verdicts

CLIENTS = 4
BURSTS = 8
REUSE_ONE_IN = 10
THRICE_ONE_IN = 5


@dataclass(frozen=True)
class Delivery:
    response: object
    answer: str
    reuse: bool = False


@dataclass
class Plan:
    streams: list  # of lists of Delivery, one for each client
    outcome_of: dict  # response id -> outcome of its honest deliveries
    victim: int
    lose: int  # places in the victim's stream; None where a file is too short for one
    stop: int

    def pauses(self, client):
        """The places before which the client pauses: as many for each, whatever the length of its stream."""
        length = len(self.streams[client])
        return sorted({length * burst // BURSTS for burst in range(1, BURSTS)} - {0})

    def lost(self):
        """The response whose acceptance nobody heard of at first, or None."""
        return None if self.lose is None else self.streams[self.victim][self.lose].response


def make_plan(responses, choices, seed=2026):
    chance = random.Random(seed)
    outcome_of = verdicts(responses, choices)
    streams = _spread(responses, chance)
    for stream in streams:
        chance.shuffle(stream)
        _keep_file_order(stream)
    for client in range(CLIENTS):
        _reuse_ids(streams[client], client, choices, outcome_of, chance)
    victim = max(range(CLIENTS), key=lambda client: len(streams[client]))
    lose, stop = _places_to_stop(streams, victim, outcome_of)
    return Plan(streams, outcome_of, victim, lose, stop)


def _home(response):
    return zlib.crc32(f"{response.poll}/{response.respondent}".encode()) % CLIENTS


def _spread(responses, chance):
    """Two or three deliveries of each response over the clients, not yet in order."""
    streams = [[] for _ in range(CLIENTS)]
    often = _who_responds_often(responses)
    for response in responses:
        home = _home(response)
        delivery = Delivery(response, response.answer)
        streams[home].append(delivery)
        for _ in range(1 if chance.randrange(THRICE_ONE_IN) else 2):
            stays = (response.poll, response.respondent) in often
            streams[home if stays else chance.randrange(CLIENTS)].append(delivery)
    return streams


def _who_responds_often(responses):
    once, often = set(), set()
    for response in responses:
        person = (response.poll, response.respondent)
        (often if person in once else once).add(person)
    return often


def _keep_file_order(stream):
    """Renames, within each respondent, whichever response came first to that which stands first in the file, and so
    on: what is delivered, and where the respondent's deliveries lie, stays."""
    of_person = {}
    for place, delivery in enumerate(stream):
        of_person.setdefault((delivery.response.poll, delivery.response.respondent), []).append(place)
    for places in of_person.values():
        arrived = list(dict.fromkeys(stream[place] for place in places))
        in_file = sorted(arrived, key=lambda delivery: delivery.response.line)
        renamed = dict(zip(arrived, in_file))
        for place in places:
            stream[place] = renamed[stream[place]]


def _reuse_ids(stream, client, choices, outcome_of, chance):
    first = {}
    for place, delivery in enumerate(stream):
        response = delivery.response
        if _home(response) == client and outcome_of[response.response_id] == "accepted":
            first.setdefault(response, place)
    chosen = [response for response in first if zlib.crc32(response.response_id.encode()) % REUSE_ONE_IN == 0]
    # From the end, so that the places found above stay true.
    for response in sorted(chosen, key=first.get, reverse=True):
        answer = next((choice for choice in choices if choice != response.answer), "Other")
        place = chance.randint(first[response] + 1, len(stream))
        stream.insert(place, Delivery(response, answer, reuse=True))


def _places_to_stop(streams, victim, outcome_of):
    """Two first deliveries past the middle that nobody else makes, so that it is certain what each leaves behind."""
    stream = streams[victim]
    seen, places = set(), []
    for place, delivery in enumerate(stream):
        response = delivery.response
        fresh = response not in seen and _home(response) == victim
        seen.add(response)
        if place >= len(stream) // 2 and fresh and outcome_of[response.response_id] == "accepted":
            places.append(place)
    lose, stop = (places + [None, None])[:2] if len(places) != 1 else (None, places[0])
    for place in (lose, stop):
        if place is not None:
            _take_over(streams, victim, stream[place].response)
    return lose, len(stream) // 2 if stop is None else stop


def _take_over(streams, victim, response):
    for client, stream in enumerate(streams):
        if client == victim:
            continue
        mine = [delivery for delivery in stream if delivery.response == response]
        stream[:] = [delivery for delivery in stream if delivery.response != response]
        streams[victim].extend(mine)
