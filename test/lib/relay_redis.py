"""The relay for Redis streams against real servers, killed and cut in every way.

usage: relay_redis.py DSN DATA_FOLDER RELAYS_FOLDER SEED DEEP

Each part has a Redis server of its own, on a socket in a temporary folder; the database is the caller's. Prints "ok - "
and "not ok - " lines and figures.
"""

import base64
import glob
import json
import os
import subprocess
import sys

import redis

from relay_bench import Part, database_stopped, end_in_order, killed_at_every_step, until

STREAM, GROUP = "votes", "poll_tally"


class RedisServer:
    """appendfsync is always or everysec."""

    def __init__(self, folder, appendfsync):
        self.folder, self.appendfsync = folder, appendfsync
        self.socket = os.path.join(folder, "redis.sock")
        self.process = None
        self.client = redis.Redis(unix_socket_path=self.socket)

    def start(self):
        with open(os.path.join(self.folder, "redis.log"), "ab") as log:
            self.process = subprocess.Popen(
                ["redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", self.folder, "--appendonly", "yes",
                 "--appendfsync", self.appendfsync, "--save", "", "--aof-load-truncated", "yes"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(self.answers, "redis-server")

    def answers(self):
        try:
            return self.client.ping()
        except redis.RedisError:
            return False

    def trims(self):
        """How often a relay looked for what it may trim: it asks for the time then."""
        return self.client.info("commandstats").get("cmdstat_time", {"calls": 0})["calls"]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def kill_written(self):
        """A kill that takes nothing by itself: under everysec Redis holds writing back, for two seconds at most, while
        the flush before is under way."""
        until(lambda: self.client.info("persistence")["aof_buffer_length"] == 0, "the file to be written")
        self.kill()

    def cut_tail(self, number, command=b"XADD"):
        """What a power cut takes and a kill does not: the end of the file that was not flushed, so many commands of it."""
        file = max(glob.glob(os.path.join(self.folder, "appendonlydir", "*.incr.aof")), key=os.path.getmtime)
        with open(file, "rb") as stream:
            end = stream.read()
        for _ in range(number):
            end = end[:end.rindex(b"\r\n" + command + b"\r\n")]
        os.truncate(file, len(end))


class RedisQueue:
    keeps_order = True

    def __init__(self, bench, relays, server):
        self.bench, self.relays, self.server, self.client = bench, relays, server, server.client
        self.sent = {}                          # id -> message

    def command(self, consumer="one", claim=60, keep=None, metrics=False, tries=3, batch=10, source=STREAM, group=GROUP):
        dsn = self.bench.dsn + " options='-c idle_in_transaction_session_timeout=1s'"
        return [os.path.join(self.relays, "redis_relay.py"), dsn, "unix://" + self.server.socket, STREAM,
                "--consumer", consumer, "--claim-idle", str(claim), "--batch", str(batch), "--in-flight", "200",
                "--tries", str(tries), "--backoff", "0.02", "--backoff-cap", "0.1", "--source", source, "--group", group,
                ] + (["--keep", str(keep)] if keep is not None else []) + (["--metrics-port", "0"] if metrics else [])

    def send(self, messages):
        for message in messages:
            self.sent[self.client.xadd(STREAM, {"body": message.body}).decode()] = message

    @staticmethod
    def letter_id(position):
        return "%s/%s" % (STREAM, position)

    def letters(self):
        """Id -> reason and body."""
        found = {}
        for name, value in self.client.hgetall(STREAM + ":dead").items():
            letter = json.loads(value)
            body = letter["fields"].get("body", "")
            found[name.decode()] = (letter["reason"],
                                    base64.b64decode(body["base64"]) if isinstance(body, dict) else body.encode())
        return found

    def state(self):
        """Pending ids, and the last that was delivered, as Redis holds them."""
        groups = self.client.xinfo_groups(STREAM) if self.client.exists(STREAM) else []
        last = next((group["last-delivered-id"] for group in groups if group["name"] == GROUP.encode()), None)
        rows = self.client.xpending_range(STREAM, GROUP, "-", "+", 100000) if last else []
        return {row["message_id"].decode() for row in rows}, (last or b"0-0").decode()

    def acknowledged(self):
        pending, last = self.state()
        return [position for position in self.sent if order(position) <= order(last) and position not in pending]

    def backlog(self):
        return len(self.sent) - len(self.acknowledged())

    def is_empty(self):
        pending, last = self.state()
        return not pending and order(last) >= max(map(order, self.sent))

    def send_lost(self):
        """Messages that Redis lost are sent again, by a sender that keeps their order."""
        there = {entry.decode() for entry, _ in self.client.xrange(STREAM)}
        messages = [self.sent.pop(position) for position in list(self.sent) if position not in there]
        self.send(messages)
        return len(messages)


def order(position):
    return tuple(map(int, position.split("-")))


class RedisPart(Part):
    what = "Redis Streams"

    def __init__(self, arguments, name, number, appendfsync):
        super().__init__(arguments, name, number)
        self.server = RedisServer(self.bench.folder, appendfsync)
        self.bench.queue = RedisQueue(self.bench, arguments[2], self.server)
        self.server.start()

    def close(self):
        self.server.kill()


# --- parts ----------------------------------------------------------------------------------------------------------

def redis_killed_always(part, deep):
    """What was acknowledged to us and to the sender is there after kill -9: nothing is lost, nothing comes again."""
    for _ in range(10 if deep else 1):
        lost = kill_redis(part, 300)
        part.bench.check(lost == 0, "Redis lost %d messages under appendfsync always" % lost)
    part.bench.check_end()
    acknowledged = set()
    for step, _, position in part.bench.trace("received", "acknowledged"):
        part.bench.check(step != "received" or position not in acknowledged, position + " came after its acknowledgement")
        acknowledged |= {position} if step == "acknowledged" else set()


def redis_killed_everysec(part, deep):
    """The last second is lost, entries, deliveries and acknowledgements: what is lost is sent again."""
    lost = 0
    for _ in range(10 if deep else 1):
        cut = part.bench.rng.randint(1, 60)
        lost += kill_redis(part, 300, cut)
        part.bench.check(lost >= cut, "Redis kept what was cut off")
    part.bench.check_end()
    print("# figure: Redis Streams: %d messages lost by the cut and sent again" % lost)


def lost_letter(part, deep):
    """Redis loses a dead letter between writing it and the acknowledgement, and the relay does not acknowledge it."""
    for _ in range(5 if deep else 1):
        part.queue.send([part.bench.mix.broken() for _ in range(5)])
        relay = part.bench.start("acknowledging:1:STOP")
        relay.wait_stopped()
        part.server.kill_written()
        part.server.cut_tail(part.bench.rng.randint(1, 5), b"HSETNX")
        part.server.start()
        relay.go_on()
        until(part.queue.is_empty, "the stream to be empty")
        part.bench.check(relay.terminate() == 0, "the relay did not survive the loss of Redis")
        part.bench.check_acknowledged()
    part.bench.check_end()


def lost_group(part, deep):
    """Redis loses dead letters and the group, and keeps the entries: the ledger's cursor is ahead of what Redis knows."""
    for _ in range(5 if deep else 1):
        part.queue.send(part.bench.mix.make(60))
        part.queue.client.xgroup_destroy(STREAM, GROUP)     # of the last round: the cut is to keep the entries
        part.bench.drain()
        part.server.kill_written()
        part.server.cut_tail(1, b"CREATE")
        part.server.start()
        part.bench.check(not part.queue.client.xinfo_groups(STREAM), "the group was not lost")
        part.bench.drain()
        part.bench.check_end()
        # Some of the letters, and a group that somebody else removes.
        before = len(part.queue.letters())
        part.queue.send(part.bench.mix.make(60))
        part.bench.drain()
        written = len(part.queue.letters()) - before
        part.server.kill_written()
        part.server.cut_tail(part.bench.rng.randint(1, written), b"HSETNX")
        part.server.start()
        part.queue.client.xgroup_destroy(STREAM, GROUP)
        part.bench.drain()
        part.bench.check_end()


def kill_redis(part, messages, cut=0):
    """kill -9 of redis-server while the relay is at work, which goes on by itself; how many messages Redis lost.

    cut: so many entries are lost with the end of the file."""
    relay = part.bench.start()
    goal = len(part.bench.trace("acknowledged")) + part.bench.rng.randint(1, messages)
    part.queue.send(part.bench.mix.make(messages // 2))
    done = len(part.bench.trace("acknowledged"))
    while done < goal and relay.process.poll() is None:
        if part.queue.backlog() < messages:
            part.queue.send(part.bench.mix.make(10))
        done = len(part.bench.trace("acknowledged"))
    part.server.kill()
    if cut:
        part.server.cut_tail(cut)
    part.server.start()
    part.bench.check_acknowledged()
    lost = part.queue.send_lost()
    until(part.queue.is_empty, "the stream to be empty")
    part.bench.check(relay.terminate() == 0, "the relay did not survive the loss of Redis")
    part.bench.check_acknowledged()
    return lost


def everything_again(part, deep):
    """All of it delivered once more; a group that is gone; a stream that is gone and filled again."""
    part.queue.send(part.bench.mix.make(1000 if deep else 150))
    part.bench.drain()
    part.queue.client.xgroup_setid(STREAM, GROUP, 0)
    part.bench.drain()
    part.bench.check_end()
    received = [position for _, _, position in part.bench.trace("received")]
    part.bench.check(sorted(received) == sorted(2 * list(part.queue.sent)), "not everything came exactly twice")
    # The group is made anew where the ledger's cursor stands: nothing comes a third time, and what is new comes.
    part.queue.client.xgroup_destroy(STREAM, GROUP)
    part.queue.send(part.bench.mix.make(50))
    part.bench.drain()
    part.bench.check_end()
    part.bench.check(len(part.bench.trace("received")) == len(received) + 50, "the cursor was not where it had to be")
    part.queue.client.delete(STREAM)
    part.queue.send_lost()
    part.queue.client.delete(STREAM + ":dead")
    part.bench.drain()
    part.bench.check_end()


def gap(part, deep):
    """Events of a poll that has not arrived hold the acknowledgement back, and nothing else."""
    del deep
    part.queue.send([part.bench.mix.order() for _ in range(5)])
    late = [part.bench.mix.event("late", choice="red", principal="p%d" % number) for number in range(2)]
    part.queue.send(late)
    part.queue.send([part.bench.mix.order() for _ in range(30)])
    relay = part.bench.start(tries=100000)
    until(lambda: sum(words[3] == "accepted" for words in part.bench.trace("settled")) == 35, "the others")
    until(lambda: len(part.bench.trace("retrying")) > 3, "tries")
    positions = list(part.queue.sent)
    part.bench.check(part.queue.acknowledged() == positions[:5], "acknowledged: %s" % part.queue.acknowledged())
    stored = part.bench.query("SELECT poll_tally.source_position(%s, 0)", STREAM)[0][0]
    ms, n = order(positions[4])
    part.bench.check(stored == (ms << 20) + n + 1, "the cursor is at %s" % stored)
    part.bench.query("SELECT poll_tally.create_poll('late', '{red}')")
    until(part.queue.is_empty, "the stream to be empty")
    part.bench.check(relay.terminate() == 0, "the relay failed")
    part.bench.check_end()


def two_consumers(part, deep):
    """A consumer dies with entries pending and another claims them; one is held up, and comes back too late."""
    part.queue.keeps_order = part.bench.mix.ordered = False
    for number in range(6 if deep else 1):
        part.queue.send(part.bench.mix.make(200))
        first = part.bench.start("judged:2", consumer="first-%d" % number)
        slow = part.bench.start("judged:2:STOP", consumer="slow-%d" % number)
        first.wait_end()
        slow.wait_stopped()
        pending, _ = part.queue.state()
        part.bench.check(len(pending) > 0, "nothing was pending")
        second = part.bench.start(consumer="second", claim=0.5)
        until(part.queue.is_empty, "the second consumer to have it all")
        part.bench.check_acknowledged()
        slow.go_on()
        part.queue.send(part.bench.mix.make(50))
        until(part.queue.is_empty, "the stream to be empty")
        part.bench.check([slow.terminate(), second.terminate()] == [0, 0], "a relay failed")
    part.bench.check_end()


def trimming(part, deep):
    """The stream is trimmed, never of what is pending or unread; what others delete is not passed over in silence."""
    del deep
    client = part.queue.client
    part.queue.send([part.bench.mix.order() for _ in range(30)])
    positions = list(part.queue.sent)
    client.xgroup_create(STREAM, GROUP, 0)
    client.xgroup_create(STREAM, "reader", 0)
    client.xreadgroup(GROUP, "absent", {STREAM: ">"}, count=3)
    client.xreadgroup("reader", "reader", {STREAM: ">"}, count=20)
    client.xack(STREAM, "reader", *positions[:10])
    relay = part.bench.start(keep=0, consumer="trimmer")
    until(lambda: len(part.bench.trace("acknowledged")) == 27, "the others")
    turns = part.server.trims()
    until(lambda: part.server.trims() >= turns + 2, "two turns of trimming")
    part.bench.check(client.xlen(STREAM) == 30, "pending entries were trimmed")
    stored = part.bench.query("SELECT poll_tally.source_position(%s, 0)", STREAM)[0][0]
    ms, n = order(positions[0])
    part.bench.check(stored in (None, (ms << 20) + n), "the cursor passed the other consumer's entries: %s" % stored)
    client.xdel(STREAM, positions[1])
    part.bench.check(relay.terminate() == 0, "the relay failed")
    relay = part.bench.start(keep=0, consumer="trimmer", claim=0.2)
    until(lambda: client.xlen(STREAM) == 20, "trimming up to what the reader has pending")
    client.xack(STREAM, "reader", *positions)
    until(lambda: client.xlen(STREAM) == 11, "trimming up to what the reader has not read")
    part.bench.check(relay.terminate() == 0, "the relay failed")
    message = part.queue.sent[positions[1]]
    message.reason, message.body = "deleted_upstream", b""
    part.bench.check_end()


PARTS = (("killed at every step", killed_at_every_step, "always"),
         ("the database stopped between COMMIT and acknowledgement, SIGTERM, an unknown COMMIT", database_stopped, "everysec"),
         ("redis-server killed, appendfsync always", redis_killed_always, "always"),
         ("redis-server killed, appendfsync everysec", redis_killed_everysec, "everysec"),
         ("a dead letter lost with the last second", lost_letter, "everysec"),
         ("the group and dead letters lost with the last second", lost_group, "everysec"),
         ("everything delivered again", everything_again, "everysec"),
         ("a gap", gap, "everysec"),
         ("consumers that die and linger", two_consumers, "everysec"),
         ("trimming", trimming, "everysec"))


def main(*arguments):
    end_in_order()
    only = os.environ.get("RELAY_PART", "")
    for number, (name, work, appendfsync) in enumerate(PARTS):
        if only in name:
            with RedisPart(arguments, name, number, appendfsync) as part:
                work(part, arguments[4] == "1")


if __name__ == "__main__":
    main(*sys.argv[1:])
