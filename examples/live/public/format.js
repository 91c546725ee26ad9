// Numbers, shares and times in the viewer's language. The server and the page both use it, so that what is rendered
// first and what replaces it look alike.

const TODAY_MS = 12 * 3600 * 1000;
const DIGITS = /^-?\d+$/;

// The first of the wanted languages that Intl knows.
export function localeOf(wanted) {
  for (const language of wanted) {
    try {
      const [locale] = Intl.NumberFormat.supportedLocalesOf([language]);
      if (locale !== undefined) return locale;
    } catch {
      // A language tag that is none: the next one.
    }
  }
  return 'en';
}

// Tenths of a percent, rounded half up; exact for counts beyond 2^53. null where a share makes no sense.
export function tenthsOf(count, total) {
  if (total === null || !DIGITS.test(total) || !DIGITS.test(count)) return null;
  const [part, all] = [BigInt(count), BigInt(total)];
  if (all <= 0n || part < 0n) return null;
  return Number((part * 2000n + all) / (2n * all));
}

// How long a bar is, as an SVG length.
export function barOf(count, total) {
  const tenths = tenthsOf(count, total);
  return tenths === null ? '0%' : `${Math.min(tenths, 1000) / 10}%`;
}

export function formatter(locale, timeZone) {
  const number = new Intl.NumberFormat(locale);
  const percent = new Intl.NumberFormat(locale, {
    style: 'percent',
    minimumFractionDigits: 1,
    maximumFractionDigits: 1,
  });
  // As the language writes a time: 00:03:04, and not 0:03:04. Another zone than the viewer's is named.
  const named = timeZone === 'UTC';
  const time = new Intl.DateTimeFormat(locale, { timeStyle: named ? 'long' : 'medium', timeZone });
  const day = new Intl.DateTimeFormat(locale, {
    dateStyle: 'medium',
    timeStyle: named ? 'long' : 'short',
    timeZone,
  });
  return {
    count: (text) => number.format(BigInt(text)),
    share: (count, total) => {
      const tenths = tenthsOf(count, total);
      return tenths === null ? '–' : percent.format(tenths / 1000);
    },
    day: (date) => day.format(date),
    // The time of day is enough for what is not long past.
    asOf: (date, now) => (Math.abs(now - date) < TODAY_MS ? time : day).format(date),
    age: (seconds) => {
      if (seconds < 60) return `${number.format(seconds)} s ago`;
      if (seconds < 3600) return `${number.format(Math.floor(seconds / 60))} min ago`;
      return `${number.format(Math.floor(seconds / 3600))} h ago`;
    },
  };
}
