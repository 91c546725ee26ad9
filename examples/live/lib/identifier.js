// Names of polls, choices, events and principals, as poll_tally has them: compared byte by byte.

const IDENTIFIER = /^[\x21\x23-\x5b\x5d-\x7e]{1,64}$/;

export function isIdentifier(text) {
  return IDENTIFIER.test(text);
}
