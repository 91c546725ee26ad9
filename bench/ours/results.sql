-- The live result of a poll: labels, counts, shares.
SELECT choice, label, count, share FROM poll_tally.results WHERE poll = '1';
