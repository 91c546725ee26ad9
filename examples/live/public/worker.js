// A shared worker: one connection a poll for all tabs. A browser opens at most six connections to an HTTP/1.1 server,
// so six tabs with a stream each would leave none for the seventh, nor for a vote.

import { Connection } from './connection.js';

const SILENT_MS = 180_000; // a tab that has not said that it is there; timers of hidden tabs run once a minute
const watched = new Map(); // address -> { connection, ports: Map(port -> when it was last heard of), last: {} }

function leave(port) {
  for (const [address, poll] of watched) {
    poll.ports.delete(port);
    if (poll.ports.size > 0) continue;
    poll.connection.stop();
    watched.delete(address);
  }
}

function watch(port, { address, known, beatMs }) {
  let poll = watched.get(address);
  if (poll === undefined) {
    poll = { ports: new Map(), last: {} };
    const heard = (message) => {
      poll.last[message.kind] = message;
      for (const to of poll.ports.keys()) to.postMessage(message);
    };
    poll.connection = new Connection(address, { known, beatMs, heard });
    watched.set(address, poll);
    poll.ports.set(port, Date.now());
    // It ends with the final snapshot, or with the poll. One of the same name may come after it.
    const begun = poll;
    poll.connection.run().then(() => watched.get(address) === begun && watched.delete(address));
    return;
  }
  poll.ports.set(port, Date.now());
  for (const message of Object.values(poll.last)) port.postMessage(message);
}

self.onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data }) => {
    if (data.kind === 'watch') watch(port, data);
    else if (data.kind === 'bye') leave(port);
    else for (const poll of watched.values()) if (poll.ports.has(port)) poll.ports.set(port, Date.now());
  };
  port.postMessage({ kind: 'hello' });
};

setInterval(() => {
  for (const poll of [...watched.values()]) {
    for (const [port, heardAt] of [...poll.ports]) if (Date.now() - heardAt > SILENT_MS) leave(port);
  }
}, 30_000);
