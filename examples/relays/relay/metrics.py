"""The relay's figures, as text that Prometheus reads."""

import collections
import http.server
import threading
import time

COUNTERS = {
    "received": "Messages that the queue delivered.",
    "accepted": "Events that are new in the ledger.",
    "duplicates": "Events that were in the ledger already.",
    "retried": "Tries that have to be repeated.",
    "unknown_results_resolved": "Events whose COMMIT got no answer, and whose retry told what became of it.",
    "acknowledged": "Messages acknowledged to the queue.",
    "acknowledge_failures": "Acknowledgements that the queue did not take.",
    "queue_losses": "Times that the queue was out of reach.",
}


class Metrics:
    """Written by the relay's only thread; read by the thread that serves them."""

    def __init__(self, clock=time.monotonic):
        self.clock = clock
        self.lock = threading.Lock()
        self.counts = collections.Counter(dict.fromkeys(COUNTERS, 0))
        self.dead = collections.Counter()       # by reason
        self.oldest_at = None                   # when the oldest unacknowledged message was received

    def count(self, name, number=1):
        with self.lock:
            self.counts[name] += number

    def count_dead(self, reason):
        with self.lock:
            self.dead[reason] += 1

    def oldest_age(self):
        oldest_at = self.oldest_at
        return 0.0 if oldest_at is None else max(0.0, self.clock() - oldest_at)

    def text(self):
        lines = []
        with self.lock:
            for name, about in COUNTERS.items():
                lines += ["# HELP relay_%s_total %s" % (name, about), "# TYPE relay_%s_total counter" % name,
                          "relay_%s_total %d" % (name, self.counts[name])]
            lines += ["# HELP relay_dead_lettered_total Messages written to the dead letters.",
                      "# TYPE relay_dead_lettered_total counter"]
            lines += ['relay_dead_lettered_total{reason="%s"} %d' % pair for pair in sorted(self.dead.items())]
        lines += ["# HELP relay_oldest_unacknowledged_seconds Age of the oldest message received and not acknowledged.",
                  "# TYPE relay_oldest_unacknowledged_seconds gauge",
                  "relay_oldest_unacknowledged_seconds %.3f" % self.oldest_age()]
        return "\n".join(lines) + "\n"

    def summary(self):
        with self.lock:
            return ", ".join(["%s %d" % (name, self.counts[name]) for name in COUNTERS]
                             + ["dead %d" % sum(self.dead.values())])

    def serve(self, port):
        """Serve the text on the loopback address; returns the port, a free one for 0."""
        metrics = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = metrics.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments):
                pass                            # a scrape is no news

        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server.server_address[1]
