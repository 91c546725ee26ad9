// Which HTTP status each outcome gets. The same table is in docs/reference.md and, as SQL, in postgrest.sql.

export const STATUS_OF = Object.freeze({
  accepted: 201,
  duplicate: 200,
  invalid: 400,
  not_eligible: 403,
  unknown_poll: 404,
  unknown_choice: 404,
  not_open: 409,
  already_responded: 409,
  limit_reached: 409,
  closed: 410,
  expired: 410,
  conflict: 422,
  source_conflict: 422,
});

// Faults of the server and of the way to it, by SQLSTATE: the event may or may not be counted, so that the sender is to
// send the same event again. Without an SQLSTATE the connection was refused, cut, or too slow.
const AGAIN = [/^08/, /^53/, /^57P0[1-5]$/, /^57014$/, /^55P03$/, /^25006$/, /^40001$/, /^40P01$/];

export function isAway(error) {
  const state = /^[0-9A-Z]{5}$/.test(error.code ?? '') && error.severity !== undefined ? error.code : null;
  if (state !== null) return AGAIN.some((pattern) => pattern.test(state));
  return error.syscall !== undefined || /timeout|terminated|not queryable|ended|closed/i.test(error.message);
}
