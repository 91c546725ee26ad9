"""What polls are, in few lines: DESIGN section 4, retracting, closing, altering, and savepoints.

It shares no code with the extension and keeps no running counts: each call is judged by reading the list of entries
from its start. An answer is (outcome, seq, attempt, differs), as in the receipt.
"""

import collections
import copy
import types

NONE = (None, None, None)
Rules = collections.namedtuple("Rules", "counting max_attempts min_count max_count")
Entry = collections.namedtuple("Entry", "poll event choice principal payload retracts again seq attempt effect")


def new_poll(rules):
    attempts = 1 if rules.counting == "once" else rules.max_attempts
    return types.SimpleNamespace(rules=rules, max_attempts=attempts, closed=False)


class Model:
    def __init__(self, polls):
        self.polls = {name: new_poll(rules) for name, rules in polls.items()}
        self.entries = []
        self.savepoints = []

    def find(self, event):
        return next((entry for entry in self.entries if entry.event == event), None)

    def of_poll(self, poll):
        return [entry for entry in self.entries if entry.poll == poll]

    def of_principal(self, poll, principal):
        return [entry for entry in self.of_poll(poll) if entry.principal == principal]

    def counts(self, poll):
        counts = collections.Counter()
        for entry in self.of_poll(poll):
            counts.update(entry.effect)
        return {choice: count for choice, count in counts.items() if count}

    def leaves_limits(self, poll, effect):
        rules, counts = self.polls[poll].rules, self.counts(poll)
        after = [counts.get(choice, 0) + count for choice, count in effect.items()]
        return rules.min_count is not None and any(not rules.min_count <= n <= rules.max_count for n in after)

    def may_respond(self, poll, principal):
        """A retraction gives an attempt back, or bars the principal."""
        mine, allowed = self.of_principal(poll, principal), self.polls[poll].max_attempts
        barred = any(entry.retracts and not entry.again for entry in mine)
        used = sum(-1 if entry.retracts else 1 for entry in mine)
        return not barred and (allowed is None or used < allowed)

    def repeat(self, known, retracts, fields):
        """Row 2, for an id that is known: duplicate, or conflict and the fields that differ."""
        same_kind = bool(known.retracts) == bool(retracts)
        differs = [name for name, old, new in fields if old != new] if same_kind else ["kind"]
        return ("conflict", None, None, differs) if differs else ("duplicate", known.seq, known.attempt, None)

    def add(self, *fields):
        entry = Entry(*fields)
        self.entries.append(entry._replace(seq=1 + len(self.of_poll(entry.poll))))
        return ("accepted", self.entries[-1].seq, entry.attempt, None)

    def accept(self, poll, event, choice, principal, payload):
        known = self.find(event)
        if known:
            return self.repeat(known, None, (
                ("poll", known.poll, poll), ("votes", known.choice, choice),
                ("principal", known.principal, principal), ("payload", known.payload, payload)))
        if self.polls[poll].closed:
            return ("closed",) + NONE
        if not self.may_respond(poll, principal):
            return ("already_responded",) + NONE
        mine, effect = self.of_principal(poll, principal), collections.Counter({choice: 1})
        if self.polls[poll].rules.counting == "latest" and mine and not mine[-1].retracts:
            effect[mine[-1].choice] -= 1
        effect = {key: count for key, count in effect.items() if count}
        if self.leaves_limits(poll, effect):
            return ("limit_reached",) + NONE
        attempt = 1 + sum(not entry.retracts for entry in mine)
        return self.add(poll, event, choice, principal, payload, None, None, None, attempt, effect)

    def retract(self, poll, event, retraction, again):
        known, target = self.find(retraction), self.find(event)
        if known:
            return self.repeat(known, event, (("poll", known.poll, poll), ("event_id", known.retracts, event),
                                              ("may_respond_again", known.again, again)))
        if self.polls[poll].closed:
            return ("closed",) + NONE
        if not target or target.retracts or target.poll != poll:
            return ("unknown_event",) + NONE
        latest = self.polls[poll].rules.counting == "latest"
        replaced = latest and self.of_principal(poll, target.principal)[-1].event != event
        if replaced or any(entry.retracts == event for entry in self.entries):
            return ("nothing_to_retract",) + NONE
        effect = {target.choice: -1}
        if self.leaves_limits(poll, effect):
            return ("limit_reached",) + NONE
        return self.add(poll, retraction, None, target.principal, None, event, again, None, None, effect)

    def close(self, poll):
        self.polls[poll].closed = True
        return (len(self.of_poll(poll)), self.counts(poll))

    def alter(self, poll, max_attempts):
        """The SQLSTATE. Without max_attempts the deadline is moved on, which an open poll always allows."""
        now = self.polls[poll].max_attempts
        if not self.polls[poll].closed and max_attempts is not None:
            if now is None or max_attempts < now or self.polls[poll].rules.counting == "once":
                return "22023"
            self.polls[poll].max_attempts = max_attempts
        return "55000" if self.polls[poll].closed else "00000"

    def savepoint(self):
        self.savepoints.append(({name: copy.copy(poll) for name, poll in self.polls.items()}, list(self.entries)))

    def rollback_to(self):
        polls, entries = self.savepoints[-1]
        self.polls, self.entries = {name: copy.copy(poll) for name, poll in polls.items()}, list(entries)
