"""The command line that the relays share, and the loop: receive, flush, connect again, end in order."""

import argparse
import math
import re
import signal
import threading

from relay import steps
from relay.core import Relay, log
from relay.faults import Backoff, Lost, Retry
from relay.ledger import Ledger
from relay.metrics import Metrics

LOOK_SECONDS = 0.5              # how long a signal to end may go unnoticed


def whole(least, most):
    """A type of argument: a whole number within bounds."""
    return bounded(int, least, most)


def seconds(least, most=math.inf):
    return bounded(float, least, most)


def bounded(kind, least, most):
    def number(text):
        value = kind(text)
        if not least <= value <= most or value == math.inf:
            bounds = "at least %s" % least if most == math.inf else "from %s to %s" % (least, most)
            raise argparse.ArgumentTypeError("%s is not %s" % (text, bounds))
        return value

    return number


def parser(about, most_in_flight=1000000):
    options = argparse.ArgumentParser(description=about)
    options.add_argument("dsn", help="connection string of the database")
    options.add_argument("--source", help="name of the queue in the ledger, 64 characters; default: the queue's own")
    options.add_argument("--batch", type=whole(1, 1000000), default=500, help="flush after so many messages (500)")
    options.add_argument("--batch-bytes", type=whole(1, 2 ** 28), default=2 ** 22,
                         help="no transaction takes more than one message and more bytes than this (4194304)")
    options.add_argument("--every", type=seconds(0), default=0.2, help="or when the first is so many seconds old (0.2)")
    options.add_argument("--idle", type=seconds(0), default=0.02, help="or when none came for so many seconds (0.02)")
    options.add_argument("--in-flight", type=whole(1, most_in_flight), default=5000,
                         help="messages received and not acknowledged (5000)")
    options.add_argument("--tries", type=whole(1, 2 ** 31), default=10, help="tries before a message is dead (10)")
    options.add_argument("--backoff", type=seconds(0.001), default=0.1,
                         help="seconds before the second try, then doubled (0.1)")
    options.add_argument("--backoff-cap", type=seconds(0.001), default=10.0, help="most seconds between two tries (10)")
    options.add_argument("--outage", type=seconds(0), default=600.0,
                         help="seconds without the database before a message is dead, 0 for never (600)")
    options.add_argument("--metrics-port", type=whole(0, 65535),
                         help="serve metrics on this port of the loopback, 0 for a free one")
    return options


def source_name(options, given, queue):
    """The queue's name in the ledger. With one that the ledger does not take every message would be invalid, and dead."""
    name = given.source or queue
    if not re.fullmatch(r"[!#-\[\]-~]{1,64}", name):
        options.error("%s cannot be a name in the ledger, which has 1 to 64 visible ASCII characters, none of them "
                      "\" or \\: choose one with --source" % ascii(name))
    return name


class Loop:
    """source is the adapter, which also offers connect(relay), drop() after a loss, and close()."""

    def __init__(self, options, name, source):
        self.stop = threading.Event()
        self.metrics = Metrics()
        self.backoff = Backoff(options.backoff, options.backoff_cap)
        self.source = source
        self.ledger = Ledger(options.dsn, name if source.has_cursor else None)
        self.relay = Relay(name, source, self.ledger, options, self.metrics, self.backoff)
        self.metrics_port = options.metrics_port

    def run(self):
        """Until SIGTERM or SIGINT. An error that is no fault of database or queue ends it at once, unacknowledged."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop.set())
        if self.metrics_port is not None:
            log("metrics: http://127.0.0.1:%d/metrics" % self.metrics.serve(self.metrics_port))
        self.repeat(Retry, "database", self.ledger.check)
        self.repeat(Lost, "queue", self.carry)
        self.source.close()
        self.ledger.close()
        log("relay: " + self.metrics.summary())

    def repeat(self, fault, what, work):
        """work() until it ends without the fault, or the relay is to stop."""
        failures = 0
        while not self.stop.is_set():
            try:
                work()
                return
            except fault as error:
                failures += 1
                delay = self.backoff.delay(min(failures, 8))
                log("%s: %s; again in %.1f s" % (what, error, delay))
                self.stop.wait(delay)

    def carry(self):
        """From connecting to the queue to losing it, or to the end."""
        try:
            self.source.connect(self.relay, self.ledger)
            steps.at("connected")
            while not self.stop.is_set():
                for record in self.source.receive(self.relay.room(), self.relay.wait(LOOK_SECONDS)):
                    self.relay.add(record)
                self.relay.step()
            self.relay.leave()
        except Lost:
            self.metrics.count("queue_losses")
            self.relay.forget()
            self.source.drop()
            raise
