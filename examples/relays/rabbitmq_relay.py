#!/usr/bin/python3
"""Relay from a RabbitMQ queue into the ledger.

usage: rabbitmq_relay.py DSN AMQP_URL QUEUE [--no-declare] ...

The body of a message is an event as JSON. Acknowledgements are manual and cover all messages up to the highest that is
finished; what is not acknowledged when the relay ends is queued again by the broker. A queue has no offsets, so there
is no cursor: the event ids alone make a redelivery harmless.

A dead letter is the message, published with confirmation to the exchange QUEUE.dead, from where it goes to the queue of
that name. Its message id is QUEUE and a digest of what was received, the same however often it is written; the reason
is in its headers. The queue has the same exchange as its own dead-letter exchange, for what the broker gives up itself.
"""

import collections
import contextlib
import hashlib
import sys

import pika
import pika.data
import pika.exceptions

from relay import command
from relay.faults import Lost
from relay.record import Record


MOST_PREFETCH = 65535           # in the protocol
MOST_HEADERS = 100000           # bytes; headers have to fit into one frame of usually 131,072
BLOCKED_SECONDS = 30            # how long a broker that is out of memory or disk may keep us waiting at a time


@contextlib.contextmanager
def rabbitmq_faults():
    try:
        yield
    except (pika.exceptions.AMQPError, OSError) as error:
        raise Lost("%s: %s" % (type(error).__name__, error)) from error


def digest_of(properties, body):
    """Tells a message from all others, as far as the publisher's message id and the body do."""
    return hashlib.sha256((properties.message_id or "").encode() + b"\0" + body).hexdigest()[:32]


def with_headers(headers, more):
    """A message's headers and more; where that may be more than a frame holds, the message's as a text that is cut."""
    headers = headers or {}
    if pika.data.encode_table([], headers) <= MOST_HEADERS:
        return dict(headers, **more)
    return dict(more, **{"relay-headers": ascii(headers)[:MOST_HEADERS]})


class RabbitmqSource:
    has_cursor = False

    def __init__(self, url, queue, declare):
        self.url, self.queue, self.dead, self.declare = url, queue, queue + ".dead", declare
        self.connection = self.channel = self.confirmed = None
        self.delivered = collections.deque()
        self.cancelled = False

    def connect(self, relay, ledger):
        del ledger
        self.delivered.clear()
        self.cancelled = False
        with rabbitmq_faults():
            parameters = pika.URLParameters(self.url)
            parameters.blocked_connection_timeout = parameters.blocked_connection_timeout or BLOCKED_SECONDS
            self.connection = pika.BlockingConnection(parameters)
            self.confirmed = self.connection.channel()
            self.confirmed.confirm_delivery()
            self.channel = self.connection.channel()
            if self.declare:
                self.make_queues()
            self.channel.add_on_cancel_callback(self.on_cancel)
            self.channel.basic_qos(prefetch_count=relay.settings.in_flight)
            self.channel.basic_consume(self.queue, self.on_message)

    def make_queues(self):
        self.channel.exchange_declare(self.dead, "fanout", durable=True)
        self.channel.queue_declare(self.dead, durable=True)
        self.channel.queue_bind(self.dead, self.dead)
        self.channel.queue_declare(self.queue, durable=True, arguments={"x-dead-letter-exchange": self.dead})

    def on_message(self, channel, delivery, properties, body):
        del channel
        self.delivered.append((delivery.delivery_tag, properties, body))

    def on_cancel(self, frame):
        del frame
        self.cancelled = True

    # --- receiving --------------------------------------------------------------------------------------------------

    def receive(self, room, timeout):
        """Waiting answers the broker's heartbeats too. It sends no more than the window takes."""
        with rabbitmq_faults():
            self.connection.process_data_events(0 if self.delivered and room > 0 else timeout)
        if self.cancelled:
            raise Lost("the queue is gone")
        while self.delivered and room > 0:
            tag, properties, body = self.delivered.popleft()
            room -= 1
            yield Record(None, digest_of(properties, body), None, body, (tag, properties))

    # --- finishing --------------------------------------------------------------------------------------------------

    def bury(self, pairs):
        """Returns once the broker has confirmed each; one that has nowhere to go is refused."""
        with rabbitmq_faults():
            for record, letter in pairs:
                properties = record.handle[1]
                ours = {"relay-" + name: value for name, value in letter.items() if name != "id"}
                if properties.message_id is not None:
                    ours["relay-message-id"] = properties.message_id
                self.confirmed.basic_publish(
                    self.dead, self.queue, record.body, mandatory=True, properties=pika.BasicProperties(
                        message_id=letter["id"], content_type=properties.content_type,
                        content_encoding=properties.content_encoding, headers=with_headers(properties.headers, ours),
                        delivery_mode=pika.spec.PERSISTENT_DELIVERY_MODE))

    def acknowledge(self, partition, records):
        del partition
        with rabbitmq_faults():
            self.channel.basic_ack(records[-1].handle[0], multiple=True)

    def ceiling(self):
        return None

    def drop(self):
        if self.connection is not None and self.connection.is_open:
            # What was not acknowledged is queued again whether or not the broker hears of it.
            with contextlib.suppress(pika.exceptions.AMQPError, OSError):
                self.connection.close()
        self.connection = None

    close = drop


def main():
    options = command.parser("Relay from a RabbitMQ queue into the ledger.", MOST_PREFETCH)
    options.add_argument("url", help="amqp://USER:PASSWORD@HOST:PORT/VHOST")
    options.add_argument("queue")
    options.add_argument("--no-declare", action="store_true", help="queues and exchange are there already")
    given = options.parse_args()
    source = RabbitmqSource(given.url, given.queue, not given.no_declare)
    command.Loop(given, command.source_name(options, given, given.queue), source).run()


if __name__ == "__main__":
    sys.exit(main())
