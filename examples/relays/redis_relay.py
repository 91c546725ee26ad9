#!/usr/bin/python3
"""Relay from a Redis stream into the ledger.

usage: redis_relay.py DSN REDIS_URL STREAM [--group NAME] [--consumer NAME] ...

An entry has one field, body: an event as JSON. The relay is one consumer of a consumer group; give each its own name,
and the same one after a restart. What it had received is read again first; what another consumer left pending for
--claim-idle seconds is taken over. Dead letters are the fields of the hash STREAM:dead, which holds each once.

The id ms-n is the source offset ms * 2^20 + n. A group that is not there, after Redis lost its data say, is made anew
where the ledger's cursor stands, but not beyond what Redis itself knows to be settled, the field GROUP of the hash
STREAM:settled: a dead letter below the cursor may be lost too. With --keep the stream is trimmed, never of what a group
has pending or has not read.
"""

import base64
import contextlib
import json
import socket
import sys
import time

import redis

from relay import command
from relay.faults import Lost
from relay.record import Record

N_BITS = 20
MOST_OFFSET = 2 ** 63 - 2
PAGE = 100                      # entries in one answer of Redis, which is read as a whole


def offset_of(entry):
    """The source offset of an id; None when n does not fit."""
    ms, n = (int(part) for part in entry.split(b"-"))
    offset = (ms << N_BITS) + n
    return offset if n < 1 << N_BITS and offset <= MOST_OFFSET else None


def id_of(offset):
    return "%d-%d" % (offset >> N_BITS, offset & (1 << N_BITS) - 1)


def readable(data):
    """Bytes for JSON: as text, or in base64 where they are none."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


@contextlib.contextmanager
def redis_faults():
    try:
        yield
    except redis.RedisError as error:
        raise Lost("%s: %s" % (type(error).__name__, error)) from error


class RedisSource:
    has_cursor = True

    def __init__(self, url, stream, group, consumer, claim_idle, keep):
        self.url, self.stream, self.group, self.consumer = url, stream, group, consumer
        self.claim_idle, self.keep = claim_idle, keep
        self.redis = None
        self.connected = False
        self.held = set()                       # ids in the window: a claim may bring one again
        self.own_from = None                    # how far the own pending entries are read, None at the end
        self.claim_from = "0-0"
        self.claim_at = self.trim_at = 0.0

    def connect(self, relay, ledger):
        del relay
        self.connected = False
        with redis_faults():
            self.redis = redis.Redis.from_url(self.url, socket_timeout=30, redis_connect_func=self.on_connect)
            self.make_group(ledger)
        self.held.clear()
        self.own_from = "0-0"
        self.claim_at = time.monotonic() + self.claim_idle / 2
        self.trim_at = time.monotonic()

    def on_connect(self, connection):
        """The library would connect again by itself, and nobody would know that Redis may have lost its last second:
        a dead letter is written, lost, and the entry acknowledged to a server that never saw the letter."""
        if self.connected:
            raise redis.ConnectionError("the connection was lost")
        connection.on_connect()
        self.connected = True

    def make_group(self, ledger):
        if any(group["name"] == self.group.encode() for group in self.groups()):
            return
        settled = self.redis.hget(self.stream + ":settled", self.group)
        resume_at = ledger.resume_at(None)
        start = "0" if None in (settled, resume_at) else id_of(min(offset_of(settled), resume_at) - 1)
        try:
            self.redis.xgroup_create(self.stream, self.group, start, mkstream=True)
        except redis.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):      # another consumer was faster
                raise

    def groups(self):
        return self.redis.xinfo_groups(self.stream) if self.redis.exists(self.stream) else []

    # --- receiving --------------------------------------------------------------------------------------------------

    def receive(self, room, timeout):
        with redis_faults():
            if room == 0:
                time.sleep(timeout)
                entries = []
            elif self.own_from is not None:
                entries = self.own_pending(min(room, PAGE))
            elif time.monotonic() >= self.claim_at:
                entries = self.claim(min(room, PAGE))
            else:
                entries = self.read(">", min(room, PAGE), max(1, int(timeout * 1000)) if timeout > 0 else None)
            if self.keep is not None and time.monotonic() >= self.trim_at:
                self.trim()
        for entry, fields in entries:
            if entry not in self.held:
                self.held.add(entry)
                yield self.record(entry, fields)

    def read(self, after, room, block):
        answer = self.redis.xreadgroup(self.group, self.consumer, {self.stream: after}, count=room, block=block)
        return answer[0][1] if answer else []

    def own_pending(self, room):
        entries = self.read(self.own_from, room, None)
        self.own_from = entries[-1][0] if entries else None
        return entries

    def claim(self, room):
        """A page of what others left pending; entries that were trimmed meanwhile are reported by their id alone."""
        answer = self.redis.xautoclaim(self.stream, self.group, self.consumer, int(self.claim_idle * 1000),
                                       self.claim_from, room)
        self.claim_from = answer[0]
        if self.claim_from == b"0-0":
            self.claim_at = time.monotonic() + self.claim_idle / 2
        deleted = answer[2] if len(answer) > 2 else []
        return [pair for pair in answer[1] if pair[0] is not None] + [(entry, {}) for entry in deleted]

    def record(self, entry, fields):
        offset = offset_of(entry)
        record = Record(None, entry.decode(), offset, fields.get(b"body", b""), (entry, fields))
        if not fields:
            record.refuse("deleted_upstream", "the entry was trimmed or deleted while it was pending")
        elif offset is None:
            record.refuse("position_out_of_range", "the entry's id is no source offset")
        elif b"body" not in fields:
            record.refuse("invalid_message", "the entry has no field body")
        return record

    # --- finishing --------------------------------------------------------------------------------------------------

    def bury(self, pairs):
        with redis_faults():
            pipe = self.redis.pipeline(transaction=False)
            for record, letter in pairs:
                fields = {name.decode("utf-8", "backslashreplace"): readable(value) for name, value in record.handle[1].items()}
                pipe.hsetnx(self.stream + ":dead", letter["id"], json.dumps(dict(letter, fields=fields)))
            pipe.execute()

    def acknowledge(self, partition, records):
        del partition
        with redis_faults():
            pipe = self.redis.pipeline(transaction=False)
            pipe.xack(self.stream, self.group, *[record.handle[0] for record in records])
            pipe.xpending(self.stream, self.group)
            self.note_settled(records, pipe.execute()[1])
        self.held.difference_update(record.handle[0] for record in records)

    def note_settled(self, records, pending):
        """Everything below this id is acknowledged. Redis keeps what it was told first: where the note has outlived a
        loss, so have the dead letters of what it covers, which the ledger's cursor cannot say."""
        if pending["pending"]:
            settled = offset_of(pending["min"])
        else:
            settled = max((record.offset + 1 for record in records if record.offset is not None), default=None)
        if settled is not None:
            self.redis.hset(self.stream + ":settled", self.group, id_of(settled))

    def ceiling(self):
        """The oldest entry that is pending for another consumer: the group's cursor must not pass it."""
        with redis_faults():
            consumers = self.redis.xpending(self.stream, self.group)["consumers"]
            others = [consumer["name"] for consumer in consumers if consumer["name"] != self.consumer.encode()]
            oldest = [entry["message_id"] for name in others
                      for entry in self.redis.xpending_range(self.stream, self.group, "-", "+", 1, name)]
        return min(filter(None, map(offset_of, oldest)), default=None)

    def trim(self):
        """Drop what is older than --keep seconds, read by every group, and pending for none."""
        self.trim_at = time.monotonic() + 1
        seconds, _ = self.redis.time()
        least = [offset_of(b"%d-0" % int((seconds - self.keep) * 1000))]
        for group in self.groups():
            pending = self.redis.xpending(self.stream, group["name"])
            first = pending["min"] if pending["pending"] else group["last-delivered-id"]
            least.append(offset_of(first))
        if None not in least and min(least) > 0:
            self.redis.xtrim(self.stream, minid=id_of(min(least)), approximate=False)

    def drop(self):
        if self.redis is not None:
            self.redis.close()

    close = drop


def main():
    options = command.parser("Relay from a Redis stream into the ledger.")
    options.add_argument("url", help="redis://HOST:PORT/DATABASE")
    options.add_argument("stream")
    options.add_argument("--group", default="poll_tally")
    options.add_argument("--consumer", default=socket.gethostname(), help="default: the machine's name")
    options.add_argument("--claim-idle", type=command.seconds(0.001), default=60.0,
                         help="take over what is pending for another consumer for so many seconds (60)")
    options.add_argument("--keep", type=command.seconds(0), help="trim what is settled and older than so many seconds")
    given = options.parse_args()
    source = RedisSource(given.url, given.stream, given.group, given.consumer, given.claim_idle, given.keep)
    command.Loop(given, command.source_name(options, given, given.stream), source).run()


if __name__ == "__main__":
    sys.exit(main())
