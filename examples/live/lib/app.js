// The express application: pages, stream, gate and assets, with the headers that all of them get.

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import express from 'express';

import { Away } from './feed.js';
import { gateRoutes, Refusal } from './gate.js';
import { errorPage, listPage, localeFor, pollPage } from './page.js';
import { welcome } from './principal.js';
import { streamRoutes } from './stream.js';

const PUBLIC = fileURLToPath(new URL('../public', import.meta.url));
const PAGE_FRESH_MS = 1000;
const LISTED = 200;
const LIST = `SELECT poll, title, closes_at, closed_at FROM live.polls
ORDER BY closed_at IS NOT NULL, closes_at NULLS LAST, poll LIMIT ${LISTED}`;

const HEADERS = {
  'Content-Security-Policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "worker-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'same-origin',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
};

// Assets have what they hold in their address: they are cached for ever, and the parts of a page never mix versions.
function addressOfAssets() {
  const hash = createHash('sha256');
  for (const name of readdirSync(PUBLIC).sort()) hash.update(name).update(readFileSync(`${PUBLIC}/${name}`));
  return `/assets/${hash.digest('hex').slice(0, 16)}`;
}

function wantsPage(request) {
  return request.method === 'GET' || request.method === 'HEAD' || request.is('application/x-www-form-urlencoded')
    ? request.accepts(['json', 'html']) === 'html'
    : false;
}

// The fields of a form that was read, null without one.
function formOf(request) {
  const isForm = Buffer.isBuffer(request.body) && request.is('application/x-www-form-urlencoded');
  return isForm ? [...new URLSearchParams(request.body.toString())] : null;
}

// What body-parser and the router raise has a status too; anything else is a fault of ours.
function refusalOf(error, log) {
  if (error instanceof Refusal) return error;
  if (error instanceof Away) return new Refusal(503, 'away', 'The database is away.', 2);
  if (error.status === 413) return new Refusal(413, 'too_large', 'The body is too large.');
  if (error.status >= 400 && error.status < 500)
    return new Refusal(error.status, 'bad_request', 'The request is malformed.');
  log(`fault: ${error.stack}`);
  return new Refusal(500, 'fault', 'Something went wrong here.');
}

export function createApp({ settings, feed, gate, streams, log }) {
  const app = express();
  const assets = addressOfAssets();
  app.disable('x-powered-by');
  app.disable('etag');
  app.set('trust proxy', settings.trustProxy);

  app.use((request, response, next) => {
    response.set(HEADERS);
    next();
  });
  // While processes of two releases run side by side, ours may be asked for the other one's assets: not for ever then.
  app.use(
    '/assets/:version',
    (request, response, next) => {
      const ours = request.baseUrl === assets;
      response.set('Cache-Control', ours ? 'public, max-age=31536000, immutable' : 'no-store');
      next();
    },
    express.static(PUBLIC, { index: false, cacheControl: false }),
  );

  const show = (request, response, state, receipt) => {
    welcome(settings, request, response);
    response.set('Cache-Control', 'no-store').vary('Accept-Language');
    response.type('html').send(pollPage({ assets, beatMs: settings.beatMs }, localeFor(request), state, receipt));
  };

  app.get('/', async (request, response) => {
    const { rows } = await gate.query(LIST, []);
    response
      .set('Cache-Control', 'no-store')
      .type('html')
      .send(listPage(assets, localeFor(request), rows));
  });

  app.get('/polls/:poll', async (request, response) => {
    const state = await feed.newest(request.params.poll, PAGE_FRESH_MS);
    if (state === null) throw new Refusal(404, 'unknown_poll', 'There is no poll of this name.');
    show(request, response, state, null);
  });

  app.use(streamRoutes(streams));
  app.use(
    gateRoutes(gate, settings, async (request, response, poll, receipt) => {
      const state = await feed.newest(poll, 0);
      if (state === null) throw new Refusal(404, 'unknown_poll', 'There is no poll of this name.');
      show(request, response, state, receipt);
    }),
  );

  app.use(() => {
    throw new Refusal(404, 'not_found', 'There is nothing at this address.');
  });
  app.use((error, request, response, next) => {
    if (response.headersSent) return next(error);
    const { status, error: name, message, retryAfter, allow } = refusalOf(error, log);
    if (retryAfter !== undefined) response.set('Retry-After', String(retryAfter));
    if (allow !== undefined) response.set('Allow', allow);
    if (status === 401) response.set('WWW-Authenticate', 'Bearer');
    response.status(status).set('Cache-Control', 'no-store');
    const again = retryAfter === undefined ? null : formOf(request);
    if (wantsPage(request)) return response.type('html').send(errorPage(assets, status, message, again));
    return response.json({ error: name, detail: message, retryable: retryAfter !== undefined });
  });
  return app;
}
