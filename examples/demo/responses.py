"""The input file of the demo, and the recount that reads nothing else.

One rule stands here in one place: of the responses of one respondent in one poll, the first in the file that can be
counted is counted. Whoever delivers them keeps that order (plan.py).
"""

import csv
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime, timezone

COLUMNS = ("poll", "response_id", "respondent", "answer", "submitted_at")
IDENTIFIER = re.compile(r'[!#-\[\]-~]{1,64}\Z')  # visible ASCII without " and \


class BadInput(Exception):
    """The file of responses cannot be used; the message says why."""


@dataclass(frozen=True)
class Response:
    line: int
    poll: str
    response_id: str
    respondent: str
    answer: str
    submitted_at: str  # ISO time with zone, or empty


def read_responses(path):
    """All responses in file order. Raises BadInput."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise BadInput(f"the first line names no column {', '.join(missing)}")
            responses = [_response(reader.line_num, row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"no CSV in UTF-8: {error}") from error
    if not responses:
        raise BadInput("the file holds no responses")
    _check_ids(responses)
    return responses


def _response(line, row):
    values = [row[name] for name in COLUMNS]
    if None in values:
        raise BadInput(f"responses, line {line}: a column is missing")
    response = Response(line, *values)
    if not IDENTIFIER.match(response.poll):
        raise BadInput(f"responses, line {line}: a poll cannot be named {response.poll!r}")
    if "\0" in "".join(values):
        raise BadInput(f"responses, line {line}: holds a zero byte")
    if response.submitted_at:
        _check_time(line, response.submitted_at)
    return response


def _check_time(line, text):
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise BadInput(f"responses, line {line}: {text!r} is no ISO time") from error
    if time.tzinfo is None:
        raise BadInput(f"responses, line {line}: {text!r} names no time zone")
    if time > datetime.now(timezone.utc):
        raise BadInput(f"responses, line {line}: {text!r} lies in the future")


def _check_ids(responses):
    """What a file means that gives one id to two responses depends on the order of their arrival."""
    first = {}
    for response in responses:
        other = first.setdefault(response.response_id, response)
        if other is not response:
            raise BadInput(f"responses, line {response.line}: the response_id is that of line {other.line}")


def polls_of(responses):
    """Names of the polls in the order of their first appearance."""
    return list(dict.fromkeys(response.poll for response in responses))


def verdicts(responses, choices):
    """The outcome that each response id must get, whatever is repeated, reused, lost or killed."""
    responded = set()
    outcome_of = {}
    for response in responses:
        person = (response.poll, response.respondent)
        if not all(map(IDENTIFIER.match, (response.response_id, response.respondent, response.answer))):
            outcome = "invalid"
        elif response.answer not in choices:
            outcome = "unknown_choice"
        elif person in responded:
            outcome = "already_responded"
        else:
            outcome = "accepted"
            responded.add(person)
        outcome_of[response.response_id] = outcome
    return outcome_of


def recount(path, choices):
    """{poll: Counter of choices}, from the file alone."""
    responses = read_responses(path)
    outcome_of = verdicts(responses, choices)
    counts = defaultdict(Counter)
    for response in responses:
        counts[response.poll].update(dict.fromkeys(choices, 0))
        if outcome_of[response.response_id] == "accepted":
            counts[response.poll][response.answer] += 1
    return counts
