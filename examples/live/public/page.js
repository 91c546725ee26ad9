// The script of a poll's page. Without it the page is complete, and stands still.

import { openLink } from './link.js';
import { Viewer } from './rule.js';
import { localTimes, View } from './view.js';
import { Voting } from './vote.js';

function start(main, assets, locale) {
  const { poll, id, counting, beatMs } = main.dataset;
  const form = document.getElementById('vote');
  if (form !== null) new Voting(form, poll, counting);
  if (main.dataset.final === 'true') return;

  const view = new View(main, locale);
  const viewer = new Viewer(id);
  const heard = (message) => {
    if (message.kind === 'clock') view.clock(message.offset);
    else if (message.kind === 'link') view.link(message.link);
    else if (viewer.apply(message.snapshot)) view.show(message.snapshot, viewer.gaps);
  };
  const address = `/polls/${encodeURIComponent(poll)}`;
  openLink({ address, known: () => main.dataset.id, beatMs: Number(beatMs), heard }, assets);
}

const { assets, locale } = document.body.dataset;
const main = document.querySelector('main[data-poll]');
localTimes(locale);
if (main !== null) start(main, assets, locale);
