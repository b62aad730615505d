// Runs tests one after the other on one server and one browser, and says how long each took.
import { mkdirSync } from "node:fs";
import { Front } from "./front.mjs";
import { launch, Pages } from "./browser.mjs";
import { Server } from "./server.mjs";

const TEST_TIMEOUT_MS = 60_000;
const LONG_TIMEOUT_MS = 600_000;
/** What all tests together may take of `make test`. */
const BUDGET_S = 120;
const tests = [];
const preparations = [];

export function test(name, run) {
  tests.push({ name, run, isLong: false });
}

/** A long variant: only in `npm run soak`. */
export function soak(name, run) {
  tests.push({ name, run, isLong: true });
}

/** Done once, before the first test; `isChosen` says whether one whose name has a part in it is run. */
export function before(prepare) {
  preparations.push(prepare);
}

/** Whether the binary has the app in it; else the built one is put in front of it. */
export async function hasApp(address) {
  return (await (await fetch(`${address}/`)).text()).includes('id="app"');
}

function limited(promise, { name, isLong }) {
  const ms = isLong ? LONG_TIMEOUT_MS : TEST_TIMEOUT_MS;
  let timer;
  const late = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Error(`${name} took longer than ${ms / 1000} s`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** `filter`: a part of the names that are run; `isSoak`: the long tests, and no others. */
export async function runAll(filter, { isSoak = false } = {}) {
  const began = Date.now();
  const server = new Server();
  await server.start();
  const front = new Front(server.address, { serveApp: !(await hasApp(server.address)) });
  await front.listen();
  const browser = await launch();
  const pages = new Pages(browser, front.address, server.token);
  const failed = [];
  const leftOut = [];
  const chosen = tests.filter(({ name, isLong }) => isLong === isSoak && (!filter || name.includes(filter)));
  try {
    const isChosen = (part) => chosen.some(({ name }) => name.includes(part));
    for (const prepare of preparations) await prepare({ server, isChosen });
    for (const one of chosen) {
      const { name, run } = one;
      const at = Date.now();
      try {
        let left = null;
        const skip = (reason) => {
          left = reason;
        };
        await limited(run({ server, front, pages, skip }), one);
        if (left) leftOut.push(name);
        console.log(left ? `LEFT OUT: ${name}: ${left}` : `ok    ${((Date.now() - at) / 1000).toFixed(1)} s  ${name}`);
      } catch (error) {
        failed.push(name);
        console.log(`FAIL  ${((Date.now() - at) / 1000).toFixed(1)} s  ${name}\n${error.stack}`);
        await picture(browser, name);
      } finally {
        await pages.closeAll();
      }
    }
  } finally {
    await browser.close();
    await front.close();
    await server.remove();
  }
  const seconds = (Date.now() - began) / 1000;
  console.log(`${chosen.length - failed.length - leftOut.length} of ${chosen.length} passed, ${leftOut.length} left out, in ${seconds.toFixed(0)} s${isSoak || filter ? "" : ` (budget ${BUDGET_S} s)`}`);
  if (!isSoak && !filter && seconds > BUDGET_S) console.log(`OVER BUDGET: the tests took ${(seconds - BUDGET_S).toFixed(0)} s longer than their ${BUDGET_S} s; make some shorter, or soak tests`);
  return failed.length === 0 && chosen.length > 0;
}

async function picture(browser, name) {
  const folder = process.env["PITON_E2E_PICTURES"];
  if (!folder) return;
  mkdirSync(folder, { recursive: true });
  let count = 0;
  for (const context of browser.contexts()) for (const page of context.pages()) await page.screenshot({ path: `${folder}/failed-${name.replace(/\W+/g, "-").slice(0, 60)}-${count++}.png` }).catch(() => {});
}
