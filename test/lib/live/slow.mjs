// Viewers that go, or read too slowly, at the worst moment. The feed is one of ours, so that we say when that is.

import { EventEmitter } from 'node:events';
import http from 'node:http';
import net from 'node:net';

import { is, ok, waitFor } from './check.mjs';
import { LIVE, packages } from './site.mjs';

const { Streams, streamRoutes } = await import(`${LIVE}/lib/stream.js`);
const express = packages('express');

function stateOf(revision, final) {
  return { id: `epoch:${revision}`, json: JSON.stringify({ revision, padding: 'x'.repeat(3000) }), snapshot: { final } };
}

class Feed extends EventEmitter {
  connected = true;
  state = stateOf(1, false);
  viewers = new Set();
  read = Promise.resolve(); // until then a state is being read

  async newest() {
    await this.read;
    return this.state;
  }

  subscribe(poll, viewer) {
    this.viewers.add(viewer);
    return () => this.viewers.delete(viewer);
  }

  tell(state) {
    this.state = state;
    for (const viewer of this.viewers) viewer(state);
  }
}

// A server, its streams, and a viewer's connection and the response to it.
async function openViewer(feed) {
  const streams = new Streams(feed, { beatMs: 1e9, streams: 10 });
  let response = null;
  const app = express();
  app.use((request, answer, next) => {
    response = answer;
    next();
  });
  app.use(streamRoutes(streams));
  const server = http.createServer(app);
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const viewer = net.connect(server.address().port, '127.0.0.1');
  viewer.pause();
  viewer.write('GET /polls/p/stream HTTP/1.1\r\nHost: x\r\n\r\n');
  await waitFor(() => response, 'a viewer');
  return { streams, response, viewer, server };
}

// One that goes while its poll is being read keeps no place.
async function goneTests() {
  const feed = new Feed();
  let done;
  feed.read = new Promise((resolve) => (done = resolve));
  const { streams, response, viewer, server } = await openViewer(feed);
  viewer.destroy();
  await waitFor(() => response.destroyed, 'the viewer to be gone');
  done();
  await new Promise((resolve) => setImmediate(resolve));
  is([streams.count, feed.viewers.size], [0, 0], 'a viewer that goes before its stream begins keeps no place');
  server.close();
  streams.end();
}

// One that has stopped reading.
async function slowViewer(feed) {
  const { streams, response, viewer, server } = await openViewer(feed);
  await waitFor(() => feed.viewers.size === 1, 'the stream');
  // Until the system takes no more; our own buffer has room.
  for (let revision = 2; response.writableLength === 0; revision++) {
    feed.tell(stateOf(revision, false));
    await new Promise((resolve) => setImmediate(resolve));
  }
  response.on('error', (error) => ok(false, `written after the end: ${error.message}`));
  return { streams, response, viewer, server };
}

// What is on its way to a slow viewer takes a while when its stream ends; until then nothing more may be written.
async function slowEndTests() {
  for (const [name, end] of [
    ['final', (feed) => feed.tell(stateOf(1_000_000, true))],
    ['dropped', (feed) => feed.tell(null)],
    ['shut down', (feed, streams) => streams.end()],
  ]) {
    const feed = new Feed();
    const { streams, response, viewer, server } = await slowViewer(feed);
    is(response.writableNeedDrain, false, `${name}: a viewer is slow, and not yet held back`);
    end(feed, streams);
    is([response.writableEnded, response.writableFinished], [true, false], `${name}: its stream ends, and is not over`);
    feed.emit('connected', true); // a beat for all
    feed.tell(stateOf(1_000_001, false));
    let text = '';
    viewer.setEncoding('utf8').on('data', (chunk) => (text = (text + chunk).slice(-10_000)));
    viewer.resume();
    await waitFor(() => response.writableFinished, 'the viewer to read all');
    await waitFor(() => text.endsWith('0\r\n\r\n'), 'the end');
    is(/"revision":1000000,/.test(text), name === 'final', `${name}: what was said before the end comes, and nothing after`);
    viewer.destroy();
    server.close();
    streams.end();
  }
}

export async function viewerTests() {
  await goneTests();
  await slowEndTests();
}
