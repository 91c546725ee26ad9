-- The polls of the demo.

SELECT poll_tally.create_poll('encore', title => 'Which song should close the show?',
                              closes_at => now() + interval '15 minutes', publish_every => '500 milliseconds');
SELECT poll_tally.add_choice('encore', 'harbour', 'Harbour Lights');
SELECT poll_tally.add_choice('encore', 'paper', 'Paper Planes over Lisbon');
SELECT poll_tally.add_choice('encore', 'north', 'North by Night Train');
SELECT poll_tally.add_choice('encore', 'rain', 'Rain Delay');

SELECT poll_tally.create_poll('prize', title => 'Who gets the audience prize?', hidden_until_close => true,
                              closes_at => now() + interval '5 minutes');
SELECT poll_tally.add_choice('prize', 'ida', 'Ida and the Tides');
SELECT poll_tally.add_choice('prize', 'foxes', 'Foxes in the Attic');
SELECT poll_tally.add_choice('prize', 'quartet', 'The Late Quartet');
