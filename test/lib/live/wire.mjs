// What can happen on the way. Two things in between: before a page server one that speaks HTTP, and before PostgreSQL one
// that knows where its messages begin and end.

import http from 'node:http';
import net from 'node:net';

function listen(server) {
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server.address().port)));
}

// Between browser and page server. filter(event) is asked for each server-sent event, and answers what is to come of it:
// the same text, another one, or ''. `lose` is how many answers to votes are to be cut off behind the server, `refuse`
// whether streams are refused.
export class HttpWire {
  constructor(target) {
    Object.assign(this, {
      target,
      filter: (event) => event,
      lose: 0,
      refuse: false,
      streams: new Set(),
      opened: 0,
      requests: [],
    });
    this.server = http.createServer((request, response) => this.#pass(request, response));
  }

  async start() {
    this.port = await listen(this.server);
    this.address = `http://127.0.0.1:${this.port}`;
    return this;
  }

  // Writes to every open stream.
  inject(text) {
    for (const response of this.streams) response.write(text);
  }

  // Nobody comes through any more; start() opens it anew elsewhere.
  stop() {
    this.server.close();
    this.server.closeAllConnections();
  }

  #pass(request, response) {
    this.requests.push(`${request.method} ${request.url}`);
    const isStream = request.url.includes('/stream');
    if (isStream && this.refuse) {
      response.writeHead(502).end();
      return;
    }
    const { host, port } = new URL(this.target.address);
    const onward = http.request({
      host: host.split(':')[0],
      port,
      method: request.method,
      path: request.url,
      headers: request.headers,
      agent: false,
    });
    request.pipe(onward);
    response.on('close', () => onward.destroy());
    onward.on('error', () => response.destroy());
    onward.on('response', (answer) => {
      if (request.method === 'POST' && this.lose > 0) {
        this.lose--;
        answer.resume().on('end', () => response.destroy());
        return;
      }
      response.writeHead(answer.statusCode, answer.headers);
      if (isStream && answer.statusCode === 200) this.#passStream(answer, response);
      else answer.pipe(response);
    });
  }

  #passStream(answer, response) {
    this.streams.add(response);
    this.opened++;
    response.on('close', () => this.streams.delete(response));
    let text = '';
    answer.setEncoding('utf8');
    answer.on('data', (chunk) => {
      text += chunk;
      const events = text.split('\n\n');
      text = events.pop();
      for (const event of events) {
        const passed = this.filter(event);
        if (passed !== '') response.write(`${passed}\n\n`);
      }
    });
    answer.on('close', () => response.end());
  }
}

// Between page server and PostgreSQL. While `deaf`, NotificationResponse messages do not come through; `lost` is how many.
export class PostgresWire {
  constructor(socketPath) {
    Object.assign(this, { deaf: false, lost: 0, sockets: new Set() });
    this.server = net.createServer((client) => this.#pass(client, net.connect(socketPath)));
  }

  async start() {
    this.port = await listen(this.server);
    return this;
  }

  cut() {
    for (const socket of this.sockets) socket.destroy();
  }

  stop() {
    this.server.close();
    this.cut();
  }

  #pass(client, server) {
    for (const [one, other] of [
      [client, server],
      [server, client],
    ]) {
      this.sockets.add(one);
      one.on('error', () => {}); // its close follows
      one.on('close', () => {
        this.sockets.delete(one);
        other.destroy();
      });
    }
    client.pipe(server);
    let rest = Buffer.alloc(0);
    server.on('data', (chunk) => {
      rest = Buffer.concat([rest, chunk]);
      const kept = [];
      // A message is a byte that says what it is, and its length, which counts itself.
      while (rest.length >= 5 && rest.length >= 1 + rest.readInt32BE(1)) {
        const message = rest.subarray(0, 1 + rest.readInt32BE(1));
        rest = rest.subarray(message.length);
        if (this.deaf && message[0] === 'A'.charCodeAt(0)) this.lost++;
        else kept.push(message);
      }
      if (kept.length > 0) client.write(Buffer.concat(kept));
    });
  }
}
