// The same page in Firefox, where it is installed: a tab that closes, a killed browser, two tabs, damaged and full storage.
import assert from "node:assert/strict";
import { after, before, test as anyTest } from "node:test";

import { firefoxPath, openPage, press, Profile, waitFor } from "./browser.mjs";
import { TestServer, words, WORDS } from "./server.mjs";

const isInstalled = firefoxPath() !== null;
if (!isInstalled) console.log("# Firefox is left out: it is not installed (apt-get install firefox-esr, or name it in FIREFOX).");
const test = (name, run) => anyTest(`Firefox: ${name}`, { timeout: 60_000, skip: !isInstalled }, run);

let server;
let profile;
before(async () => {
  if (!isInstalled) return;
  server = await TestServer.start();
  profile = new Profile("firefox");
  await profile.open();
});
after(async () => {
  await profile?.remove();
  await server?.stop();
});

let chats = 0;
const open = async (chat, more = {}) =>
  (await openPage(profile.browser, `${server.address}/page.html?${new URLSearchParams({ chat, ...more })}`)).page;

/** A run that hangs in its stream behind `w29`. */
async function hanging(more = {}) {
  server.wordMs = 5;
  server.stopAtWord = 30;
  const chat = `firefox${++chats}`;
  await server.makeBox(chat);
  const page = await open(chat, { send: "stream", ...more });
  await waitFor(page, () => run.getState().text.endsWith("w29 "));
  return { chat, page };
}

async function comeBack(page, chat) {
  server.stopAtWord = Infinity;
  await press(page, "Resume");
  await waitFor(page, () => run.getState().status === "completed");
  const summary = server.chat(chat).requests.at(-1).messages.at(-1).content;
  assert.ok(summary.includes(`> ${words(0, 30)}\n`), summary);
  assert.equal((await page.evaluate(() => run.getState().messages)).at(-1).content, words(30, WORDS));
  await page.close();
}

test("a tab that closes, with the periodic save switched off: not a byte is lost", async () => {
  const { chat, page } = await hanging({ flushEveryMs: "3600000" });
  await page.goto("about:blank");
  await page.close({ runBeforeUnload: false });
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
    await waitFor(page, (key) => localStorage.getItem(key)?.includes("w29 "), `run_checkpoint_${chat}`);
    await page.close({ runBeforeUnload: false });
    await comeBack(second, chat);
  });
}

test("damaged storage is set aside, and the next run works", async () => {
  const chat = `firefox${++chats}`;
  await server.makeBox(chat);
  const page = await open(chat);
  await page.evaluate(async (key) => {
    await window.opened;
    localStorage.setItem(key, "{");
  }, `run_checkpoint_${chat}`);
  await page.reload();
  const found = await page.evaluate(async () => {
    await window.opened;
    return run.getState().recovery.reason;
  });
  assert.equal(found, "checkpoint_damaged");
  assert.equal(await page.evaluate(() => run.send("tools")), "completed");
  assert.deepEqual(await server.effects(chat), ["one"]);
  await page.close();
});

test("localStorage is full: IndexedDB has the run", async () => {
  const chat = `firefox${++chats}`;
  await server.makeBox(chat);
  const page = await open(chat);
  server.stopAtWord = 30;
  await page.evaluate(async () => {
    await window.opened;
    for (let size = 1024 * 1024; size >= 1; size = Math.floor(size / 2)) {
      try {
        for (;;) localStorage.setItem(`fill_${localStorage.length}`, "x".repeat(size));
      } catch {
        // Full for this size.
      }
    }
    void run.send("stream");
  });
  await waitFor(page, () => run.getState().text.endsWith("w29 ") && run.getState().storageProblems.includes("local_storage_full"));
  await page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 500)));
  await page.close({ runBeforeUnload: false });
  const back = await open(chat);
  await back.evaluate(() => localStorage.clear());
  await comeBack(back, chat);
});

test("the browser is killed: at most one second of the answer is lost", async () => {
  const { chat, page } = await hanging();
  await page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 1_000)));
  await profile.kill();
  await profile.open();
  await comeBack(await open(chat), chat);
});
