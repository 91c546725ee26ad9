"""The relays' core by itself: a queue, a database and a clock made of plain Python, so that every order can be had.

usage: relay_core.py EXAMPLES_FOLDER ROUNDS SEED

Prints TAP. The last test runs so many rounds of random outcomes, faults, losses and rebalances against the invariant:
acknowledged is only what is in the ledger or among the dead letters, in order of delivery, and after the COMMIT that
stored the cursor.
"""

import collections
import contextlib
import io
import random
import signal
import sys
import types
import unittest

import psycopg2

EXAMPLES, ROUNDS, SEED = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.path.insert(0, EXAMPLES)

from relay import command, core, faults, record, window # noqa: E402
from relay.ledger import Receipt                        # noqa: E402
from relay.metrics import Metrics                       # noqa: E402

SETTINGS = {"batch": 10, "batch_bytes": 100000, "every": 2.0, "idle": 0.5, "in_flight": 100, "tries": 3, "outage": 60.0}
RETRYABLE = {"unknown_poll", "not_open"}
PERMANENT = {"invalid", "conflict", "source_conflict", "expired", "closed", "not_eligible", "unknown_choice",
             "already_responded", "limit_reached"}


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Queue:
    """Keeps what was acknowledged and what was buried, and writes every step into the common book."""

    def __init__(self, book, has_cursor=True):
        self.book, self.has_cursor = book, has_cursor
        self.acknowledged, self.letters = [], {}
        self.bound = None
        self.later = 0
        self.refused = {}                       # partition -> positions whose acknowledgement was not taken

    def ceiling(self):
        return self.bound

    def bury(self, pairs):
        for item, letter in pairs:
            self.book.append(("bury", item.position))
            self.letters[letter["id"]] = letter

    def acknowledge(self, partition, records):
        positions = dict.fromkeys(self.refused.pop(partition, []) + [item.position for item in records])
        if self.later:
            self.later -= 1
            self.refused[partition] = list(positions)
            raise faults.Later("not now")
        self.book.append(("acknowledge", list(positions)))
        self.acknowledged += [(partition, position) for position in positions]


class Database:
    """answers: event id -> a list of outcomes and faults, the last one for ever; accepted where there is none."""

    def __init__(self, book):
        self.book = book
        self.answers = {}
        self.entries = set()
        self.cursors = {}
        self.batches = []
        self.most = self.takes = None   # records a transaction; what is called with every batch

    def next_answer(self, name):
        answers = self.answers.get(name, ["accepted"])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def accept(self, partition, records, cursor_after):
        names = [record.read_event(item.body)["event_id"] for item in records]
        self.batches.append(names)
        if self.takes is not None:
            self.takes()
        if self.most is not None and len(names) > self.most:
            raise too_much()
        receipts = []
        after = None
        for name in names:
            answer = self.next_answer(name)
            if isinstance(answer, Exception):
                if not getattr(answer, "committed", False):
                    raise answer
                after, answer = answer, "accepted"
            if answer == "accepted" and name in self.entries:
                answer = "duplicate"
            receipts.append(Receipt(answer, answer in RETRYABLE, None, None))
        next_offset = cursor_after(receipts)
        self.entries.update(name for name, receipt in zip(names, receipts) if receipt.outcome == "accepted")
        self.move(partition, next_offset)
        if after is not None:
            raise after
        self.book.append(("commit", len(names)))
        return receipts

    def move(self, partition, next_offset):
        if next_offset is not None:
            self.cursors[partition] = max(self.cursors.get(partition, 0), next_offset)

    def advance(self, partition, next_offset):
        self.move(partition, next_offset)
        self.book.append(("advance", next_offset))


def body(name, poll="p"):
    return b'{"poll": "%s", "event_id": "%s", "choice": "a"}' % (poll.encode(), name.encode())


def lost(in_doubt=False, committed=False):
    fault = faults.Retry("lost_connection", "gone", outage=True, in_doubt=in_doubt)
    fault.committed = committed
    return fault


def too_much():
    return faults.Retry("out_of_memory", "no locks left", outage=True, divisible=True)


class Bench:
    def __init__(self, has_cursor=True, rng=None, **settings):
        self.book, self.clock = [], Clock()
        self.queue, self.database = Queue(self.book, has_cursor), Database(self.book)
        self.metrics = Metrics(self.clock)
        self.relay = core.Relay("queue", self.queue, self.database, types.SimpleNamespace(**dict(SETTINGS, **settings)),
                                self.metrics, faults.Backoff(1.0, 8.0, rng or random.Random(SEED)), self.clock)
        self.next = 0

    def send(self, *names, poll="p", partition=0, bodies=None):
        for data in bodies or [body(name, poll) for name in names]:
            self.relay.add(record.Record(partition, self.next, self.next, data))
            self.next += 1

    def answer(self, name, *answers):
        self.database.answers[name] = list(answers)

    def pass_time(self, seconds):
        """Let time pass as the loop does: to the next time that something is due."""
        end = self.clock.now + seconds
        while self.relay.wait(end - self.clock.now) < end - self.clock.now:
            self.clock.now += self.relay.wait(end - self.clock.now)
            self.relay.step()
        self.clock.now = end
        self.relay.step()

    def positions(self):
        return [position for _, position in self.queue.acknowledged]

    def reasons(self):
        return {name: letter["reason"] for name, letter in self.queue.letters.items()}


class Batches(unittest.TestCase):
    def test_a_full_batch_is_flushed_at_once(self):
        bench = Bench()
        bench.send(*["e%d" % number for number in range(9)])
        bench.relay.step()
        self.assertEqual(bench.database.batches, [])
        bench.send("e9")
        self.assertEqual(bench.relay.wait(5), 0)
        bench.relay.step()
        self.assertEqual([len(batch) for batch in bench.database.batches], [10])

    def test_no_batch_is_larger_than_its_setting(self):
        bench = Bench()
        bench.send(*["e%d" % number for number in range(35)])
        bench.relay.step()
        self.assertEqual([len(batch) for batch in bench.database.batches], [10, 10, 10, 5])

    def test_no_transaction_takes_more_bytes_than_its_setting_but_for_a_single_record(self):
        bench = Bench(batch_bytes=3 * len(body("e0")))
        bench.send(*["e%d" % number for number in range(5)])
        bench.send("x" * 300)
        bench.send("e6")
        bench.relay.flush()
        self.assertEqual([len(batch) for batch in bench.database.batches], [3, 2, 1, 1])
        self.assertEqual(bench.positions(), list(range(7)))

    def test_what_is_to_be_tried_again_waits_for_the_next_flush_however_slow_the_database_is(self):
        bench = Bench(batch=1)
        bench.answer("a", "not_open")
        bench.database.takes = lambda: setattr(bench.clock, "now", bench.clock.now + 100)
        bench.send("a")
        bench.send("b", poll="q")
        bench.relay.flush()
        self.assertEqual(bench.database.batches, [["a"], ["b"]])

    def test_the_first_record_waits_no_longer_than_the_timer_while_receiving_goes_on(self):
        bench = Bench()
        start = bench.clock.now
        while not bench.database.batches:           # one every 0.375 s: never a pause of 0.5 s, never ten
            bench.send("e%d" % bench.next)
            bench.pass_time(min(0.375, bench.relay.wait(0.375)))
        self.assertEqual(bench.clock.now - start, 2.0)
        self.assertEqual(len(bench.database.batches[0]), 6)

    def test_a_pause_in_receiving_flushes_before_the_timer(self):
        bench = Bench()
        bench.send("a", "b")
        self.assertEqual(bench.relay.wait(5), 0.5)
        bench.pass_time(0.5)
        self.assertEqual((bench.positions(), bench.clock.now), ([0, 1], 1000.5))

    def test_receiving_is_not_told_to_wait_for_more_than_it_has_to(self):
        bench = Bench()
        self.assertEqual(bench.relay.wait(5), 5)    # nothing is due: as long as it likes
        bench.send("a")
        self.assertEqual(bench.relay.wait(0.1), 0.1)
        self.assertEqual(bench.relay.room(), 99)

    def test_the_window_bounds_what_is_received(self):
        bench = Bench(in_flight=10)
        bench.answer("e0", "not_open")
        bench.send(*["e%d" % number for number in range(10)])
        bench.relay.step()
        self.assertEqual(bench.relay.room(), 0)     # e0 holds all of them back
        bench.pass_time(100)
        self.assertEqual(bench.relay.room(), 10)


class Order(unittest.TestCase):
    def test_batch_and_cursor_then_commit_then_acknowledge(self):
        bench = Bench()
        bench.send("a", "b")
        bench.pass_time(1)
        self.assertEqual(bench.book, [("commit", 2), ("acknowledge", [0, 1])])
        self.assertEqual(bench.database.cursors, {0: 2})

    def test_dead_letters_come_before_the_cursor_that_passes_them(self):
        bench = Bench()
        bench.answer("b", "closed")
        bench.send("a", "b", "c")
        bench.pass_time(1)
        self.assertEqual(bench.book, [("commit", 3), ("bury", 1), ("advance", 3), ("acknowledge", [0, 1, 2])])

    def test_nothing_behind_a_gap_is_acknowledged(self):
        bench = Bench()
        bench.answer("b", "unknown_poll", "unknown_poll", "accepted")
        bench.send("a")
        bench.send("b", poll="late")
        bench.send("c", "d")
        bench.pass_time(0.6)
        self.assertEqual((bench.positions(), bench.database.cursors), ([0], {0: 1}))
        self.assertEqual(bench.database.entries, {"a", "c", "d"})
        bench.pass_time(10)
        self.assertEqual((bench.positions(), bench.database.cursors), ([0, 1, 2, 3], {0: 4}))

    def test_partitions_do_not_wait_for_each_other(self):
        bench = Bench()
        bench.answer("a", "not_open")
        bench.send("a", poll="later", partition=0)
        bench.send("b", "c", partition=1)
        bench.pass_time(0.6)
        self.assertEqual(bench.queue.acknowledged, [(1, 1), (1, 2)])

    def test_events_of_a_waiting_poll_keep_their_order(self):
        bench = Bench(tries=9)
        bench.answer("first", "not_open", "not_open", "not_open", "accepted")
        bench.send("first", poll="show")
        bench.pass_time(0.6)
        bench.send("second", poll="show")
        bench.send("other", poll="else")
        bench.pass_time(100)
        order = [name for batch in bench.database.batches for name in batch]
        self.assertEqual(order.count("second"), sum("second" in batch for batch in bench.database.batches))
        for batch in bench.database.batches:
            if "second" in batch:
                self.assertLess(batch.index("first"), batch.index("second"))
        self.assertEqual(bench.positions(), [0, 1, 2])

    def test_a_cursor_stays_below_what_others_hold_and_below_what_was_delivered_late(self):
        bench = Bench()
        bench.queue.bound = 1
        bench.send("a", "b", "c")
        bench.pass_time(1)
        self.assertEqual((bench.positions(), bench.database.cursors), ([0, 1, 2], {0: 1}))
        late = window.Window(0)
        for offset, finished in ((10, True), (11, True), (4, False), (12, True)):
            late.add(record.Record(0, offset, offset, b""))
            late.records[-1].finished = finished
        self.assertEqual((late.finished_prefix(), late.next_offset(2)), (2, 4))

    def test_an_acknowledgement_that_was_not_taken_is_repeated(self):
        bench = Bench()
        bench.queue.later = 2
        bench.send("a", "b")
        bench.pass_time(0.6)
        self.assertEqual((bench.positions(), len(bench.relay.windows[0])), ([], 1))
        bench.pass_time(20)
        self.assertEqual((bench.positions(), bench.metrics.counts["acknowledge_failures"]), ([0, 1], 2))
        self.assertEqual((len(bench.database.batches), bench.metrics.counts["acknowledged"]), (1, 2))

    def test_a_queue_that_takes_no_acknowledgement_at_all_is_no_reason_to_stop(self):
        bench = Bench(in_flight=20)
        bench.queue.later = 10 ** 6
        for number in range(100):
            self.assertGreater(bench.relay.room(), 0, number)
            bench.send("e%d" % number)
            bench.pass_time(1)
        self.assertEqual((len(bench.database.entries), bench.positions()), (100, []))
        self.assertGreater(bench.metrics.oldest_age(), 50)
        bench.queue.later = 0
        bench.pass_time(20)
        self.assertEqual((bench.positions(), bench.metrics.counts["acknowledged"]), (list(range(100)), 100))

    def test_an_acknowledgement_that_is_not_taken_is_no_reason_for_other_partitions_to_wait(self):
        bench = Bench(batch=2, in_flight=12)
        bench.queue.later = 1000
        for number in range(30):
            self.assertGreater(bench.relay.room(), 0)
            for partition in (0, 1, 2):
                name = "%d-%d" % (partition, number)
                bench.answer(name, "rejected")
                bench.send(name, partition=partition)
            bench.pass_time(1)
        self.assertEqual(len(bench.queue.letters), 90)
        self.assertEqual(bench.database.cursors, {0: 88, 1: 89, 2: 90})
        bench.queue.later = 0
        bench.pass_time(10)
        self.assertEqual(len(bench.queue.acknowledged), 90)


class Outcomes(unittest.TestCase):
    def test_each_outcome_goes_where_it_belongs(self):
        bench = Bench()
        for number, outcome in enumerate(["accepted", "duplicate"] + sorted(PERMANENT)):
            bench.answer(outcome, outcome)
            bench.send(outcome, poll="poll%d" % number)
        bench.pass_time(1)
        self.assertEqual(set(bench.reasons().values()), PERMANENT)
        self.assertEqual(bench.positions(), list(range(2 + len(PERMANENT))))
        self.assertEqual(bench.metrics.dead, dict.fromkeys(PERMANENT, 1))
        self.assertEqual((bench.metrics.counts["accepted"], bench.metrics.counts["duplicates"]), (1, 1))

    def test_retryable_ones_come_to_a_bound_and_are_dead_with_a_named_reason(self):
        for outcome in sorted(RETRYABLE):
            bench = Bench()
            bench.answer("a", outcome)
            bench.send("a")
            bench.pass_time(100)
            self.assertEqual(len(bench.database.batches), 3)
            self.assertEqual(bench.queue.letters, {"queue/0/0": {"id": "queue/0/0", "reason": outcome, "detail": "",
                                                                "tries": "3"}})
            self.assertEqual((bench.metrics.counts["retried"], bench.positions()), (2, [0]))

    def test_sqlstates(self):
        expected = {"40001": ("serialization_failure", False), "40P01": ("deadlock_detected", False),
                    "08006": ("connection_failure", True), "57P01": ("admin_shutdown", True),
                    "57P03": ("cannot_connect_now", True), "53100": ("disk_full", True),
                    "53200": ("out_of_memory", True), "53300": ("too_many_connections", True),
                    "25006": ("read_only_sql_transaction", True),
                    "55P03": ("lock_not_available", True), "57014": ("query_canceled", True)}
        for code, (reason, outage) in expected.items():
            error = error_of(code)
            fault = faults.fault_of(error, faults.is_lost(error, types.SimpleNamespace(closed=0)))
            self.assertIsInstance(fault, faults.Retry, code)
            self.assertEqual((fault.reason, fault.outage, fault.in_doubt), (reason, outage, False))
            self.assertEqual(fault.divisible, code == "53200")
        for code in ("22003", "22P02", "22P05", "22007", "54000"):
            self.assertIsInstance(faults.fault_of(error_of(code), False), faults.Poison, code)
        for code in ("42501", "42883", "3F000", "XX000", "55000", "0A000"):
            self.assertIsNone(faults.fault_of(error_of(code), False), code)
        silent, there, gone = psycopg2.DatabaseError(""), types.SimpleNamespace(closed=0), types.SimpleNamespace(closed=2)
        self.assertTrue(faults.is_lost(silent, there))
        self.assertTrue(faults.is_lost(error_of("57P01"), gone))
        self.assertFalse(faults.is_lost(error_of("57014"), there))
        self.assertFalse(faults.is_lost(psycopg2.ProgrammingError(""), there))
        fault = faults.fault_of(silent, True, committing=True)
        self.assertEqual((fault.reason, fault.outage, fault.in_doubt), ("lost_connection", True, True))

    def test_conflicts_between_transactions_are_tried_again_up_to_the_bound(self):
        bench = Bench()
        bench.answer("a", faults.Retry("deadlock_detected", "", outage=False), "accepted")
        bench.send("a", "b")
        bench.pass_time(20)
        self.assertEqual((bench.positions(), bench.reasons()), ([0, 1], {}))
        bench.answer("c", faults.Retry("deadlock_detected", "", outage=False))
        bench.send("c")
        bench.pass_time(100)
        self.assertEqual(bench.reasons(), {"queue/0/2": "deadlock_detected"})
        self.assertEqual(bench.positions(), [0, 1, 2])

    def test_a_lost_connection_holds_everything_and_is_bounded_by_time(self):
        bench = Bench()
        bench.answer("a", lost())
        bench.send("a", "b")
        bench.pass_time(59)
        self.assertEqual((bench.reasons(), bench.positions()), ({}, []))
        bench.send("c")                             # receiving goes on meanwhile
        bench.pass_time(20)
        self.assertEqual(bench.reasons(), {"queue/0/0": "lost_connection", "queue/0/1": "lost_connection"})
        self.assertEqual(bench.positions(), [0, 1, 2])
        self.assertIn("c", bench.database.entries)

    def test_an_outage_uses_up_no_tries(self):
        bench = Bench()
        bench.answer("a", *[lost()] * 5, "unknown_poll", "unknown_poll", "accepted")
        bench.send("a")
        bench.pass_time(200)
        self.assertEqual((bench.reasons(), bench.positions()), ({}, [0]))

    def test_without_a_bound_an_outage_makes_nothing_dead(self):
        bench = Bench(outage=0)
        bench.answer("a", *[lost()] * 200, "accepted")
        bench.send("a")
        bench.pass_time(10000)
        self.assertEqual((bench.reasons(), bench.positions()), ({}, [0]))

    def test_an_unknown_commit_result_is_resolved_by_the_retry(self):
        for committed in (True, False):
            bench = Bench()
            bench.answer("b", lost(in_doubt=True, committed=committed), "accepted")
            bench.send("a", "b", "c")
            bench.pass_time(20)
            counts = bench.metrics.counts
            self.assertEqual((counts["unknown_results_resolved"], bench.positions()), (3, [0, 1, 2]))
            self.assertEqual((counts["accepted"], counts["duplicates"]), (0, 3) if committed else (3, 0))
            self.assertEqual(len(bench.database.entries), 3)

    def test_a_dead_letter_says_that_its_event_may_be_in_the_ledger(self):
        bench = Bench()
        bench.answer("a", lost(in_doubt=True))
        bench.send("a")
        bench.pass_time(100)
        self.assertEqual([letter["detail"] for letter in bench.queue.letters.values()], ["it may be in the ledger; gone"])

    def test_a_record_that_the_database_cannot_read_is_found_and_the_others_pass(self):
        bench = Bench(batch=64)
        bench.answer("e37", faults.Poison("invalid_datetime_format", "no time"))
        bench.send(*["e%d" % number for number in range(64)])
        bench.relay.step()
        self.assertEqual(bench.reasons(), {"queue/0/37": "invalid_datetime_format"})
        self.assertEqual(len(bench.database.entries), 63)
        self.assertEqual(bench.positions(), list(range(64)))
        self.assertLessEqual(len(bench.database.batches), 2 * 6 + 1)

    def test_a_batch_that_is_too_much_for_one_transaction_is_halved(self):
        bench = Bench(batch=64)
        bench.database.most = 10
        bench.send(*["e%d" % number for number in range(64)])
        bench.relay.step()
        self.assertEqual((bench.positions(), bench.reasons()), (list(range(64)), {}))
        bench.answer("a", too_much(), too_much(), too_much(), too_much(), "accepted")
        bench.send("a")
        bench.pass_time(50)                         # an outage, for a single record
        self.assertEqual((bench.positions(), bench.reasons()), (list(range(65)), {}))

    def test_a_detail_is_cut(self):
        bench = Bench()
        bench.send(bodies=[b'{"poll": "p", "event_id": "e", "%s": 1}' % (b"x" * 200000)])
        bench.pass_time(1)
        self.assertEqual([len(letter["detail"]) for letter in bench.queue.letters.values()], [1000])

    def test_any_other_error_ends_the_relay_with_nothing_acknowledged(self):
        bench = Bench()
        bench.answer("a", error_of("42501"))
        bench.send("a", "b")
        with self.assertRaises(psycopg2.Error):
            bench.pass_time(1)
        self.assertEqual((bench.positions(), bench.reasons()), ([], {}))


class Ends(unittest.TestCase):
    """The loop of command.py: SIGTERM before anything could be reached, and at work."""

    def loop(self, **faults_by_call):
        for number in (signal.SIGTERM, signal.SIGINT):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        options = command.parser("").parse_args(["dsn", "--backoff", "0.001", "--backoff-cap", "0.001"])
        book = []
        source = types.SimpleNamespace(has_cursor=True)
        loop = command.Loop(options, "queue", source)

        def make(name):
            def call(*arguments):
                book.append(name)
                if len(book) > 20:
                    loop.stop.set()
                if name in faults_by_call:
                    raise faults_by_call[name]
                return []
            return call

        for name in ("connect", "receive", "bury", "acknowledge", "drop", "close", "ceiling"):
            setattr(source, name, make(name))
        loop.ledger.check = make("check")
        loop.run()
        return book

    def test_a_database_that_was_never_reached_lets_nothing_be_received(self):
        self.assertEqual(set(self.loop(check=lost())), {"check", "close"})

    def test_a_lost_queue_is_dropped_and_connected_again(self):
        self.assertEqual(self.loop(receive=faults.Lost("gone"))[:7],
                         ["check"] + ["connect", "receive", "drop"] * 2)

    def test_it_ends_in_order(self):
        self.assertEqual(self.loop()[-2:], ["receive", "close"])


class Settings(unittest.TestCase):
    BAD = ("--batch 0", "--batch -1", "--batch x", "--batch-bytes 0", "--every -1", "--every nan", "--idle -0.1",
           "--every inf", "--in-flight 0", "--in-flight 70000", "--tries 0", "--backoff 0", "--backoff-cap 0",
           "--outage -1", "--outage nan", "--metrics-port 65536", "--metrics-port -1")

    def refused(self, work):
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit) as ended:
            work()
        self.assertEqual(ended.exception.code, 2)
        return said.getvalue()

    def test_values_out_of_bounds_are_refused(self):
        for text in self.BAD:
            name = text.split()[0]
            said = self.refused(lambda: command.parser("", 65535).parse_args(["dsn"] + text.split()))
            self.assertIn("argument %s:" % name, said)
        given = command.parser("").parse_args("dsn --batch 1 --every 0 --idle 0 --in-flight 70000 --outage 0".split())
        self.assertEqual((given.batch, given.every, given.in_flight, given.tries), (1, 0, 70000, 10))

    def test_a_queue_whose_name_the_ledger_does_not_take_needs_another_one(self):
        options = command.parser("")
        for name in ("my votes", "x" * 65, "caf\u00e9", 'a"b', "a\\b", "a\n"):
            given = options.parse_args(["dsn"])
            self.assertIn("--source", self.refused(lambda: command.source_name(options, given, name)), name)
            given = options.parse_args(["dsn", "--source", "votes"])
            self.assertEqual(command.source_name(options, given, name), "votes")
        for name in ("votes", "x" * 64, "!#[]~"):
            self.assertEqual(command.source_name(options, options.parse_args(["dsn"]), name), name)


class Backoff(unittest.TestCase):
    def test_doubles_to_a_cap_with_jitter(self):
        backoff = faults.Backoff(0.1, 10.0, random.Random(SEED))
        for tries in range(1, 2000):
            full = min(10.0, 0.1 * 2 ** min(tries - 1, 60))
            delays = [backoff.delay(tries) for _ in range(20)]
            self.assertTrue(all(full / 2 <= delay <= full for delay in delays), tries)
            self.assertGreater(len(set(delays)), 10)


class Bodies(unittest.TestCase):
    GOOD = (b'{"poll": "p", "event_id": "e", "choice": "a"}',
            b'{"poll": "p", "event_id": "e", "votes": {"a": 2}, "principal": null, "payload": [1e999, {"x": "\\u0000"}]}',
            b'{"poll": "p", "event_id": "e"}',      # the database says what is missing
            b'{"poll": "p", "event_id": "e", "occurred_at": null}',
            b'{"poll": "p", "event_id": "e", "occurred_at": "2026-11-30T12:00:00Z"}',
            b'{"poll": "p", "event_id": "e", "occurred_at": "2026-11-30 12:00:00.123456+05:30"}',
            b'{"poll": "p", "event_id": "e", "occurred_at": "2026-13-45T12:00-03"}')  # no such day, says the database
    BAD = {b"": "no JSON", b"\xff\xfe": "not UTF-8", b"[1]": "no JSON object", b"null": "no JSON object",
           b'{"poll": "p"': "no JSON", b'{"poll": "p", "choice": "a"}': "event_id is missing",
           b'{"event_id": "e", "poll": null}': "poll is missing", b'{"poll": 5, "event_id": "e"}': "poll is no string",
           b'{"poll": "p", "event_id": "e", "choice": ["a"]}': "choice is no string",
           b'{"poll": "p", "event_id": "e", "colour": "a"}': "no member 'colour'",
           b'{"poll": "p", "event_id": "e", "poll": "q"}': "repeated",
           b'{"poll": "p", "event_id": "e", "payload": {"a": 1, "a": 2}}': "repeated",
           b'{"poll": "p", "event_id": "e", "payload": NaN}': "NaN is no JSON",
           b'{"poll": "p", "event_id": "e", "occurred_at": "now"}': "occurred_at is no date",
           b'{"poll": "p", "event_id": "e", "occurred_at": "today 12:00Z"}': "occurred_at is no date",
           b'{"poll": "p", "event_id": "e", "occurred_at": "2026-11-30"}': "occurred_at is no date",
           b'{"poll": "p", "event_id": "e", "occurred_at": "2026-11-30T12:00:00"}': "occurred_at is no date",
           b"[" * 100000: "no JSON", b'{"poll": "p", "event_id": "e"} x': "no JSON"}

    def test_events_are_told_from_what_is_none(self):
        for data in self.GOOD:
            self.assertEqual(record.read_event(data)["event_id"], "e")
        for data, text in self.BAD.items():
            with self.assertRaises(record.Invalid, msg=data[:80]) as caught:
                record.read_event(data)
            self.assertIn(text, str(caught.exception))

    def test_what_is_no_event_is_kept_and_stops_nobody(self):
        bench = Bench()
        bench.send(bodies=[body("a")] + list(self.BAD)[:5] + [body("b")])
        bench.pass_time(1)
        self.assertEqual(set(bench.reasons().values()), {"invalid_message"})
        self.assertEqual((len(bench.reasons()), bench.positions()), (5, list(range(7))))
        self.assertEqual(bench.database.entries, {"a", "b"})


class Leaving(unittest.TestCase):
    def test_leaving_flushes_at_once_what_can_be_and_forgets_the_rest(self):
        bench = Bench()
        bench.answer("b", "not_open")
        bench.send("a", partition=0)
        bench.send("b", poll="later", partition=1)
        bench.send("c", partition=2)
        bench.relay.leave([0, 1])
        self.assertEqual((bench.queue.acknowledged, set(bench.relay.windows)), ([(0, 0)], {2}))
        bench.relay.leave()
        self.assertEqual((bench.queue.acknowledged, bench.relay.windows), ([(0, 0), (2, 2)], {}))
        self.assertEqual((bench.relay.due_at(), bench.metrics.oldest_age()), (None, 0.0))

    def test_what_is_left_when_a_partition_goes_is_flushed(self):
        bench = Bench()
        bench.send("a", partition=0)
        bench.send("b", partition=1)
        bench.relay.leave([0])
        bench.pass_time(1)
        self.assertEqual(bench.queue.acknowledged, [(0, 0), (1, 1)])

    def test_leaving_without_the_database_acknowledges_nothing(self):
        bench = Bench()
        bench.answer("a", lost())
        bench.send("a")
        bench.relay.leave()
        self.assertEqual((bench.queue.acknowledged, bench.queue.letters), ([], {}))

    def test_without_a_cursor_dead_letters_are_acknowledged_while_the_database_is_away(self):
        bench = Bench(has_cursor=False)
        bench.answer("a", lost())
        bench.send(bodies=[b"x", b"y", body("a")])
        bench.pass_time(1)
        self.assertEqual(bench.positions(), [0, 1])


class Figures(unittest.TestCase):
    def test_the_text_has_every_figure(self):
        bench = Bench()
        bench.answer("b", "closed")
        bench.answer("c", "not_open")
        bench.send("a", "b")
        bench.send("c", poll="later")
        bench.pass_time(0.7)
        text = bench.metrics.text()
        for line in ("relay_received_total 3", "relay_accepted_total 1", "relay_duplicates_total 0",
                     "relay_retried_total 1", 'relay_dead_lettered_total{reason="closed"} 1',
                     "relay_unknown_results_resolved_total 0", "relay_oldest_unacknowledged_seconds 0.700"):
            self.assertIn(line + "\n", text)


class Model(unittest.TestCase):
    """Random everything; a record that is not acknowledged is delivered again after a loss or a rebalance."""

    def one_round(self, rng):
        bench = Bench(has_cursor=rng.random() < 0.7, rng=rng, batch=rng.randint(1, 8), tries=rng.randint(2, 4),
                      in_flight=rng.randint(5, 30), outage=rng.choice((0, 20.0)))
        sent = [(number % 3, "e%d" % rng.randrange(120)) for number in range(100)]
        for name in {name for _, name in sent}:
            bench.answer(name, *[self.random_answer(rng) for _ in range(rng.randint(0, 4))],
                         rng.choice(["accepted"] * 4 + ["closed", "not_open"]))
        acknowledged, delivered = set(), 0
        waiting = collections.deque(enumerate(sent))
        while waiting or bench.relay.windows and any(map(len, bench.relay.windows.values())):
            for _ in range(min(bench.relay.room(), rng.randint(0, 6), len(waiting))):
                offset, (partition, name) = waiting.popleft()
                data = b"no event" if offset % 17 == 0 else body(name, "poll%d" % (offset % 4))
                bench.relay.add(record.Record(partition, offset, offset, data))
                delivered += 1
            bench.queue.later = rng.choice((0, 0, 0, 1))
            bench.pass_time(rng.random() * 3)
            if rng.random() < 0.05:
                gone = None if rng.random() < 0.5 else [rng.randrange(3)]
                (bench.relay.leave if rng.random() < 0.5 else bench.relay.forget)(gone)
                for partition in range(3) if gone is None else gone:
                    bench.queue.refused.pop(partition, None)
                for offset, (partition, name) in reversed(list(enumerate(sent))):
                    again = gone is None or partition in gone
                    if again and (partition, offset) not in bench.queue.acknowledged \
                            and offset not in [number for number, _ in waiting]:
                        waiting.appendleft((offset, (partition, name)))
            self.check(bench, sent, acknowledged)
        self.assertEqual(len(acknowledged), len(sent))
        return delivered

    @staticmethod
    def random_answer(rng):
        return rng.choice(["accepted", "not_open", "unknown_poll", lost(), lost(in_doubt=True), faults.Poison("bad", ""),
                           lost(in_doubt=True, committed=True), too_much(),
                           faults.Retry("deadlock_detected", "", outage=False)])

    def check(self, bench, sent, acknowledged):
        new = bench.queue.acknowledged[len(acknowledged):]
        for partition, offset in new:
            name = sent[offset][1]
            settled = name in bench.database.entries or "queue/%d/%d" % (partition, offset) in bench.queue.letters
            self.assertTrue(settled, (partition, offset))
            earlier = {(p, o) for o, (p, _) in enumerate(sent) if p == partition and o < offset}
            self.assertLessEqual(earlier, set(bench.queue.acknowledged), "a gap was passed")
            if bench.queue.has_cursor:
                self.assertGreater(bench.database.cursors.get(partition, 0), offset, "before the cursor")
        self.assertEqual(len(set(bench.queue.acknowledged)), len(bench.queue.acknowledged))
        acknowledged.update(new)

    def test_random_rounds(self):
        rng = random.Random(SEED)
        delivered = sum(self.one_round(rng) for _ in range(ROUNDS))
        print("# figure: relay core: %d rounds of 100 messages, %d delivered, seed %d, 0 violations"
              % (ROUNDS, delivered, SEED))


class Tap(unittest.TestResult):
    """A line a test."""

    def line(self, verdict, test):
        print("%s %d - %s" % (verdict, self.testsRun, test.id().split(".", 1)[1].replace("_", " ")), flush=True)

    def addSuccess(self, test):
        self.line("ok", test)

    def fail(self, test, error):
        self.line("not ok", test)
        print("".join("# %s\n" % line for line in self._exc_info_to_string(error, test).splitlines()), end="")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.fail(test, error)

    def addError(self, test, error):
        super().addError(test, error)
        self.fail(test, error)


class error_of(psycopg2.Error):
    pgcode = None

    def __init__(self, code):
        super().__init__("as the server says it")
        self.code = code

    pgcode = property(lambda self: self.code)


if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
    core.log = command.log = lambda text: None
    result = Tap()
    suite.run(result)
    print("1..%d" % result.testsRun)
    sys.exit(not result.wasSuccessful())
