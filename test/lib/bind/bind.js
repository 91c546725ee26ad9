'use strict';
// Binds every argument of every function in the view calls with node-postgres, and reads every column in reads as text.
// Prints how many calls were found and how many values were read.
//
// usage: node bind.js FOLDER        FOLDER has node_modules

const pg = require(require.resolve('pg', { paths: [process.argv[2]] }));

const VALUES = {
  'text': "x'", 'integer': 1, 'bigint': 2n ** 40n, 'boolean': true, 'interval': '1 day', 'jsonb': { a: '"\\' },
  'timestamp with time zone': new Date(), 'text[]': ["x'", '{,}'], 'bigint[]': [1, 2n], 'jsonb[]': [{ a: '"\\' }, null],
  'timestamp with time zone[]': [new Date(), null], 'regrole': 'postgres', 'poll_tally.tally': { a: 1 },
  'poll_tally.event_position': '0/1',
};

async function main() {
  const client = new pg.Client();
  let bound = 0;
  let read = 0;
  await client.connect();
  for (const { name, names, types } of (await client.query('SELECT name, names, types FROM calls')).rows) {
    const list = names.map((argument, i) => `${argument} => $${i + 1}`).join(', ');
    await client.query(`EXPLAIN SELECT poll_tally.${name}(${list})`, types.map((type) => VALUES[type]));
    bound += 1;
  }
  const types = { getTypeParser: () => (value) => value };
  for (const { source } of (await client.query('SELECT source FROM reads')).rows) {
    const { rows } = await client.query({ text: `SELECT * FROM poll_tally.${source}`, rowMode: 'array', types });
    read += rows.flat().filter((value) => typeof value === 'string').length;
  }
  await client.end();
  console.log(`bound=${bound}\nread=${read}`);
}

main();
