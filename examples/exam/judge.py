"""What has to be true of the answers, and of what the database holds afterwards.

The judge's own count comes from the times at which each send left and was answered, and from nothing that the
extension says about counts: a hand-in that was answered before the deadline must be accepted, one that was sent after
it must not be, and whatever lies between must have one answer that all its sends share.
"""

from collections import Counter, defaultdict

from client import hand_in

AFTERWARDS = 50  # so many are sent once more after the close


def is_closed(receipt):
    return receipt.outcome == "closed" and not receipt.retryable and receipt.position is None


class Judge:
    """difference: the server's clock minus this machine's, in seconds; tolerance: how wrong that and a time can be."""

    def __init__(self, poll, plan, closes_at, difference, tolerance, answers):
        self.poll, self.plan, self.closes_at, self.answers = poll, plan, closes_at, answers
        self.difference, self.tolerance = difference, tolerance
        self.deadline = closes_at.timestamp()
        self.wrong = 0
        self.of_hand_in = defaultdict(list)  # number -> its answers, those with changed answers apart
        self.changed = []
        for answer in answers:
            if answer.kind == "changed":
                self.changed.append(answer)
            else:
                self.of_hand_in[answer.number].append(answer)
        self.accepted = {}  # number -> the receipt of its accepted answer
        for number, group in self.of_hand_in.items():
            for answer in group:
                if answer.receipt.outcome == "accepted":
                    self.accepted[number] = answer.receipt

    def check(self, text, problems):
        self.wrong += bool(problems)
        found = f": {problems[0]} ({len(problems)} in all)" if problems else ""
        print(f"{'WRONG' if problems else 'ok':7} {text}{found}")

    def all(self, cursors):
        self.figures()
        self.check_time()
        self.check_retries()
        self.check_changed()
        self.check_close(cursors["admin"], cursors["viewer"])
        self.check_status(cursors["submitter"])
        self.check_afterwards(cursors["submitter"])
        self.check_ledger(cursors["auditor"])
        self.check_verify(cursors["auditor"])

    def figures(self):
        outcomes = Counter(answer.receipt.outcome for answer in self.answers)
        sizes = [len(self.plan.payload(number)) for number in range(0, len(self.plan.keys), 100)]
        slowest = max(answer.answered - answer.sent for answer in self.answers)
        first, last = min(answer.sent for answer in self.answers), max(answer.answered for answer in self.answers)
        print(f"figure: {len(self.of_hand_in)} hand-ins of {min(sizes) // 1000} to {max(sizes) // 1000 + 1} kB,"
              f" {len(self.answers)} sends in {last - first:.1f} s: "
              + ", ".join(f"{outcome} {count}" for outcome, count in sorted(outcomes.items()))
              + f"; slowest answer {slowest * 1000:.0f} ms")

    # --- what the clients were told ---------------------------------------------------------------------------------

    def in_time(self, answer):
        """True: judged in time for certain. False: judged late for certain. None: sent before, answered after."""
        if answer.answered + self.difference + self.tolerance < self.deadline:
            return True
        return False if answer.sent + self.difference - self.tolerance >= self.deadline else None

    def check_time(self):
        problems, late = [], []
        for number, group in self.of_hand_in.items():
            in_time = [self.in_time(answer) for answer in group]
            if True in in_time and number not in self.accepted:
                problems.append(f"hand-in {number} was answered in time and is not accepted")
            if all(known is False for known in in_time) and number in self.accepted:
                late.append(f"hand-in {number} was sent after the deadline and is accepted")
        self.check("judged in time: accepted", problems + ([] if self.accepted else ["none is"]))
        for number, group in self.of_hand_in.items():
            if number not in self.accepted:
                late += [f"hand-in {number}: {answer.receipt}" for answer in group if not is_closed(answer.receipt)]
        refused = len(self.of_hand_in) - len(self.accepted)
        self.check("judged late: closed, for good, and nothing stored", late + ([] if refused else ["none came late"]))
        self.check("accepted_at is before the deadline, and between sending and answer", self.wrong_times())

    def wrong_times(self):
        problems = []
        for answer in self.answers:
            if answer.receipt.outcome != "accepted":
                continue
            moment = answer.receipt.accepted_at.timestamp() - self.difference
            if not answer.sent - self.tolerance <= moment <= answer.answered + self.tolerance:
                problems.append(f"hand-in {answer.number} was accepted at {moment}, sent at {answer.sent}")
            if answer.receipt.accepted_at >= self.closes_at:
                problems.append(f"hand-in {answer.number} was accepted at the deadline or after it")
        return problems

    def check_retries(self):
        problems, twice = [], 0
        for number, group in self.of_hand_in.items():
            twice += len(group) == 2
            outcomes = sorted(answer.receipt.outcome for answer in group)
            expected = ["accepted", "duplicate"][:len(group)] if number in self.accepted else ["closed"] * len(group)
            if outcomes != expected:
                problems.append(f"hand-in {number}: {outcomes}")
            elif len({answer.receipt.identity() for answer in group}) != 1:
                problems.append(f"hand-in {number}: two receipts")
        self.check(f"sent twice: the same receipt ({twice} hand-ins)", problems + ([] if twice else ["none was"]))

    def check_changed(self):
        problems = []
        for answer in self.changed:
            expected = ("conflict", ["payload"]) if answer.number in self.accepted else ("closed", None)
            if (answer.receipt.outcome, answer.receipt.differs) != expected:
                problems.append(f"hand-in {answer.number}: {answer.receipt}")
        self.check(f"other answers under a known key: conflict ({len(self.changed)})", problems)

    # --- what the database holds ------------------------------------------------------------------------------------

    def check_close(self, admin, viewer):
        """Closes the exam, unless the worker was faster: the final snapshot is the same."""
        admin.execute("SELECT included_position, poll_tally.get(counts, 'handed-in'), total, final"
                      " FROM poll_tally.close_poll(%s)", (self.poll,))
        final, count = admin.fetchone(), len(self.accepted)
        wrong = [] if final == (count, count, count, True) else [final]
        self.check("the final snapshot counts what was accepted", wrong)
        viewer.execute("SELECT choice, count, share FROM poll_tally.published WHERE poll = %s", (self.poll,))
        seen = viewer.fetchall()
        self.check("a viewer sees the same", [] if seen == [("handed-in", count, 1)] else [seen])

    def check_status(self, submitter):
        problems = []
        for number, key in enumerate(self.plan.keys):
            submitter.execute("SELECT status, poll, position::text, accepted_at"
                              " FROM poll_tally.event_status(%s)", (key,))
            receipt = self.accepted.get(number)
            expected = ("unknown", None, None, None)
            if receipt is not None:
                expected = ("accepted", self.poll, receipt.position, receipt.accepted_at)
            status = submitter.fetchone()
            if status != expected:
                problems.append(f"hand-in {number}: {status}, not {expected}")
        self.check(f"event_status tells of each key what its receipt said ({len(self.plan.keys)} keys)", problems)

    def check_afterwards(self, submitter):
        """A student who never saw the receipt asks again, long after the close."""
        problems = []
        for number in range(AFTERWARDS):
            receipt = hand_in(submitter, self.poll, self.plan, number)
            known = self.accepted.get(number)
            if known is None and receipt.outcome != "closed":
                problems.append(f"hand-in {number}: {receipt}")
            elif known is not None and (receipt.outcome, receipt.identity()) != ("duplicate", known.identity()):
                problems.append(f"hand-in {number}: {receipt}")
        self.check(f"sent once more after the close: still the same receipt ({AFTERWARDS})", problems)

    def check_ledger(self, auditor):
        """Every entry is one that was accepted, with the answers that were sent, read one by one."""
        problems, entries = [], 0
        number_of = {key: number for number, key in enumerate(self.plan.keys)}
        auditor.execute("BEGIN")
        auditor.execute("DECLARE entries CURSOR FOR SELECT event_id, principal, payload, position::text"
                        " FROM poll_tally.events WHERE poll = %s", (self.poll,))
        while True:
            auditor.execute("FETCH 100 FROM entries")
            rows = auditor.fetchall()
            if not rows:
                break
            for key, student, payload, position in rows:
                number, entries = number_of[key], entries + 1
                if number not in self.accepted or position != self.accepted[number].position:
                    problems.append(f"hand-in {number} is in the ledger at {position}")
                elif (student, payload) != (self.plan.students[number], self.plan.answers(number)):
                    problems.append(f"hand-in {number} is not what was sent")
        auditor.execute("COMMIT")
        if entries != len(self.accepted):
            problems.append(f"{entries} entries, {len(self.accepted)} accepted")
        self.check("the ledger holds exactly what was accepted, answers included", problems)

    def check_verify(self, auditor):
        auditor.execute("SELECT check_name, ok, expected, actual FROM poll_tally.verify_poll(%s)", (self.poll,))
        rows = auditor.fetchall()
        wrong = [row for row in rows if not row[1]] + ([] if len(rows) == 4 else [f"{len(rows)} checks"])
        self.check("verify_poll: " + ", ".join(row[0] for row in rows), wrong)
