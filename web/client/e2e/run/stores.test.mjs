// What a page writes last, by each of its last events alone; stores that fail; and a resume that meets trouble.
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test as anyTest } from "node:test";

import { killPage, openPage, press, Profile, waitFor } from "./browser.mjs";
import { LARGE_PIECES, TestServer, words, WORDS } from "./server.mjs";

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
const newChat = async () => {
  const chat = `chat${++chats}`;
  await server.makeBox(chat);
  return chat;
};
const open = async (chat, more = {}) =>
  (await openPage(profile.browser, `${server.address}/page.html?${new URLSearchParams({ chat, ...more })}`)).page;
const keyOf = (chat) => `run_checkpoint_${chat}`;
const bannerOf = (page) => page.evaluate(() => document.querySelector("piton-resume-banner").shadowRoot.textContent);
const summaryOf = (chat) => server.chat(chat).requests.at(-1).messages.at(-1).content;

/** A run that hangs in its stream behind `w19`. */
async function hanging(more = {}) {
  Object.assign(server, { wordMs: 2, stopAtWord: 20, holdMs: 0 });
  const chat = await newChat();
  const page = await open(chat, { send: "stream", ...more });
  await waitFor(page, () => run.getState().text.endsWith("w19 "));
  return { chat, page };
}

/** One that was interrupted there. */
async function interrupted() {
  const { chat, page } = await hanging();
  await waitFor(page, (key) => localStorage.getItem(key)?.includes("w19"), keyOf(chat));
  await page.close({ runBeforeUnload: false });
  server.stopAtWord = Infinity;
  return chat;
}

async function comeBack(page) {
  server.stopAtWord = Infinity;
  await press(page, "Resume");
  await waitFor(page, () => run.getState().status === "completed");
  await page.close();
}

const NEVER = { flushEveryMs: "3600000" };
for (const type of ["pagehide", "visibilitychange"]) {
  test(`${type} alone saves the answer: the page is left`, async () => {
    const { chat, page } = await hanging({ ...NEVER, only: type });
    await page.goto(`${server.address}/blank.html`);
    // The browser may run what a page does last behind the next one's first paint.
    await waitFor(page, (key) => localStorage.getItem(key)?.includes("w19 "), keyOf(chat));
    await page.close();
    await comeBack(await open(chat));
    assert.ok(summaryOf(chat).includes(`> ${words(0, 20)}\n`), summaryOf(chat));
  });
}

test("freeze alone saves the answer", async () => {
  const { chat, page } = await hanging({ ...NEVER, only: "freeze" });
  const session = await page.createCDPSession();
  await session.send("Page.setWebLifecycleState", { state: "frozen" });
  await new Promise((resolve) => setTimeout(resolve, 500));
  await killPage(page);
  await comeBack(await open(chat));
  assert.ok(summaryOf(chat).includes(`> ${words(0, 20)}\n`), summaryOf(chat));
});

test("none of the three: the answer of the last interval is lost, so these tests can fail", async () => {
  const { chat, page } = await hanging({ ...NEVER, only: "none" });
  await page.goto(`${server.address}/blank.html`);
  await page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 300)));
  await page.close();
  await comeBack(await open(chat));
  assert.ok(!summaryOf(chat).includes("> w0"), summaryOf(chat));
});

test("aborted right before the page dies: the checkpoint itself says so", async () => {
  const { chat, page } = await hanging();
  // The page dies in the task in which the user stops the run: nothing behind the synchronous write happens.
  page.evaluate(() => {
    run.abort();
    for (const end = performance.now() + 20_000; performance.now() < end; );
  }).catch(() => undefined);
  await new Promise((resolve) => setTimeout(resolve, 500));
  await killPage(page);
  const again = await open(chat);
  await again.evaluate(() => window.opened);
  assert.equal(await again.evaluate((key) => JSON.parse(localStorage.getItem(key)).userAborted, keyOf(chat)), true);
  assert.equal(await again.evaluate(() => run.getState().recovery.reason), "user_aborted");
  await again.close();
});

test("killed between the two stores: the newer copy counts, whichever has it", async () => {
  for (const lost of ["IndexedDB", "localStorage"]) {
    const chat = await newChat();
    Object.assign(server, { wordMs: 2, stopAtWord: 20 });
    const page = await open(chat, { send: "stream", ...NEVER });
    await waitFor(page, () => run.getState().text.endsWith("w19 "));
    // What a browser that is killed here leaves behind: one store has the last write, the other has not.
    await page.evaluate((store) => {
      if (store === "localStorage") Storage.prototype.setItem = () => undefined;
      else IDBObjectStore.prototype.put = () => {
        for (const end = performance.now() + 20_000; performance.now() < end; );
      };
      setTimeout(() => dispatchEvent(new Event("pagehide")));
    }, lost);
    await new Promise((resolve) => setTimeout(resolve, 500));
    await killPage(page);
    await comeBack(await open(chat));
    assert.ok(summaryOf(chat).includes(`> ${words(0, 20)}\n`), `${lost} lost: ${summaryOf(chat)}`);
  }
});

test("localStorage is full: IndexedDB has the run, and the state says so", async () => {
  const chat = await newChat();
  const page = await open(chat);
  Object.assign(server, { wordMs: 2, stopAtWord: 20 });
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
  await waitFor(page, () => run.getState().text.endsWith("w19 ") && run.getState().storageProblems.includes("local_storage_full"));
  await page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 500)));
  await page.close({ runBeforeUnload: false });
  const back = await open(chat);
  await back.evaluate(() => localStorage.clear());
  await comeBack(back);
  assert.ok(summaryOf(chat).includes(`> ${words(0, 20)}\n`), summaryOf(chat));
});

test("a checkpoint of a newer version: not offered, not destroyed, and the next run puts it aside", async () => {
  const chat = await interrupted();
  const page = await open(chat);
  const newer = await page.evaluate(async (key, name) => {
    await window.opened;
    const text = JSON.stringify({ ...JSON.parse(localStorage.getItem(key)), version: 2 });
    localStorage.setItem(key, text);
    const database = await new Promise((resolve) => (indexedDB.open("piton_run", 1).onsuccess = (event) => resolve(event.target.result)));
    const transaction = database.transaction("checkpoints", "readwrite");
    transaction.objectStore("checkpoints").put(text, name);
    await new Promise((resolve) => (transaction.oncomplete = resolve));
    database.close();
    return text;
  }, keyOf(chat), chat);
  await page.reload();
  await page.evaluate(() => window.opened);
  assert.equal(await page.evaluate(() => run.getState().recovery.reason), "checkpoint_newer");
  assert.match(await bannerOf(page), /newer version/);
  assert.equal(await page.evaluate((key) => localStorage.getItem(key), keyOf(chat)), newer);
  assert.equal(await page.evaluate(() => run.send("tools")), "completed");
  assert.equal(await page.evaluate((key) => localStorage.getItem(`${key}.aside`), keyOf(chat)), newer);
  await page.close();
});

test("storage is switched off for the site: it is said, and nothing begins that two tabs could do twice", async () => {
  const blocked = new Profile();
  await mkdir(join(blocked.folder, "Default"), { recursive: true });
  await writeFile(join(blocked.folder, "Default", "Preferences"), JSON.stringify({ profile: { default_content_setting_values: { cookies: 2 } } }));
  try {
    const browser = await blocked.open();
    const chat = await newChat();
    const { page } = await openPage(browser, `${server.address}/page.html?${new URLSearchParams({ chat })}`);
    const isBlocked = await page.evaluate(() => {
      try {
        return localStorage === null;
      } catch (error) {
        return error.name === "SecurityError";
      }
    });
    assert.ok(isBlocked, "this Chromium refuses storage");
    const found = await page.evaluate(async () => {
      await window.opened;
      const outcome = await run.send("tools").catch((error) => `${error.name} ${error.code}`);
      const { storageProblems, status, error } = run.getState();
      return { outcome, status, error, storageProblems };
    });
    assert.ok(found.storageProblems.some((problem) => problem.startsWith("local_storage")), JSON.stringify(found));
    assert.ok(found.storageProblems.some((problem) => problem.startsWith("indexed_db")), JSON.stringify(found));
    assert.equal(found.outcome, "RunError storage_unavailable");
    assert.deepEqual(await server.effects(chat), []);
  } finally {
    await blocked.remove();
  }
});

test("the sandbox is gone on resume: a new one, and the conversation is kept", async () => {
  const chat = await interrupted();
  server.isSandboxGone = true;
  const page = await open(chat);
  await press(page, "Resume");
  await waitFor(page, () => document.querySelector("piton-resume-banner").shadowRoot.textContent.includes("Sandbox expired, starting fresh"));
  assert.equal(server.isSandboxGone, false, "made again");
  await page.reload();
  const messages = await page.evaluate(async () => {
    await window.opened;
    return run.getState().messages;
  });
  assert.deepEqual(messages.map((message) => message.content), ["stream", words(0, 20)]);
  await page.close();
});

test("the workspace cannot be read: the reason, and Resume without it", async () => {
  const chat = await interrupted();
  server.isTruthDown = true;
  const page = await open(chat);
  await press(page, "Resume");
  await waitFor(page, () => document.querySelector("piton-resume-banner").shadowRoot.textContent.includes("The state of the workspace cannot be read"));
  await press(page, "Resume without it");
  await waitFor(page, () => run.getState().status === "completed");
  server.isTruthDown = false;
  assert.match(summaryOf(chat), /Workspace state at recovery: unknown/);
  await page.close();
});

test("the provider says nothing on resume: the reason, and it is offered again", async () => {
  const chat = await interrupted();
  server.stopAtWord = 0;
  const page = await open(chat, { timeoutMs: "400" });
  await press(page, "Resume");
  await waitFor(page, () => document.querySelector("piton-resume-banner").shadowRoot.textContent.includes("The provider sent nothing for 0.4 s"));
  server.stopAtWord = Infinity;
  await press(page, "Try again");
  await waitFor(page, () => run.getState().status === "completed");
  assert.equal((await page.evaluate(() => run.getState().messages)).at(-1).content, words(20, WORDS));
  await page.close();
});

test("a tool that never returns: its outcome is unknown, and the run goes on", async () => {
  const chat = await newChat();
  server.holdMs = 60_000;
  const page = await open(chat, { timeoutMs: "400" });
  const ended = page.evaluate(() => run.send("tools"));
  await waitFor(page, () => run.getState().messages.some((message) => message.content.includes("did not return within 0.4 s. Its outcome is unknown.")));
  await page.evaluate(() => run.abort());
  assert.equal(await ended, "aborted");
  server.holdMs = 0;
  await page.close();
});

test("an answer of 5 MB: localStorage never has more than its end, and a killed page loses nothing", async () => {
  const chat = await newChat();
  server.stopAtWord = LARGE_PIECES - 5;
  const page = await open(chat);
  await page.evaluate((key) => {
    window.sizes = [];
    const set = Storage.prototype.setItem;
    Storage.prototype.setItem = function (name, value) {
      if (name === key) window.sizes.push(value.length);
      return set.call(this, name, value);
    };
    void run.send("large");
  }, keyOf(chat));
  const last = ` ${LARGE_PIECES - 6} `;
  await waitFor(page, (end) => run.getState().text.endsWith(end), last);
  await waitFor(page, (key, end) => JSON.parse(localStorage.getItem(key)).accumulated.endsWith(end), keyOf(chat), last);
  await page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 300)));
  const { sizes, length, problems } = await page.evaluate(() => ({ sizes: window.sizes, length: run.getState().text.length, problems: run.getState().storageProblems }));
  assert.ok(length > 4_800_000, `${length} characters`);
  assert.ok(Math.max(...sizes) < 160 * 1024, `the largest copy in localStorage has ${Math.max(...sizes)} characters`);
  assert.deepEqual(problems, []);
  await killPage(page);
  server.stopAtWord = Infinity;
  const back = await open(chat);
  await press(back, "Resume");
  await waitFor(back, () => run.getState().status === "completed");
  const summary = summaryOf(chat);
  assert.ok(summary.includes("     0      0 "), "the beginning is there");
  assert.ok(summary.includes(`${last.trimEnd()} \n`), "and the end");
  assert.equal(summary.match(/ \d+(?= )/g).length >= (LARGE_PIECES - 5) * 7_000, true);
  console.log(`# an answer of ${length} characters: ${sizes.length} saves, at most ${Math.max(...sizes)} characters in localStorage`);
  await back.close();
});
