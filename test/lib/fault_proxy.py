"""A proxy in front of a server that loses connections and answers at exact moments of the protocol.

The first requests that call one of our accepting functions with the same content meet the faults of a list, one each,
and those after them none. Content is the request's bytes but for UUIDs, so that a retry is recognised as one even if it
came under another event id. The faults:

    before      the connection is cut before the server sees the request
    after       the transaction is committed; then the connection is cut instead of telling so
    terminate   the transaction is committed; then the backend is terminated, and the client hears that instead
    fail_40001, fail_40p01    the function of that schema is called instead, which raises (FAILING makes both schemas)

Both ways, messages are forwarded whole and in order. Guarded by one lock: the links and the counters.
"""

import collections
import re
import socket
import struct
import threading

import psycopg2

CALL = re.compile(rb"poll_tally(?=\.accept_events?\()")
UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ENCRYPTION_REQUESTS = (80877103, 80877104)
WITHIN_REQUEST = b"PBDECH"      # all other messages of a client end a request

FAILING = """
    DO $$
    DECLARE
        f record;
        code text;
    BEGIN
        FOREACH code IN ARRAY ARRAY['40001', '40P01'] LOOP
            EXECUTE format('CREATE SCHEMA fail_%s', code);
            EXECUTE format('GRANT USAGE ON SCHEMA fail_%s TO PUBLIC', code);
            FOR f IN SELECT p.* FROM pg_proc AS p
                     WHERE p.pronamespace = 'poll_tally'::regnamespace AND p.proname IN ('accept_event', 'accept_events') LOOP
                EXECUTE format('CREATE FUNCTION fail_%s.%I(%s) RETURNS SETOF %s LANGUAGE plpgsql AS %L', code, f.proname,
                               pg_get_function_arguments(f.oid), f.prorettype::regtype,
                               format('BEGIN RAISE EXCEPTION ''lost, as the test wants'' USING ERRCODE = %L; END', code));
            END LOOP;
        END LOOP;
    END $$"""


class Lost(Exception):
    """One side has closed its connection."""


def read_exactly(sock, length):
    data = b""
    while len(data) < length:
        try:
            part = sock.recv(length - len(data))
        except OSError:
            part = b""
        if not part:
            raise Lost
        data += part
    return data


def read_message(sock):
    """(type, the whole message)"""
    head = read_exactly(sock, 5)
    return head[:1], head + read_exactly(sock, struct.unpack("!I", head[1:])[0] - 4)


class Link:
    """A client's connection and ours to the server for it."""

    def __init__(self, client, server):
        self.client, self.server = client, server
        self.pid = None         # of the backend
        self.fault = None       # once the transaction that is under way has ended: after, terminate
        self.held = b""         # of the answer, while there is such a fault

    def cut(self):
        for sock in (self.client, self.server):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass            # it was


class FaultProxy:
    def __init__(self, dsn, faults=()):
        self.dsn, self.faults = dsn, faults
        self.met = collections.Counter()        # content -> how many faults it has met
        self.done = collections.Counter()       # fault -> how often
        self.is_open, self.links, self.lock = True, [], threading.Lock()
        connection = psycopg2.connect(dsn)
        self.path = "%s/.s.PGSQL.%d" % (connection.info.host, connection.info.port)
        connection.close()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept_all, daemon=True).start()

    def shut(self):
        """Cuts all connections and refuses new ones."""
        with self.lock:
            self.is_open = False
            for link in self.links:
                link.cut()

    def open(self):
        with self.lock:
            self.is_open = True

    def terminate_backends(self):
        with self.lock:
            self.terminate([link.pid for link in self.links if link.pid is not None])

    def accept_all(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client, socket.socket(socket.AF_UNIX) as server:
            link = Link(client, server)
            with self.lock:
                if not self.is_open:
                    return
                self.links.append(link)
            answers = threading.Thread(target=self.forward_answers, args=(link,), daemon=True)
            try:
                server.connect(self.path)
                server.sendall(self.read_startup(client))
                answers.start()
                self.forward_requests(link)
            except (Lost, OSError):
                pass            # the other side is to learn of it
            link.cut()
            with self.lock:
                self.links.remove(link)
            if answers.ident is not None:
                answers.join()

    def read_startup(self, client):
        while True:
            head = read_exactly(client, 8)
            length, code = struct.unpack("!II", head)
            if code not in ENCRYPTION_REQUESTS:
                return head + read_exactly(client, length - 8)
            client.sendall(b"N")

    # --- requests ---------------------------------------------------------------------------------------------------

    def forward_requests(self, link):
        request = b""
        while True:
            kind, message = read_message(link.client)
            request += message
            if kind == b"H" or kind not in WITHIN_REQUEST:
                link.server.sendall(self.with_fault(link, request))
                request = b""

    def with_fault(self, link, request):
        if not CALL.search(request):
            return request
        content = UUID.sub(b"", request)
        with self.lock:
            nth = self.met[content]
            if nth == len(self.faults):
                return request
            self.met[content] += 1
            fault = self.faults[nth]
            self.done[fault] += 1
        if fault.startswith("fail_"):
            return CALL.sub(fault.encode(), request)    # of the same length
        if fault == "before":
            raise Lost
        link.fault = fault
        return request

    # --- answers ----------------------------------------------------------------------------------------------------

    def forward_answers(self, link):
        try:
            while True:
                kind, message = read_message(link.server)
                if kind == b"K":
                    link.pid = struct.unpack("!I", message[5:9])[0]
                link.held += message
                if link.fault is None:
                    link.client.sendall(link.held)
                    link.held = b""
                elif kind == b"Z":
                    self.answered(link, in_transaction=message[5:6] != b"I")
        except (Lost, OSError):
            link.cut()

    def answered(self, link, in_transaction):
        held, link.held = link.held, b""
        if in_transaction:
            link.client.sendall(held)
        elif link.fault == "after":
            raise Lost
        else:
            link.fault = None
            self.terminate([link.pid])

    def terminate(self, pids):
        with psycopg2.connect(self.dsn) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS pid", (pids,))
        connection.close()
