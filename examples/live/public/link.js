// How a tab gets what the connection hears: from the shared worker, or, where there is none, from a connection of its
// own, which it gives up while it is hidden.

import { Connection } from './connection.js';

const HERE_MS = 30_000;
const HELLO_MS = 20_000; // a worker that has not answered by then does not run

function own(options) {
  let connection = null;
  const update = (show) => {
    if (show && connection === null) {
      connection = new Connection(options.address, { ...options, known: options.known() });
      connection.run();
    } else if (!show && connection !== null) {
      connection.stop();
      connection = null;
    }
  };
  update(document.visibilityState === 'visible');
  document.addEventListener('visibilitychange', () => update(document.visibilityState === 'visible'));
  addEventListener('pagehide', () => update(false));
  addEventListener('pageshow', () => update(document.visibilityState === 'visible'));
}

function shared({ address, known, beatMs, heard }, assets, failed) {
  const worker = new SharedWorker(`${assets}/worker.js`, { type: 'module', name: 'poll_tally live' });
  const watch = () => worker.port.postMessage({ kind: 'watch', address, known: known(), beatMs });
  let state = 'asked';
  const fail = () => {
    if (state !== 'asked') return;
    state = 'failed';
    worker.port.close();
    failed();
  };
  const timer = setTimeout(fail, HELLO_MS);
  worker.onerror = fail;
  worker.port.onmessage = ({ data }) => {
    if (data.kind !== 'hello') return heard(data);
    clearTimeout(timer);
    state = 'here';
    return watch();
  };
  setInterval(() => state === 'here' && worker.port.postMessage({ kind: 'here' }), HERE_MS);
  addEventListener('pagehide', () => state === 'here' && worker.port.postMessage({ kind: 'bye' }));
  addEventListener('pageshow', ({ persisted }) => persisted && state === 'here' && watch());
}

// options: address of the poll, known() -> id of what is shown, beatMs, heard(message) as for Connection.
export function openLink(options, assets) {
  if (typeof SharedWorker === 'undefined') return own(options);
  try {
    return shared(options, assets, () => own(options));
  } catch {
    return own(options); // a browser that knows the name and refuses it
  }
}
