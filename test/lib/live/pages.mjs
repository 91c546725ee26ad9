// Headless Chromium and what its pages show.

import { readFileSync } from 'node:fs';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';

import { is, waited } from './check.mjs';
import { packages } from './site.mjs';

const { chromium } = packages('playwright-core');
const AXE = readFileSync(packages.resolve('axe-core/axe.min.js'), 'utf8');
const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--disable-dev-shm-usage',
];

export const complaints = []; // of all pages: uncaught errors, dialogs, violations of the policy

export async function openBrowser() {
  const folder = mkdtempSync(`${tmpdir()}/chromium.`);
  const environment = { ...process.env, HOME: folder, XDG_CONFIG_HOME: folder, XDG_CACHE_HOME: folder };
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: FLAGS, env: environment });
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  return browser;
}

// One visitor: tabs of one context share cookies, storage and the shared worker.
export class Visitor {
  static async of(browser, options = {}, script) {
    const visitor = new Visitor();
    visitor.context = await browser.newContext({ viewport: { width: 1100, height: 640 }, locale: 'en-GB', ...options });
    visitor.context.setDefaultTimeout(180_000); // a busy machine
    if (script !== undefined) await visitor.context.addInitScript(script);
    return visitor;
  }

  async open(address) {
    const page = await this.context.newPage();
    page.on('pageerror', (error) => complaints.push(`error: ${error.message}`));
    page.on('dialog', (dialog) => {
      complaints.push(`dialog: ${dialog.message()}`);
      dialog.dismiss();
    });
    page.on('console', (message) => {
      if (/Content.Security.Policy/i.test(message.text())) complaints.push(message.text());
    });
    const response = await page.goto(address);
    return Object.assign(new Tab(), { page, status: response.status() });
  }

  close() {
    return this.context.close();
  }
}

// What a page shows, as text.
class Tab {
  text(selector) {
    return this.page.locator(selector).innerText();
  }

  link() {
    return this.page.locator('#link').getAttribute('data-link');
  }

  id() {
    return this.page.locator('main').getAttribute('data-id');
  }

  receipt() {
    return this.page.locator('#receipt').getAttribute('data-outcome');
  }

  async fact(name) {
    return this.page.locator(`#receipt dt:text-is("${name}") + dd`).innerText();
  }

  // { choice: [label, votes, share] }, in the order of the rows
  rows() {
    return this.page
      .locator('#rows tr')
      .evaluateAll((rows) =>
        rows.map((row) => [
          row.dataset.choice,
          ...['bdi', '.count', '.share span'].map((part) => row.querySelector(part).textContent),
        ]),
      );
  }

  async counts() {
    return Object.fromEntries(
      (await this.rows()).map(([choice, , count]) => [choice, Number(count.replace(/\D/g, ''))]),
    );
  }

  async count(choice) {
    return (await this.counts())[choice];
  }

  async vote(label) {
    await this.page.getByLabel(label).check();
    await this.page.getByRole('button', { name: 'Vote' }).click();
  }

  // Waits: the page shows this snapshot, with these counts.
  async shows(id, counts, name) {
    await waited(async () => (await this.id()) === id, `${name}: shows ${id.split(':')[1]}`);
    is(await this.counts(), counts, `${name}: its counts`);
  }

  linkIs(link, name) {
    return waited(async () => (await this.link()) === link, `${name}: ${link}`);
  }

  // A check by axe-core, all of its rules.
  async accessible(name) {
    const violations = await this.page.evaluate(`(async () => {
      if (typeof axe === 'undefined') { ${AXE} }
      const { violations, passes } = await axe.run();
      return [passes.length, violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.html).join(' '))];
    })()`);
    is(violations[1], [], `${name}: axe finds no violation`);
    return violations[0];
  }

  // How much wider than the window the page is.
  overflow() {
    return this.page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  }
}
