// Starts the page: feed, gate, streams and HTTP. Several of these side by side, with one LIVE_SECRET, are one site: each
// reads the same table, and none of them decides anything. SIGTERM ends it once what is under way is answered.

import http from 'node:http';

import { createApp } from './lib/app.js';
import { Feed } from './lib/feed.js';
import { Gate } from './lib/gate.js';
import { readSettings } from './lib/settings.js';
import { Streams } from './lib/stream.js';

const CLOSE_MS = 5000;

function log(line) {
  console.error(`${new Date().toISOString()} ${line}`);
}

async function main() {
  const settings = readSettings();
  const feed = new Feed({ user: settings.user, rereadMs: settings.rereadMs, log });
  const gate = new Gate(settings, log);
  const streams = new Streams(feed, settings);
  const server = http.createServer(createApp({ settings, feed, gate, streams, log }));

  feed.on('connected', (connected) => log(connected ? 'feed: the database is here' : 'feed: the database is away'));
  server.on('error', (error) => {
    log(error.message);
    process.exit(1);
  });
  await feed.start();
  server.listen(settings.port, settings.host, () => {
    const { address, port } = server.address();
    console.log(`listening on http://${address.includes(':') ? `[${address}]` : address}:${port}/`);
  });

  let ending = false;
  const end = async () => {
    if (ending) return;
    ending = true;
    streams.end();
    server.close();
    server.closeIdleConnections();
    setTimeout(() => server.closeAllConnections(), CLOSE_MS).unref();
    server.once('close', async () => {
      await Promise.all([feed.stop(), gate.end()]);
      process.exit(0);
    });
  };
  process.on('SIGTERM', end);
  process.on('SIGINT', end);
}

main().catch((error) => {
  console.error(`live: ${error.message}`);
  process.exit(2);
});
