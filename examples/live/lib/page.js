// The pages as the server renders them. They are complete without script: counts, form, receipt. The script of public/
// takes the same table over and keeps it up to date.

import { randomUUID } from 'node:crypto';

import { barOf, formatter, localeOf } from '../public/format.js';
import { factsOf as factsOfReceipt, isDone, said } from '../public/said.js';
import { html, toText } from './html.js';

export const LINKS = { static: 'Not live', final: 'Final result' };

export function localeFor(request) {
  const named = typeof request.query.lang === 'string' ? [request.query.lang] : [];
  return localeOf([...named, ...request.acceptsLanguages().filter((language) => language !== '*')]);
}

function layout(assets, title, locale, content) {
  return toText(html`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>${title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="${assets}/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="${assets}/live.css">
<script type="module" src="${assets}/page.js"></script>
</head>
<body data-assets="${assets}" data-locale="${locale}">
${content}
</body>
</html>
`);
}

function rowOf([choice, label, count], total, format) {
  return html`<tr data-choice="${choice}">
<th scope="row"><bdi>${label ?? choice}</bdi></th>
<td class="count">${format.count(count)}</td>
<td class="share"><span>${format.share(count, total)}</span><svg aria-hidden="true" focusable="false"><rect width="${barOf(count, total)}" height="100%"/></svg></td>
</tr>
`;
}

const NOTES = {
  hidden: 'The counts of this poll are hidden until it closes.',
  wide: 'This poll has too many choices to list their counts here.',
};

// A hidden poll has its table too, for the script to fill when the final snapshot comes.
function countsOf(snapshot, format) {
  const note = snapshot === null ? NOTES.hidden : snapshot.choices === null ? NOTES.wide : null;
  return html`${note === null ? '' : html`<p class="note" id="note">${note}</p>`}
<div id="counts"${snapshot === null ? html` hidden` : ''}>
<table${snapshot !== null && snapshot.choices === null ? html` hidden` : ''}>
<caption>Votes counted: <strong id="total">${snapshot?.total ? format.count(snapshot.total) : '–'}</strong></caption>
<thead><tr><th scope="col">Choice</th><th scope="col" class="count">Votes</th><th scope="col" class="share">Share</th></tr></thead>
<tbody id="rows">
${(snapshot?.choices ?? []).map((row) => rowOf(row, snapshot.total, format))}</tbody>
</table>
<template id="row">${rowOf(['', '', '0'], null, format)}</template>
${factsOf(snapshot, format)}
</div>`;
}

function factsOf(snapshot, format) {
  const published = snapshot?.publishedAt ?? '';
  const asOf = published === '' ? '' : format.asOf(new Date(published), new Date());
  return html`<dl class="facts">
<div><dt>As of</dt><dd><time id="as-of"${published === '' ? '' : html` datetime="${published}"`}>${asOf}</time> <span id="age"></span></dd></div>
<div><dt>Revision</dt><dd id="revision">${format.count(String(snapshot?.revision ?? 0))}</dd></div>
<div><dt>Ledger entries</dt><dd id="position">${format.count(snapshot?.includedPosition ?? '0')}</dd></div>
<div><dt>Updates missed</dt><dd id="gaps">${format.count('0')}</dd></div>
</dl>`;
}

function receiptOf(receipt) {
  if (receipt === null) return html`<div id="receipt" class="receipt" role="status" tabindex="-1" hidden></div>`;
  return html`<div id="receipt" class="receipt" role="status" tabindex="-1" data-outcome="${receipt.outcome}">
<p>${said(receipt.outcome)}</p>
<dl>
${factsOfReceipt(receipt).map(
  ([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>
`,
)}</dl>
</div>`;
}

// The form carries the id of the event that it will send, so that sending it twice is one event.
function formOf(state, receipt) {
  if (receipt !== null && isDone(receipt.outcome, state.counting)) return '';
  const over =
    state.closed_at !== null || state.snapshot?.final || (state.closes_at !== null && state.closes_at <= new Date());
  if (over || !state.takes_one_choice || state.choices.length === 0) return '';
  return html`<form id="vote" method="post" action="">
<input type="hidden" name="event_id" value="${randomUUID()}">
<fieldset>
<legend>Your vote</legend>
${state.choices.map(
  ([
    choice,
    label,
  ]) => html`<label class="choice"><input type="radio" name="candidate_id" value="${choice}" required> <bdi>${label ?? choice}</bdi></label>
`,
)}</fieldset>
<button type="submit">Vote</button>
</form>`;
}

function closingOf(state, format) {
  if (state.closed_at !== null)
    return html`Closed <time datetime="${state.closed_at.toISOString()}">${format.day(state.closed_at)}</time>`;
  if (state.closes_at === null) return '';
  return html`Open until <time datetime="${state.closes_at.toISOString()}">${format.day(state.closes_at)}</time>`;
}

export function pollPage({ assets, beatMs }, locale, state, receipt) {
  const format = formatter(locale, 'UTC');
  const { snapshot } = state;
  const title = state.title ?? state.poll;
  const link = snapshot?.final ? 'final' : 'static';
  const content = html`<main data-poll="${state.poll}" data-id="${state.id}" data-counting="${state.counting}" data-final="${snapshot?.final ? 'true' : 'false'}" data-beat-ms="${beatMs}" data-published-at="${snapshot?.publishedAt ?? ''}">
<header>
<p class="link" id="link" data-link="${link}">${LINKS[link]}</p>
<h1><bdi>${title}</bdi></h1>
<p class="closing">${closingOf(state, format)}</p>
</header>
<p id="status" class="quiet" role="status"></p>
<div class="columns">
<section class="result" aria-label="Result">
${countsOf(snapshot, format)}
<noscript><p class="note">Without script this page does not update itself. <a href="">Load it again</a> for the newest counts.</p></noscript>
</section>
<section class="voting" aria-label="Voting">
${receiptOf(receipt)}
${formOf(state, receipt)}
</section>
</div>
</main>`;
  return layout(assets, title, locale, content);
}

export function listPage(assets, locale, polls) {
  const format = formatter(locale, 'UTC');
  const content = html`<main>
<header><h1>Polls</h1></header>
${polls.length === 0 ? html`<p class="note">There is no poll yet.</p>` : ''}
<ul class="polls">
${polls.map(
  (
    poll,
  ) => html`<li><a href="/polls/${encodeURIComponent(poll.poll)}"><bdi>${poll.title ?? poll.poll}</bdi></a> <span>${closingOf(poll, format)}</span></li>
`,
)}</ul>
</main>`;
  return layout(assets, 'Polls', locale, content);
}

// fields: those of a form that got no receipt and is to be sent again as it was, with its event's id.
export function errorPage(assets, status, detail, fields) {
  const again = html`<form class="again" method="post" action="">
${fields?.map(
  ([name, value]) => html`<input type="hidden" name="${name}" value="${value}">
`,
)}<button type="submit">Send the same vote again</button>
</form>`;
  const content = html`<main>
<header><h1>${status === 404 ? 'Not found' : 'Not now'}</h1></header>
<p class="note">${detail}</p>
${fields === null ? html`<p><a href="">Try again</a> · <a href="/">All polls</a></p>` : again}
</main>`;
  return layout(assets, `${status}`, 'en', content);
}
