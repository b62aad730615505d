// The same page in WebKit, where WebKitGTK's driver is installed: a tab that closes, two tabs, a connection that dies,
// damaged storage. A killed browser is not tested here: a session of the driver keeps its storage in memory.
import assert from "node:assert/strict";
import { after, before, test as anyTest } from "node:test";

import { TestServer, words, WORDS } from "./server.mjs";
import { WebKit, webkitPaths } from "./webkit.mjs";

const isInstalled = webkitPaths() !== null;
if (!isInstalled) console.log("# WebKit is left out: it is not installed (apt-get install webkit2gtk-driver xvfb).");
const test = (name, run) => anyTest(`WebKit: ${name}`, { timeout: 60_000, skip: !isInstalled }, run);

let server;
let webkit;
before(async () => {
  if (!isInstalled) return;
  server = await TestServer.start();
  webkit = await WebKit.start();
});
after(async () => {
  await webkit?.stop();
  await server?.stop();
});

let chats = 0;
const open = (chat, more = {}) => webkit.open(`${server.address}/page.html?${new URLSearchParams({ chat, ...more })}`);

/** A run that hangs in its stream behind `w29`. */
async function hanging(more = {}) {
  server.wordMs = 5;
  server.stopAtWord = 30;
  const chat = `webkit${++chats}`;
  await server.makeBox(chat);
  const page = await open(chat, { send: "stream", ...more });
  await page.waitFor(() => run.getState().text.endsWith("w29 "));
  return { chat, page };
}

async function comeBack(page, chat) {
  server.stopAtWord = Infinity;
  await page.press("Resume");
  await page.waitFor(() => run.getState().status === "completed");
  const summary = server.chat(chat).requests.at(-1).messages.at(-1).content;
  assert.ok(summary.includes(`> ${words(0, 30)}\n`), summary);
  assert.equal((await page.evaluate(() => run.getState().messages)).at(-1).content, words(30, WORDS));
  await page.close();
}

test("a page that is left, with the periodic save switched off: not a byte is lost", async () => {
  const { chat, page } = await hanging({ flushEveryMs: "3600000" });
  await page.goto(`${server.address}/blank.html`);
  await page.waitFor((key) => localStorage.getItem(key)?.includes("w29 "), `run_checkpoint_${chat}`);
  await page.close();
  await comeBack(await open(chat), chat);
});

for (const [kind, more] of [["Web Locks", {}], ["a lease", { noLocks: "1" }]]) {
  test(`two tabs (${kind}): one owns the run, the other is offered it when it closes`, async () => {
    const { chat, page } = await hanging(more);
    const second = await open(chat, more);
    const found = await second.evaluate(async () => {
      await window.opened;
      return run.getState().recovery.reason;
    });
    assert.equal(found, "owned_by_other_tab");
    await page.waitFor((key) => localStorage.getItem(key)?.includes("w29 "), `run_checkpoint_${chat}`);
    await page.close();
    await comeBack(second, chat);
  });
}

test("a connection that dies while the page is hidden: offered without a reload", async () => {
  const { chat, page } = await hanging();
  // The hidden page's own event: a page that the driver looks at is in front.
  await page.evaluate(() => {
    Object.defineProperty(document, "visibilityState", { get: () => "hidden" });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  server.http.closeAllConnections();
  await page.waitFor(() => run.getState().recovery.status === "offered");
  await comeBack(page, chat);
});

test("damaged storage is set aside, and the next run works", async () => {
  const chat = `webkit${++chats}`;
  await server.makeBox(chat);
  const page = await open(chat);
  await page.evaluate(async (key) => {
    await window.opened;
    localStorage.setItem(key, "{");
  }, `run_checkpoint_${chat}`);
  await page.goto(`${server.address}/page.html?${new URLSearchParams({ chat, again: "1" })}`);
  const found = await page.evaluate(async () => {
    await window.opened;
    return run.getState().recovery.reason;
  });
  assert.equal(found, "checkpoint_damaged");
  assert.equal(await page.evaluate(() => run.send("tools")), "completed");
  assert.deepEqual(await server.effects(chat), ["one"]);
  await page.close();
});
