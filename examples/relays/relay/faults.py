"""What can go wrong, in four classes; whoever meets a fault only has to know its class.

    Retry   the database could not do it now: try the same batch again
    Poison  the database cannot read this batch: find the record that is to blame, the others are fine
    Lost    the queue is out of reach: connect again, whatever was not acknowledged is delivered again
    Later   the queue did not take an acknowledgement: repeat it, for the last record, which covers those before

Any other error ends the relay with nothing acknowledged: a missing privilege or a wrong setting is no reason to call
a million messages dead.
"""

import random

import psycopg2
import psycopg2.errorcodes

# Conflicts between transactions: the bound is a number of tries.
CONFLICTS = ("40001", "40P01")
# The database is not there, or cannot write now: the bound is a time.
OUTAGES = ("08", "53", "57", "25006", "55P03")
# Memory, or locks: a transaction over many polls holds one for each.
DIVISIBLE = ("53200",)
# Text that is no jsonb, timestamp or bigint, sums out of range, more than a batch may hold.
POISONS = ("22", "23", "54")


class Retry(Exception):
    """outage: the database is not there. in_doubt: COMMIT was sent, and its result is unknown. divisible: a smaller batch
    may pass."""

    def __init__(self, reason, text, outage, in_doubt=False, divisible=False):
        super().__init__(text)
        self.reason, self.outage, self.in_doubt, self.divisible = reason, outage, in_doubt, divisible


class Poison(Exception):
    def __init__(self, reason, text):
        super().__init__(text)
        self.reason = reason


class Lost(Exception):
    pass


class Later(Exception):
    pass


def is_lost(error, connection):
    """The connection is gone: the server did not say what is wrong, or it closed it after saying so."""
    silent = type(error) in (psycopg2.DatabaseError, psycopg2.OperationalError, psycopg2.InterfaceError)
    fatal = error.diag.severity_nonlocalized in ("FATAL", "PANIC")
    return silent and error.pgcode is None or fatal or connection is None or connection.closed != 0


def fault_of(error, lost, committing=False):
    """The fault that an error of psycopg2 stands for, None when it is none of ours to handle."""
    code = error.pgcode or ""
    text = " ".join(str(error).split())
    if lost:
        return Retry("lost_connection", text, outage=True, in_doubt=committing)
    name = psycopg2.errorcodes.lookup(code).lower() if code else "no_sqlstate"
    if code.startswith(CONFLICTS):
        return Retry(name, text, outage=False)
    if code.startswith(OUTAGES):
        return Retry(name, text, outage=True, divisible=code in DIVISIBLE)
    if code.startswith(POISONS):
        return Poison(name, text)
    return None


class Backoff:
    """Doubling delays up to a cap; the second half of each is random, so that many relays do not come back at once."""

    def __init__(self, first, most, rng=None):
        self.first, self.most = first, most
        self.rng = rng or random.Random()

    def delay(self, tries):
        full = min(self.most, self.first * 2 ** min(tries - 1, 60))
        return full / 2 + self.rng.random() * full / 2
