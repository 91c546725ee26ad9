// What a person reads about an outcome; the receipt beside it has the outcome's own name. For server and page.

const SAID = {
  accepted: 'Your vote is counted.',
  duplicate: 'Your vote is counted. It came more than once and counts once.',
  already_responded: 'You have voted already. This vote was not counted.',
  closed: 'The poll is closed. This vote was not counted.',
  not_open: 'The poll is not open yet. This vote was not counted.',
  not_eligible: 'You are not on the roll of this poll. This vote was not counted.',
  conflict: 'Another vote came under the same id. That one stays; this one was not counted.',
};

// Whether whoever got this answer has no more to vote for in the poll.
export function isDone(outcome, counting) {
  return counting === 'once' && ['accepted', 'duplicate', 'already_responded'].includes(outcome);
}

export function said(outcome) {
  return SAID[outcome] ?? 'This vote was not counted.';
}

// Name and value of what a receipt shows, in order.
export function factsOf({ outcome, event_id, position, accepted_at, detail }) {
  return [
    ['Outcome', outcome],
    ['Event', event_id],
    ['Position', position],
    ['Counted at', accepted_at],
    ['Detail', detail],
  ].filter(([, value]) => value !== undefined && value !== null);
}
