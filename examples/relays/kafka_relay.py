#!/usr/bin/python3
"""Relay from a Kafka topic into the ledger.

usage: kafka_relay.py DSN BOOTSTRAP TOPIC [--group NAME] [--dead TOPIC] ...

The value of a message is an event as JSON. The ledger keeps the offsets: when a partition is assigned, reading starts
at source_position, whatever the broker has; the offset is committed to the broker too, after the database's COMMIT, so
that its tools show the lag. Before a partition is given away its batch is flushed and its offset committed.

A dead letter is the message, with key TOPIC/PARTITION/OFFSET and the reason in its headers, in the topic TOPIC.dead. One
that was written twice has the same key. A topic that was dropped and made anew counts its offsets from 0 again: give it
another --source.
"""

import sys

import confluent_kafka

from relay import command
from relay.core import log
from relay.faults import Later, Lost, Retry
from relay.record import Record


class KafkaSource:
    has_cursor = True

    def __init__(self, bootstrap, topic, dead, group, partitions, instance, session):
        self.topic, self.dead, self.partitions = topic, dead, partitions
        self.for_consumer = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False,
                             "auto.offset.reset": "earliest", "isolation.level": "read_committed",
                             "session.timeout.ms": int(session * 1000),
                             "heartbeat.interval.ms": int(session * 1000 / 5)}
        if instance is not None:
            self.for_consumer["group.instance.id"] = instance
        # How large a letter may be is for the broker to say.
        self.for_producer = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "delivery.timeout.ms": 30000,
                             "message.max.bytes": 1000000000}
        self.consumer = self.producer = self.relay = self.ledger = None
        self.paused = False
        self.broken = None                      # what went wrong in a callback
        self.behind = {}                        # partition -> cursor of the ledger that the broker may not have

    def connect(self, relay, ledger):
        self.relay, self.ledger, self.broken, self.paused = relay, ledger, None, False
        self.behind = {}
        self.producer = confluent_kafka.Producer(self.for_producer)
        self.consumer = confluent_kafka.Consumer(self.for_consumer)
        if self.partitions is None:
            self.consumer.subscribe([self.topic], on_assign=self.on_assign, on_revoke=self.on_revoke)
        else:
            self.on_assign(self.consumer, [confluent_kafka.TopicPartition(self.topic, number)
                                           for number in self.partitions])

    def on_assign(self, consumer, partitions):
        """Called by poll, but for fixed partitions. They start where the ledger's cursor stands, new ones where the group
        does."""
        try:
            for partition in partitions:
                resume_at = self.ledger.resume_at(partition.partition)
                if resume_at is not None:
                    partition.offset = self.behind[partition.partition] = resume_at
        except Retry as error:
            self.broken = "no cursor: %s" % error
            partitions = []
        consumer.assign(partitions)
        self.paused = False

    def on_revoke(self, consumer, partitions):
        """Called by poll and close, and done before anybody else gets the partitions."""
        del consumer
        for partition in partitions:
            self.behind.pop(partition.partition, None)
        try:
            self.relay.leave([partition.partition for partition in partitions])
        except Lost as error:
            self.broken = str(error)
            self.relay.forget([partition.partition for partition in partitions])

    # --- receiving --------------------------------------------------------------------------------------------------

    def receive(self, room, timeout):
        """One message at a time, so that none is on its way while a callback takes its partition."""
        self.catch_up()
        self.pause(room == 0)
        message = self.poll(timeout)
        while message is not None:
            if message.error() is None:
                room -= 1
                yield Record(message.partition(), message.offset(), message.offset(), message.value() or b"",
                             message.headers())
            elif message.error().fatal():
                raise Lost(str(message.error()))
            else:
                log("kafka: %s" % message.error())      # the library goes on trying
            message = self.poll(0) if room > 0 else None

    def poll(self, timeout):
        message = self.consumer.poll(timeout)
        if self.broken is not None:
            raise Lost(self.broken)
        return message

    def pause(self, paused):
        """With the window full, polling goes on all the same: it is what keeps the consumer in its group."""
        if paused != self.paused:
            (self.consumer.pause if paused else self.consumer.resume)(self.consumer.assignment())
            self.paused = paused

    # --- finishing --------------------------------------------------------------------------------------------------

    def bury(self, pairs):
        failed = []

        def delivered(error, message):
            del message
            if error is not None:
                failed.append(error)

        for record, letter in pairs:
            headers = [("relay-" + name, value.encode()) for name, value in letter.items() if name != "id"]
            self.producer.produce(self.dead, record.body, letter["id"], headers=(record.handle or []) + headers,
                                  on_delivery=delivered)
        if self.producer.flush(60) > 0 or failed:
            raise Lost("dead letters not written: %s" % (failed or "no answer"))

    def acknowledge(self, partition, records):
        """The ledger has the cursor already, so an offset that the broker does not take now does no harm."""
        self.commit({partition: records[-1].offset + 1})
        self.behind.pop(partition, None)

    def catch_up(self):
        """What who had a partition before could not commit: without new messages the broker's tools would show it for ever."""
        try:
            if self.behind:
                self.commit(self.behind)
                self.behind = {}
        except Later as fault:
            log("kafka: cursors not committed yet: %s" % fault)

    def commit(self, offsets):
        try:
            for stored in self.consumer.commit(asynchronous=False, offsets=[
                    confluent_kafka.TopicPartition(self.topic, partition, offset) for partition, offset in offsets.items()]):
                if stored.error is not None:
                    raise Later(str(stored.error))
        except confluent_kafka.KafkaException as error:
            raise Later(str(error)) from error

    def ceiling(self):
        return None

    def drop(self):
        if self.consumer is not None:
            self.consumer.close()
            self.consumer = self.producer = None

    close = drop


def main():
    options = command.parser("Relay from a Kafka topic into the ledger.")
    options.add_argument("bootstrap", help="HOST:PORT[,HOST:PORT...]")
    options.add_argument("topic")
    options.add_argument("--dead", help="topic of the dead letters; default: TOPIC.dead")
    options.add_argument("--group", default="poll_tally")
    options.add_argument("--partitions", type=lambda text: [int(number) for number in text.split(",")],
                         help="these partitions, 0,1,2 say, instead of the group's choice")
    options.add_argument("--instance", help="static member of the group: no rebalance when it restarts within --session")
    options.add_argument("--session", type=command.seconds(1, 300), default=45.0,
                         help="seconds before a silent consumer is dead (45)")
    given = options.parse_args()
    source = KafkaSource(given.bootstrap, given.topic, given.dead or given.topic + ".dead", given.group,
                         given.partitions, given.instance, given.session)
    command.Loop(given, command.source_name(options, given, given.topic), source).run()


if __name__ == "__main__":
    sys.exit(main())
