"""The records of one partition that were received and not yet acknowledged, in the order of delivery.

Invariant: only a prefix whose records are all finished leaves the window, so an acknowledgement never passes a gap.
"""

import collections
import itertools


class Window:
    """stored counts the records of the finished prefix that a committed cursor covers, owed those that are gone and that
    the next acknowledgement covers too. refused: that of the first record was not taken."""

    def __init__(self, partition):
        self.partition = partition
        self.records = collections.deque()
        self.stored = self.owed = 0
        self.refused = False
        self.owed_since = None                  # when the first of these was received

    def __len__(self):
        return len(self.records)

    def add(self, record):
        self.records.append(record)

    def unfinished(self):
        return (record for record in self.records if not record.finished)

    def finished_prefix(self, done=frozenset()):
        """How many records could leave, if those in done were finished too."""
        return sum(1 for _ in itertools.takewhile(lambda record: record.finished or record in done, self.records))

    def next_offset(self, count):
        """The cursor once the first count records are finished: everything below it is. None without coordinates.

        Records may be delivered out of order (a pending one that was claimed from another consumer), so the cursor
        stays at or below every record that is still in the window.
        """
        offsets = [record.offset for record in self.records]
        passed = [offset + 1 for offset in offsets[:count] if offset is not None]
        waiting = [offset for offset in offsets[count:] if offset is not None]
        return min([max(passed)] + waiting) if passed else None

    def first(self, count):
        return list(itertools.islice(self.records, count))

    def leave(self, count):
        """Of acknowledged records; how many these are with those that were owed."""
        acknowledged, self.owed, self.refused = count + self.owed, 0, False
        self.drop(count)
        return acknowledged

    def owe(self, count):
        """Records leave whose acknowledgement was not taken; the one behind them stays and stands for them."""
        self.refused = True
        self.owed_since = self.oldest_at()
        self.owed += count
        self.drop(count)

    def oldest_at(self):
        """When the first that is not acknowledged was received, None without any."""
        if self.owed > 0:
            return self.owed_since
        return self.records[0].received_at if self.records else None

    def drop(self, count):
        for _ in range(count):
            self.records.popleft()
        self.stored = max(0, self.stored - count)
