// HTML from templates that escape. Whatever comes from the database or from a request goes through html``.

class Html {
  constructor(text) {
    this.text = text;
  }
}

const ESCAPES = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };

function render(value) {
  if (value instanceof Html) return value.text;
  if (Array.isArray(value)) return value.map(render).join('');
  if (value === null || value === undefined || value === false) return '';
  return String(value).replace(/[&<>"']/g, (character) => ESCAPES[character]);
}

// Values are escaped, in text and in quoted attributes alike; what html`` made itself is not escaped twice.
export function html(strings, ...values) {
  return new Html(strings.reduce((text, part, index) => text + render(values[index - 1]) + part));
}

export function toText(page) {
  if (!(page instanceof Html)) throw new TypeError('not made by html``');
  return page.text;
}
