// A page is interrupted in each phase and in each way; the one that is opened after it shows the banner,
// Resume continues the run, nothing is done twice.
import assert from "node:assert/strict";
import { after, before, test as anyTest } from "node:test";

import { killPage, openPage, press, Profile, signalPages, waitFor } from "./browser.mjs";
import { TestServer, words, WORDS } from "./server.mjs";

const test = (name, run) => anyTest(name, { timeout: 60_000 }, run);

let server;
let profile;
before(async () => {
  server = await TestServer.start();
  profile = new Profile();
  await profile.open();
});
after(async () => {
  await profile.remove();
  await server.stop();
});

let chats = 0;
const url = (chat, more = {}) => `${server.address}/page.html?${new URLSearchParams({ chat, ...more })}`;

/** Begins a run of the script in a new chat and page. */
async function begin(script, more = {}) {
  const chat = `chat${++chats}`;
  await server.makeBox(chat);
  const opened = await openPage(profile.browser, url(chat, { send: script, ...more }));
  return { chat, ...opened };
}

const freeze = async ({ page }) => {
  const session = await page.createCDPSession();
  await session.send("Page.setWebLifecycleState", { state: "frozen" });
};

/** The ways in which a page ends; none of them runs its unload handlers, but the first two hide it before. */
const WAYS = {
  "frozen, then discarded": async (opened) => {
    await freeze(opened);
    await killPage(opened.page);
  },
  "renderer killed": ({ page }) => killPage(page),
  "target closed without unload": ({ page }) => page.close({ runBeforeUnload: false }),
  "browser killed": async () => {
    await profile.kill();
    await profile.open();
  },
};

/** The user comes back: the banner, Resume, the end of the run. */
async function comeBack(chat, more = {}) {
  const { page } = await openPage(profile.browser, url(chat, more));
  await press(page, "Resume");
  await waitFor(page, () => run.getState().status === "completed");
  const key = `run_checkpoint_${chat}`;
  assert.equal(await page.evaluate((name) => localStorage.getItem(name), key), null, "the checkpoint is cleared");
  const messages = await page.evaluate(() => run.getState().messages);
  const events = await page.evaluate(() => window.events.map((event) => event.type));
  await page.close();
  return { messages, events };
}

for (const [way, interrupt] of Object.entries(WAYS)) {
  test(`while an answer streams: ${way}`, async () => {
    server.wordMs = 5;
    server.stopAtWord = 60;
    const opened = await begin("stream");
    await waitFor(opened.page, () => run.getState().text.endsWith("w59 "));
    // The periodic save has everything within its interval; the frozen page is tested without it below.
    await waitFor(opened.page, (key) => localStorage.getItem(key)?.includes("w59 "), `run_checkpoint_${opened.chat}`);
    await opened.page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 50)));
    await interrupt(opened);
    server.stopAtWord = Infinity;
    const { messages, events } = await comeBack(opened.chat);
    const summary = server.chat(opened.chat).requests.at(-1).messages.at(-1).content;
    assert.match(summary, /connection dropped while you were generating a response \(round 1\)/);
    const partial = /> (w0 .*)/.exec(summary)[1];
    assert.equal(partial.trim(), words(0, 60).trim(), "no word was lost");
    assert.equal(messages.at(-1).content, words(60, WORDS), "the answer continues behind it");
    assert.deepEqual(events.filter((type) => type !== "warning"), ["interrupted", "resumed", "resume_ended"]);
  });

  test(`while a tool runs: ${way}`, async () => {
    server.holdMs = 60_000;
    const opened = await begin("tools");
    await until(async () => (await server.effects(opened.chat)).length === 1);
    await interrupt(opened);
    server.holdMs = 0;
    const { messages } = await comeBack(opened.chat);
    const summary = server.chat(opened.chat).requests.at(-1).messages.at(-1).content;
    assert.match(summary, /- append with line = "one"/);
    assert.match(summary, / M work\.txt/);
    assert.equal(messages.at(-1).content, "The line is there.");
    assert.deepEqual(await server.effects(opened.chat), ["one"], "done once");
  });

  test(`while a coder works: ${way}`, async () => {
    const opened = await begin("delegate", { coderHangs: "1" });
    await waitFor(opened.page, () => window.codedLine === "one");
    await waitFor(opened.page, (key) => localStorage.getItem(key)?.includes("Open tasks"), `run_checkpoint_${opened.chat}`);
    await opened.page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 50)));
    await interrupt(opened);
    const { messages } = await comeBack(opened.chat);
    const summary = server.chat(opened.chat).requests.find(({ messages: sent }) => sent.at(-1).content.startsWith("[SESSION_RESUMED]"));
    assert.match(summary.messages.at(-1).content, /Last known Coder state:\n> \[CODER_STATE\]\n> Plan: Write the lines\n> Open tasks:\n> - two/);
    assert.equal(messages.at(-1).content, "The coder has finished.");
    assert.deepEqual(await server.effects(opened.chat), ["one", "two"], "each line once");
  });
}

test("hidden and frozen with the periodic save switched off: not a byte of the answer is lost", async () => {
  server.wordMs = 2;
  server.stopAtWord = 40;
  const opened = await begin("stream", { flushEveryMs: "3600000" });
  await waitFor(opened.page, () => run.getState().text.endsWith("w39 "));
  await freeze(opened);
  // A system freezes a page seconds before it kills it; what the page wrote last reaches the disk meanwhile.
  await new Promise((resolve) => setTimeout(resolve, 2000));
  await killPage(opened.page);
  server.stopAtWord = Infinity;
  await comeBack(opened.chat);
  const summary = server.chat(opened.chat).requests.at(-1).messages.at(-1).content;
  assert.ok(summary.includes(`> ${words(0, 40)}\n`), summary);
});

test("a page that only slept (SIGSTOP) continues by itself", async () => {
  server.wordMs = 10;
  server.stopAtWord = Infinity;
  const opened = await begin("stream");
  await waitFor(opened.page, () => run.getState().text.includes("w20 "));
  await signalPages(profile.browser, "SIGSTOP");
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  await signalPages(profile.browser, "SIGCONT");
  await waitFor(opened.page, () => run.getState().status === "completed");
  assert.equal((await opened.page.evaluate(() => run.getState().messages)).at(-1).content, words(0, WORDS));
  await opened.page.close();
});

test("a page whose stream died while it was hidden offers Resume without a reload", async () => {
  server.wordMs = 5;
  server.stopAtWord = 30;
  const opened = await begin("stream");
  await waitFor(opened.page, () => run.getState().text.endsWith("w29 "));
  const session = await opened.page.createCDPSession();
  await session.send("Page.setWebLifecycleState", { state: "frozen" });
  server.http.closeAllConnections();
  server.stopAtWord = Infinity;
  await session.send("Page.setWebLifecycleState", { state: "active" });
  // Not a click: the driver waits for a frame, and a page that was frozen draws none.
  await waitFor(opened.page, () => run.getState().recovery.status === "offered");
  await opened.page.evaluate(() => void run.recovery.resume());
  await waitFor(opened.page, () => run.getState().status === "completed");
  assert.equal((await opened.page.evaluate(() => run.getState().messages)).at(-1).content, words(30, WORDS));
  await opened.page.close();
});

test("a page that is hidden in one round, and whose connection dies in the next: offered without a reload, nothing lost", async () => {
  Object.assign(server, { wordMs: 2, stopAtWord: 30, isHeld: true });
  const { chat, page } = await begin("read, then stream");
  await waitFor(page, () => run.getState().text === "I read first. ");
  const other = await profile.browser.newPage();
  await other.bringToFront();
  await waitFor(page, () => document.visibilityState === "hidden");
  server.isHeld = false;
  // No event of the page tells of this round: it is hidden, and stays so.
  await waitFor(page, () => run.getState().round === 2 && run.getState().text.endsWith("w29 "));
  server.http.closeAllConnections();
  await waitFor(page, () => run.getState().status !== "running");
  assert.deepEqual(await page.evaluate(() => [document.visibilityState, run.getState().status, run.getState().recovery.status]), ["hidden", "interrupted", "offered"]);
  server.stopAtWord = Infinity;
  await page.bringToFront();
  await other.close();
  await press(page, "Resume");
  await waitFor(page, () => run.getState().status === "completed");
  const summary = server.chat(chat).requests.at(-1).messages.at(-1).content;
  assert.ok(summary.includes(`> ${words(0, 30)}\n`), summary);
  assert.equal((await page.evaluate(() => run.getState().messages)).at(-1).content, words(30, WORDS));
  await page.close();
});

async function until(isSo) {
  const end = Date.now() + 20_000;
  while (!(await isSo())) {
    assert.ok(Date.now() < end, "it did not happen within 20 s");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
