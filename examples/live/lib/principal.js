// Who votes. A principal is proved by a token that this server signed: NAME.EXPIRY.SIGNATURE, in a cookie or as a
// bearer token. It never comes from a body. A site with a login calls issueToken() after it; see the file `token`.

import { createHmac, randomUUID, timingSafeEqual } from 'node:crypto';

import { isIdentifier } from './identifier.js';

export const COOKIE = 'live_principal';
const GUEST_SECONDS = 30 * 24 * 3600;

function sign(secret, text) {
  return createHmac('sha256', secret).update('poll_tally live 1\n').update(text).digest('base64url');
}

export function issueToken(secret, principal, seconds, now = Date.now()) {
  if (!isIdentifier(principal))
    throw new Error('a principal has 1 to 64 visible ASCII characters, none of them " or \\');
  const text = `${Buffer.from(principal).toString('base64url')}.${Math.floor(now / 1000) + seconds}`;
  return `${text}.${sign(secret, text)}`;
}

// The principal of a token, or null: forged, expired or malformed.
export function readToken(secret, token, now = Date.now()) {
  const match = /^(([\w-]{1,88})\.(\d{1,12}))\.([\w-]{43})$/.exec(token ?? '');
  if (match === null) return null;
  const [, text, name, expiry, signature] = match;
  if (!timingSafeEqual(Buffer.from(sign(secret, text)), Buffer.from(signature))) return null;
  if (Number(expiry) * 1000 <= now) return null;
  return Buffer.from(name, 'base64url').toString();
}

function cookieOf(request) {
  for (const part of (request.get('Cookie') ?? '').split(';')) {
    const [name, value] = part.trim().split('=', 2);
    if (name === COOKIE) return value;
  }
  return undefined;
}

// { principal, by: 'bearer' | 'cookie' }, or null. A request that brings a bearer token is judged by that alone.
export function authenticate(secret, request) {
  const header = request.get('Authorization');
  const by = header === undefined ? 'cookie' : 'bearer';
  const token = by === 'cookie' ? cookieOf(request) : /^Bearer +(\S+)$/i.exec(header)?.[1];
  const principal = readToken(secret, token);
  return principal === null ? null : { principal, by };
}

// A browser sends the cookie with requests that other sites made it send. Those say so, in one header or the other.
export function isCrossSite(request) {
  const site = request.get('Sec-Fetch-Site');
  if (site !== undefined && site !== 'same-origin' && site !== 'none') return true;
  const origin = request.get('Origin');
  if (origin === undefined) return false;
  return !URL.canParse(origin) || new URL(origin).host !== request.host;
}

// A visitor without a principal becomes a guest.
export function welcome(settings, request, response) {
  if (!settings.guests || readToken(settings.secret, cookieOf(request)) !== null) return;
  response.cookie(COOKIE, issueToken(settings.secret, `guest-${randomUUID()}`, GUEST_SECONDS), {
    httpOnly: true,
    sameSite: 'lax',
    secure: settings.secureCookies,
    maxAge: GUEST_SECONDS * 1000,
  });
}
