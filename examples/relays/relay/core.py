"""The relay: what happens to a record between receiving and acknowledging, whatever the queue.

    receive -> window -> batch -> accept_events + advance_source, COMMIT -> dead letters -> acknowledge

Invariant: a record is acknowledged only when it and all that were delivered before it in its partition are finished,
and after the transaction that stored the cursor. Whatever fails in between leaves it unacknowledged, and the queue
delivers it again; the ledger then answers duplicate.

There is one thread and no waiting but in the queue's receive, which is told when the next batch is due: neither does
receiving wait for that time, nor that time for receiving. A database that is away is a time to come back at, while
receiving goes on until the window is full.

An adapter (the three *_relay.py) offers:

    has_cursor                          its records have offsets, so a cursor is stored with each batch
    receive(room, timeout)              yields at most room records, waits at most timeout seconds for the first
    bury(pairs)                         writes pairs of record and letter to the dead letters, durably
    acknowledge(partition, records)     the finished prefix of a partition
    ceiling()                           what the cursor must not pass, None for no bound
"""

import sys
import time

from relay import steps
from relay.faults import Later, Poison, Retry
from relay.record import letter_of
from relay.window import Window

DONE = {"accepted": "accepted", "duplicate": "duplicates"}


class Held(Exception):
    """The database does not answer now; held_until says when to ask again."""


class Park:
    """A poll whose events have to wait, all of them, so that they keep their order."""

    def __init__(self):
        self.tries, self.due = 0, 0.0


def log(text):
    print(text, file=sys.stderr, flush=True)


class Relay:
    """settings: batch, in_flight (records), batch_bytes, every, idle, outage (seconds), tries; see command.py."""

    def __init__(self, name, source, ledger, settings, metrics, backoff, clock=time.monotonic):
        self.name, self.source, self.ledger = name, source, ledger
        self.settings, self.metrics, self.backoff, self.clock = settings, metrics, backoff, clock
        self.windows = {}                       # partition -> Window
        self.parks = {}                         # poll -> Park
        self.fresh = 0                          # records received since the last flush
        self.first_at = self.last_at = 0.0      # when the first and the last of these came
        self.held_until = self.confirm_at = None
        self.failures = self.confirm_failures = 0

    # --- receiving --------------------------------------------------------------------------------------------------

    def room(self):
        return max(0, self.settings.in_flight - sum(map(len, self.windows.values())))

    def add(self, record):
        now = self.clock()
        record.received_at = now
        record.read()
        self.windows.setdefault(record.partition, Window(record.partition)).add(record)
        self.first_at = now if self.fresh == 0 else self.first_at
        self.last_at = now
        self.fresh += 1
        self.metrics.count("received")
        self.note_oldest()
        steps.at("received", record.partition, record.position)

    def due_at(self):
        """When to flush: a full batch now, else its time, a pause in receiving, or a poll's next try. None: never."""
        if self.held_until is not None:
            return self.held_until
        times = [park.due for park in self.parks.values()]
        if self.confirm_at is not None:
            times.append(self.confirm_at)
        if self.fresh >= self.settings.batch:
            times.append(self.first_at)
        elif self.fresh > 0:
            times.append(min(self.first_at + self.settings.every, self.last_at + self.settings.idle))
        return min(times, default=None)

    def wait(self, most):
        """Seconds that receiving may wait, at most so many."""
        due_at = self.due_at()
        return most if due_at is None else min(most, max(0.0, due_at - self.clock()))

    def step(self):
        due_at = self.due_at()
        if due_at is not None and self.clock() >= due_at:
            self.flush()

    # --- flushing ---------------------------------------------------------------------------------------------------

    def flush(self, partitions=None):
        """Settle and acknowledge what can be, at once; of some partitions, or of all."""
        self.fresh = 0
        self.held_until = self.confirm_at = None
        try:
            for partition in list(self.windows) if partitions is None else partitions:
                if partition in self.windows:
                    self.flush_window(self.windows[partition])
        except Held:
            pass
        waiting = {record.poll for window in self.windows.values() for record in window.unfinished()}
        self.parks = {poll: park for poll, park in self.parks.items() if poll in waiting}
        self.note_oldest()

    def flush_window(self, window):
        now = self.clock()                      # what is to be tried again meanwhile waits for the next flush
        try:
            while True:
                batch = self.next_batch(window, now)
                if not batch:
                    break
                self.bury(batch)
                events = [record for record in batch if not record.finished]
                if events:
                    self.judge(window, events)
                self.bury(events)
                self.confirm(window)
        except Held:
            # Without a cursor to store, dead letters can be acknowledged though the database is away.
            if not self.source.has_cursor:
                self.confirm(window)
            raise
        self.confirm(window)

    def next_batch(self, window, now):
        """At most so many records, and so many bytes if there is more than one."""
        batch, size = [], 0
        for record in window.unfinished():
            park = self.parks.get(record.poll)
            if record.reason is not None or park is None or park.due <= now:
                size += len(record.body)
                if batch and (len(batch) == self.settings.batch or size > self.settings.batch_bytes):
                    break
                batch.append(record)
        return batch

    def judge(self, window, events):
        """One transaction for the batch; more only where it is too much for one, or to find the record that the database
        cannot read."""
        ceiling = self.source.ceiling() if self.source.has_cursor else None
        try:
            receipts = self.ledger.accept(window.partition, events,
                                          lambda receipts: self.cursor_after(window, events, receipts, ceiling))
        except Retry as fault:
            if fault.divisible and len(events) > 1:
                self.judge_halves(window, events)
                return
            self.hold(events, fault)
            raise Held from fault
        except Poison as fault:
            if len(events) > 1:
                self.judge_halves(window, events)
            else:
                events[0].refuse(fault.reason, str(fault))
            return
        self.failures = 0
        self.take(events, receipts)
        window.stored = window.finished_prefix()

    def judge_halves(self, window, events):
        for half in (events[:len(events) // 2], events[len(events) // 2:]):
            self.judge(window, half)

    def cursor_after(self, window, events, receipts, ceiling):
        if not self.source.has_cursor:
            return None
        done = {record for record, receipt in zip(events, receipts) if receipt.outcome in DONE}
        return self.cursor(window, window.finished_prefix(done), ceiling)

    @staticmethod
    def cursor(window, count, ceiling):
        next_offset = window.next_offset(count)
        return next_offset if None in (next_offset, ceiling) else min(next_offset, ceiling)

    def take(self, events, receipts):
        """Receipts that are committed: done, to be tried again, or dead."""
        waiting, answered = set(), set()
        for record, receipt in zip(events, receipts):
            record.tries += 1
            record.failing_since = None
            if record.in_doubt:
                record.in_doubt = False
                self.metrics.count("unknown_results_resolved")
            if receipt.outcome in DONE:
                record.finished = True
                self.metrics.count(DONE[receipt.outcome])
            elif receipt.retryable and record.tries < self.settings.tries:
                self.metrics.count("retried")
            else:
                record.refuse(receipt.outcome, receipt.detail)
            (waiting if receipt.retryable else answered).add(record.poll)
            steps.at("settled", record.partition, record.position, receipt.outcome)
        for poll in answered - waiting:
            self.parks.pop(poll, None)
        for poll in waiting:
            park = self.parks.setdefault(poll, Park())
            park.tries += 1
            park.due = self.clock() + self.backoff.delay(park.tries)
            steps.at("retrying", poll)

    def hold(self, events, fault):
        """The batch stays in the window; what has come to its bound is to be dead-lettered."""
        now = self.clock()
        self.failures += 1
        self.held_until = now + self.backoff.delay(self.failures)
        log("database: %s (%s); again in %.1f s" % (fault.reason, fault, self.held_until - now))
        for record in events:
            record.tries += not fault.outage        # an outage is no try, it has its own bound
            record.in_doubt = record.in_doubt or fault.in_doubt
            record.failing_since = now if record.failing_since is None else record.failing_since
            if fault.outage:
                over = 0 < self.settings.outage <= now - record.failing_since
            else:
                over = record.tries >= self.settings.tries
            if over:
                record.refuse(fault.reason, ("it may be in the ledger; " if record.in_doubt else "") + str(fault))
            else:
                self.metrics.count("retried")
        steps.at("retrying", fault.reason)

    def bury(self, records):
        """Those of the records that were refused."""
        records = [record for record in records if record.reason is not None and not record.finished]
        if not records:
            return
        steps.at("burying")
        self.source.bury([(record, letter_of(self.name, record)) for record in records])
        for record in records:
            record.finished = True
            self.metrics.count_dead(record.reason)
            steps.at("buried", record.partition, record.position, record.reason)

    def confirm(self, window):
        """Store the cursor where the last transaction did not reach, then acknowledge."""
        count = window.finished_prefix()
        if count == 0 or count == 1 and window.refused and self.confirm_at is not None:
            return                              # it was tried; others are, whatever became of this one
        if self.source.has_cursor and window.stored < count:
            self.store_cursor(window, count)
        records = window.first(count)
        steps.at("acknowledging")
        try:
            self.source.acknowledge(window.partition, records)
        except Later as fault:
            self.confirm_failures += 1
            self.confirm_at = self.clock() + self.backoff.delay(self.confirm_failures)
            self.metrics.count("acknowledge_failures")
            log("acknowledgement not taken: %s" % fault)
            window.owe(count - 1)               # that of the last one covers them: they need not wait here
            return
        self.confirm_failures = 0
        self.metrics.count("acknowledged", window.leave(count))
        for record in records:
            steps.at("acknowledged", record.partition, record.position)

    def store_cursor(self, window, count):
        next_offset = self.cursor(window, count, self.source.ceiling())
        if next_offset is not None:
            try:
                self.ledger.advance(window.partition, next_offset)
            except Retry as fault:
                self.hold([], fault)
                raise Held from fault
        window.stored = count

    # --- partitions that go -----------------------------------------------------------------------------------------

    def leave(self, partitions=None):
        """Flush, then forget: after a rebalance or at the end. What is not settled is delivered again."""
        steps.at("leaving")
        self.flush(partitions)
        self.forget(partitions)

    def forget(self, partitions=None):
        for partition in list(self.windows) if partitions is None else partitions:
            self.windows.pop(partition, None)
        if self.windows:
            self.held_until = self.clock()      # what is left is looked at again, now
        else:
            self.fresh = 0
            self.held_until = self.confirm_at = None
            self.parks = {}
        self.note_oldest()

    def note_oldest(self):
        times = (window.oldest_at() for window in self.windows.values())
        self.metrics.oldest_at = min((time for time in times if time is not None), default=None)
