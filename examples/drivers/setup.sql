-- The poll that the examples send to and watch: psql -v poll=drivers -f setup.sql
-- With one lane the ledger has one order, so that every run of the examples prints the same positions.
SELECT poll_tally.create_poll(:'poll', '{soup,salad,pasta}', counting => 'every', max_choices => 3, max_weight => 10,
                              max_lanes => 1);
