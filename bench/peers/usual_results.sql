-- The result where a choice has one row: no labels, no shares, and writers of a choice queue for its row.
SELECT choice, count FROM usual.count WHERE poll = '1';
