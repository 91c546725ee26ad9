"""The relay for Kafka against a Kafka protocol peer (kafka_peer.c), killed, rebalanced and refused.

usage: relay_kafka.py DSN DATA_FOLDER RELAYS_FOLDER SEED DEEP PEER

PEER is the built kafka_peer. Each part has a peer of its own. Prints "ok - " and "not ok - " lines and figures.
"""

import os
import signal
import subprocess
import sys

import confluent_kafka

from relay_bench import Part, database_stopped, end_in_order, until

TOPIC, DEAD, PARTITIONS = "votes", "votes.dead", 3
OFFSET_COMMIT, PRODUCE = 8, 0
SESSION = 6                     # seconds; a killed relay keeps its partitions for so long, and the peer wants no less


class Peer:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        self.obey("topic %s %d" % (TOPIC, PARTITIONS))
        self.obey("topic %s 1" % DEAD)

    def obey(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if answer != "ok\n":
            raise RuntimeError("the peer did not obey: " + command)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class KafkaQueue:
    keeps_order = True

    def __init__(self, bench, relays, peer):
        self.bench, self.relays, self.peer = bench, relays, peer
        self.sent = {}                          # "partition/offset" -> message
        self.producer = confluent_kafka.Producer({"bootstrap.servers": peer.address, "log_level": 2,
                                                  "message.max.bytes": 10000000})
        self.read_as(TOPIC, "poll_tally")

    def read_as(self, source, group):
        """The names under which relays read from now on."""
        self.source, self.group = source, group
        self.reader = confluent_kafka.Consumer({"bootstrap.servers": self.peer.address, "group.id": group,
                                                "enable.auto.commit": False, "log_level": 2})

    def command(self, metrics=False, tries=3, batch=10, grouped=False):
        """Fixed partitions start at once; in a group the peer takes seconds for every change."""
        dsn = self.bench.dsn + " options='-c idle_in_transaction_session_timeout=1s'"
        return [os.path.join(self.relays, "kafka_relay.py"), dsn, self.peer.address, TOPIC, "--session", str(SESSION),
                "--batch", str(batch), "--in-flight", "200", "--tries", str(tries), "--backoff", "0.02",
                "--backoff-cap", "0.1", "--source", self.source, "--group", self.group,
                ] + (["--metrics-port", "0"] if metrics else []) + ([] if grouped else ["--partitions", "0,1,2"])

    def send(self, messages):
        """The key chooses the partition, so what one principal sends keeps its order."""
        def delivered(error, sent, message):
            if error is not None:
                raise RuntimeError(str(error))
            self.sent["%d/%d" % (sent.partition(), sent.offset())] = message

        for message in messages:
            self.producer.produce(TOPIC, message.body, message.key,
                                  on_delivery=lambda error, sent, message=message: delivered(error, sent, message))
        if self.producer.flush(60) > 0:
            raise RuntimeError("not all was sent")

    def letter_id(self, position):
        return "%s/%s" % (self.source, position)

    def letters(self):
        """Key -> reason and body, of this source; a letter that was written twice says the same."""
        found = {}
        _, end = self.reader.get_watermark_offsets(confluent_kafka.TopicPartition(DEAD, 0))
        self.reader.assign([confluent_kafka.TopicPartition(DEAD, 0, 0)])
        read = 0
        while read < end:
            message = self.reader.poll(30)
            if message is None or message.error() is not None:
                raise RuntimeError("dead letters cannot be read: %s" % (message and message.error()))
            read = message.offset() + 1
            headers = dict(message.headers())
            letter = (headers["relay-reason"].decode(), message.value() or b"")
            name = message.key().decode()
            self.bench.check(found.setdefault(name, letter) == letter, "%s was written twice and differs" % name)
        self.reader.unassign()
        return {name: letter for name, letter in found.items() if name.startswith(self.source + "/")}

    def committed(self):
        parts = [confluent_kafka.TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        return {part.partition: part.offset for part in self.reader.committed(parts, timeout=60)}

    def acknowledged(self):
        """Below the committed offset, or below the ledger's cursor, which may be ahead of it and never behind."""
        stored = dict(self.bench.query("SELECT source_partition, next_offset FROM poll_tally.sources WHERE source = %s",
                                       self.source))
        committed = self.committed()
        for partition, offset in committed.items():
            self.bench.check(offset <= stored.get(partition, 0), "partition %d: committed %d, stored %s"
                             % (partition, offset, stored.get(partition)))
        return [position for position in self.sent if offset_of(position) < stored.get(partition_of(position), 0)]

    def is_empty(self):
        committed = self.committed()
        return all(offset_of(position) < committed[partition_of(position)] for position in self.sent)


def partition_of(position):
    return int(position.split("/")[0])


def offset_of(position):
    return int(position.split("/")[1])


class KafkaPart(Part):
    what = "Kafka"

    def __init__(self, arguments, name, number):
        super().__init__(arguments, name, number)
        self.peer = Peer(arguments[5])
        self.bench.queue = KafkaQueue(self.bench, arguments[2], self.peer)

    def close(self):
        self.peer.close()


# --- parts ----------------------------------------------------------------------------------------------------------

def killed_at_every_step(part, deep):
    part.bench.kill_everywhere(5 if deep else 1, 60 if deep else 40)
    if deep:
        part.bench.kill_everywhere(1, 60, grouped=True)


def rebalance(part, deep):
    """A second relay joins at work, the first leaves in order or is killed, one is held up past its session."""
    number = 0
    for way in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP) if deep else (signal.SIGKILL,):
        part.queue.send(part.bench.mix.make(100))
        first = part.bench.start(grouped=True)
        number = feed_until(part, number + 20)
        second = part.bench.start(grouped=True)
        number = feed_until(part, number + 40)
        first.process.send_signal(way)
        number = feed_until(part, number + 40)
        until(part.queue.is_empty, "the topic to be empty")
        part.bench.check_acknowledged()
        if way == signal.SIGSTOP:
            first.go_on()
        part.bench.check(way == signal.SIGKILL or first.terminate() == 0, "the first relay failed")
        part.bench.check(second.terminate() == 0, "the second relay failed")
    part.bench.check_end()


def feed_until(part, goal):
    """Send while the relays work, until so many were acknowledged; how many there are then."""
    done = 0
    while done < goal:
        if len(part.queue.sent) - done < 300:
            part.queue.send(part.bench.mix.make(10))
        done = len(part.bench.trace("acknowledged"))
    return done


def broker_errors(part, deep):
    """The broker refuses commits of offsets, and dead letters; nothing is lost, and it is told again."""
    # Not authorized; loading, not the coordinator and timed out are partly tried again by the library.
    for code in (30, 14, 16, 7) * 3 if deep else (30,):
        part.peer.obey("errors %d %d 4" % (OFFSET_COMMIT, code))
        part.queue.send(part.bench.mix.make(60))
        part.bench.drain()
        part.peer.obey("forgive %d" % OFFSET_COMMIT)
    told_by_the_next(part)
    part.queue.send(part.bench.mix.make(60))
    part.peer.obey("errors %d 29 3" % PRODUCE)  # not authorized: not tried again by the library
    part.bench.drain()
    part.bench.check_end()
    part.bench.check("acknowledgement not taken" in part.bench.log(), "no commit was refused")
    part.bench.check("dead letters not written" in part.bench.log(), "no dead letter was refused")


def told_by_the_next(part):
    """A relay is killed whose last commits are refused: the next one commits its cursors, though nothing is new."""
    part.peer.obey("errors %d 30 1000" % OFFSET_COMMIT)
    part.queue.send(part.bench.mix.make(60))
    relay = part.bench.start()
    until(lambda: len(part.queue.acknowledged()) == len(part.queue.sent), "the cursors to be stored")
    relay.process.kill()
    relay.wait_end()
    part.peer.obey("forgive %d" % OFFSET_COMMIT)
    part.bench.check(not part.queue.is_empty(), "a refused commit was taken")
    part.bench.drain()


def everything_again(part, deep):
    """Under another name of the source, the same topic is delivered from its start."""
    part.queue.send(part.bench.mix.make(1000 if deep else 150))
    part.bench.drain()
    part.bench.check_end()
    received = len(part.bench.trace("received"))
    part.queue.read_as("votes-again", "another")
    part.bench.drain()
    part.bench.check_end()
    part.bench.check(len(part.bench.trace("received")) == 2 * received, "not everything came exactly twice")


PARTS = (("killed at every step", killed_at_every_step),
         ("the database stopped between COMMIT and acknowledgement, SIGTERM, an unknown COMMIT", database_stopped),
         ("rebalance", rebalance), ("broker errors", broker_errors), ("everything delivered again", everything_again))


def main(*arguments):
    end_in_order()
    only = os.environ.get("RELAY_PART", "")
    for number, (name, work) in enumerate(PARTS):
        if only in name:
            with KafkaPart(arguments, name, 20 + number) as part:
                work(part, arguments[4] == "1")


if __name__ == "__main__":
    main(*sys.argv[1:])
