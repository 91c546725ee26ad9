"""The relay for RabbitMQ against a real broker, killed and stopped in every way.

usage: relay_rabbitmq.py DSN DATA_FOLDER RELAYS_FOLDER SEED DEEP

One broker for all parts, each with a queue of its own; it has its own name service and folder, and listens on the
loopback only. Prints "ok - " and "not ok - " lines and figures.
"""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import pika
import pika.exceptions

sys.path.insert(0, sys.argv[3])

from relay_bench import Part, database_stopped, end_in_order, killed_at_every_step, until     # noqa: E402

SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
CONTROL = "/usr/lib/rabbitmq/bin/rabbitmqctl"


def free_ports(number):
    """Ports that nobody listens on, below those that the system gives to clients: a client that knocks at one of its
    own range too early can end up talking to itself."""
    ports = []
    while len(ports) < number:
        port = random.randrange(20000, 32000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
    return ports


class Broker:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="q")
        self.port, dist, names = free_ports(3)
        self.url = "amqp://guest:guest@127.0.0.1:%d/%%2F" % self.port
        config = os.path.join(self.folder, "rabbitmq.conf")
        with open(config, "w", encoding="ascii") as file:
            file.write("listeners.tcp.local = 127.0.0.1:%d\ndisk_free_limit.absolute = 1MB\n" % self.port)
        with open(os.path.join(self.folder, "plugins"), "w", encoding="ascii") as file:
            file.write("[].\n")
        self.environment = dict(
            os.environ, HOME=self.folder, ERL_EPMD_PORT=str(names), ERL_EPMD_ADDRESS="127.0.0.1",
            RABBITMQ_NODENAME="relay@localhost", RABBITMQ_DIST_PORT=str(dist), RABBITMQ_CONFIG_FILE=config,
            RABBITMQ_CONF_ENV_FILE=os.path.join(self.folder, "none"), RABBITMQ_LOG_BASE=self.folder,
            RABBITMQ_MNESIA_BASE=os.path.join(self.folder, "mnesia"),
            RABBITMQ_ENABLED_PLUGINS_FILE=os.path.join(self.folder, "plugins"),
            RABBITMQ_PID_FILE=os.path.join(self.folder, "pid"), RABBITMQ_SCHEMA_DIR=os.path.join(self.folder, "schema"),
            RABBITMQ_GENERATED_CONFIG_DIR=os.path.join(self.folder, "config"),
            RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}")
        self.log = open(os.path.join(self.folder, "output"), "ab")
        self.names = subprocess.Popen(["epmd", "-port", str(names), "-address", "127.0.0.1"], stdin=subprocess.DEVNULL,
                                      stdout=self.log, stderr=self.log)
        self.process = None

    def start(self):
        self.process = subprocess.Popen([SERVER], env=self.environment, stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log)
        until(lambda: self.answers() or self.process.poll() is not None, "the broker")
        if self.process.poll() is not None:
            with open(self.log.name, encoding="utf-8", errors="replace") as file:
                raise RuntimeError("the broker did not start:\n" + file.read())

    def answers(self):
        try:
            self.connect().close()
        except (pika.exceptions.AMQPError, OSError):
            return False
        return True

    def connect(self):
        return pika.BlockingConnection(pika.URLParameters(self.url))

    def control(self, *arguments):
        subprocess.run([CONTROL, "-q", "-n", self.environment["RABBITMQ_NODENAME"], *arguments], check=True,
                       env=self.environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def kill(self):
        """kill -9 of the broker, which is the child of a script."""
        if self.process is not None and self.process.poll() is None:
            with open("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid), encoding="ascii") as file:
                children = [int(child) for child in file.read().split()]
            self.process.kill()
            self.process.wait()
            for child in children:
                os.kill(child, signal.SIGKILL)
            until(lambda: not any(os.path.exists("/proc/%d" % child) for child in children), "the broker to be gone")

    def close(self):
        self.kill()
        self.names.kill()
        self.names.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class RabbitmqQueue:
    keeps_order = True

    def __init__(self, bench, relays, broker, name):
        self.bench, self.relays, self.broker, self.name = bench, relays, broker, name
        self.sent = {}                          # digest -> message
        self.done = set()                       # what the broker was seen to hold no longer
        self.number = 0
        with self.broker.connect() as connection:
            from rabbitmq_relay import RabbitmqSource
            source = RabbitmqSource(broker.url, name, True)
            source.channel = connection.channel()
            source.make_queues()

    def command(self, metrics=False, tries=3, batch=10):
        dsn = self.bench.dsn + " options='-c idle_in_transaction_session_timeout=1s'"
        return [os.path.join(self.relays, "rabbitmq_relay.py"), dsn, self.broker.url, self.name, "--batch", str(batch),
                "--in-flight", "200", "--tries", str(tries), "--backoff", "0.02", "--backoff-cap", "0.1",
                ] + (["--metrics-port", "0"] if metrics else [])

    def send(self, messages, headers=None):
        """Durably, each with a message id of its own."""
        from rabbitmq_relay import digest_of
        with self.broker.connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for message in messages:
                self.number += 1
                properties = pika.BasicProperties(message_id="m%d" % self.number, delivery_mode=2, headers=headers)
                channel.basic_publish("", self.name, message.body, properties, mandatory=True)
                self.sent[digest_of(properties, message.body)] = message

    def look(self, queue):
        """What is in a queue, which keeps it; nobody may be consuming."""
        found = []
        with self.broker.connect() as connection:
            channel = connection.channel()
            until(lambda: channel.queue_declare(queue, passive=True).method.consumer_count == 0, "the consumers to go")
            while True:
                delivery, properties, body = channel.basic_get(queue)
                if delivery is None:
                    return found
                found.append((properties, body))

    def letter_id(self, position):
        return "%s/%s" % (self.name, position)

    def letters(self):
        found = {}
        for properties, body in self.look(self.name + ".dead"):
            letter = (properties.headers["relay-reason"], body)
            name = properties.message_id
            self.bench.check(found.setdefault(name, letter) == letter, "%s was written twice and differs" % name)
        return found

    def acknowledged(self):
        from rabbitmq_relay import digest_of
        self.done = set(self.sent) - {digest_of(*message) for message in self.look(self.name)}
        return self.done

    def is_empty(self):
        """Without a look, since a relay is at it: by what was seen before and what it says to have acknowledged."""
        return set(self.sent) <= self.done | {words[2] for words in self.bench.trace("acknowledged")}


class RabbitmqPart(Part):
    what = "RabbitMQ"

    def __init__(self, arguments, broker, name, number):
        super().__init__(arguments, name, number)
        self.broker = broker
        self.bench.queue = RabbitmqQueue(self.bench, arguments[2], broker, "votes-%d" % number)


# --- parts ----------------------------------------------------------------------------------------------------------

def everything_again(part, deep):
    """The whole of it is delivered to a relay that dies before its first acknowledgement, then sent once more."""
    messages = part.bench.mix.make(190)
    part.queue.send(messages)
    # All of it in one batch, also where a machine under load is long in delivering it.
    relay = part.bench.start("acknowledging:1", ["--every", "60", "--idle", "3"], batch=200)
    relay.wait_end()
    part.bench.drain()
    part.bench.check_end()
    received = [position for _, _, position in part.bench.trace("received")]
    part.bench.check(sorted(received) == sorted(2 * list(part.queue.sent)), "not everything came exactly twice")
    part.queue.send(messages)
    part.bench.drain()
    part.bench.check_end()


def two_consumers(part, deep):
    """One of two relays dies, and its messages go to the other."""
    part.queue.keeps_order = part.bench.mix.ordered = False
    for _ in range(5 if deep else 1):
        part.queue.send(part.bench.mix.make(100))
        first = part.bench.start("committed:2")
        first.wait_end()
        second = part.bench.start()
        third = part.bench.start()
        part.queue.send(part.bench.mix.make(100))
        until(part.queue.is_empty, "the queue to be empty")
        part.bench.check([second.terminate(), third.terminate()] == [0, 0], "a relay failed")
        part.bench.check_acknowledged()
    part.bench.check_end()


def large_headers(part, deep):
    """A dead letter has the headers of its message, or as text where they leave no room in their frame for more."""
    del deep
    for headers in {"n": 7}, {"long": "h" * 130900}:
        part.queue.send([part.bench.mix.broken()], headers)
    part.bench.drain()
    part.bench.check_end()
    found = {properties.headers["relay-message-id"]: properties.headers
             for properties, _ in part.queue.look(part.queue.name + ".dead")}
    part.bench.check(found["m1"]["n"] == 7, "a header was lost: %s" % found["m1"])
    part.bench.check(found["m2"]["relay-headers"].startswith("{'long': 'hhh"), "headers were lost: %s" % list(found["m2"]))


def broker_out_of_memory(part, deep):
    """Nothing can be published: the relay says so, ends when it is told to, and goes on later."""
    del deep
    part.queue.send([part.bench.mix.broken(), part.bench.mix.order()])
    relay = part.bench.start("burying:1:STOP")
    relay.wait_stopped()
    part.broker.control("set_vm_memory_high_watermark", "0.000001")
    relay.go_on()
    until(lambda: "ConnectionBlockedTimeout" in part.bench.log(), "the relay to be told")
    part.bench.check(relay.terminate() == 0, "the relay did not end")
    part.broker.control("set_vm_memory_high_watermark", "0.4")
    part.bench.check(not part.bench.trace("buried"), "a letter that was not confirmed counted as written")
    part.bench.drain()
    part.bench.check_end()


def broker_killed(part, deep):
    """kill -9 of the broker; the relay connects again by itself."""
    for _ in range(3 if deep else 1):
        part.queue.send(part.bench.mix.make(300))
        relay = part.bench.start()
        goal = len(part.bench.trace("acknowledged")) + part.bench.rng.randint(1, 200)
        until(lambda: len(part.bench.trace("acknowledged")) >= goal, "acknowledgements")
        part.broker.kill()
        part.broker.start()
        until(part.queue.is_empty, "the queue to be empty")
        part.bench.check(relay.terminate() == 0, "the relay did not survive the loss of the broker")
        part.bench.check_acknowledged()
    part.bench.check_end()


PARTS = (("killed at every step", killed_at_every_step),
         ("the database stopped between COMMIT and acknowledgement, SIGTERM, an unknown COMMIT", database_stopped),
         ("everything delivered again", everything_again), ("two consumers", two_consumers),
         ("large headers", large_headers), ("the broker out of memory", broker_out_of_memory),
         ("the broker killed", broker_killed))
DEEP = (broker_out_of_memory, broker_killed)


def main(*arguments):
    end_in_order()
    only, deep = os.environ.get("RELAY_PART", ""), arguments[4] == "1"
    broker = Broker()
    try:
        broker.start()
        for number, (name, work) in enumerate(PARTS):
            if only in name and (deep or only or work not in DEEP):
                with RabbitmqPart(arguments, broker, name, 40 + number) as part:
                    work(part, deep)
    finally:
        broker.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
