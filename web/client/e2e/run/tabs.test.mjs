// Two tabs, every refusal with its reason, 30 rounds, and a provider that is down.
import assert from "node:assert/strict";
import { after, before, test as anyTest } from "node:test";

import { openPage, press, Profile, waitFor } from "./browser.mjs";
import { TestServer } from "./server.mjs";

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
const recoveryOf = (page) => page.evaluate(async () => {
  await window.opened;
  const { status, reason, sentence } = run.getState().recovery;
  return { status, reason, sentence };
});

/** A run that hangs in its stream. */
async function hanging(more = {}) {
  server.wordMs = 2;
  server.stopAtWord = 20;
  const chat = await newChat();
  const page = await open(chat, { send: "stream", ...more });
  await waitFor(page, () => run.getState().text.endsWith("w19 "));
  return { chat, page };
}

for (const [kind, more] of [["Web Locks", {}], ["BroadcastChannel and storage", { noLocks: "1" }]]) {
  test(`two tabs: one owns the run (${kind}); when it crashes, the other is offered it`, async () => {
    const { chat, page } = await hanging(more);
    const second = await open(chat, more);
    assert.deepEqual(await recoveryOf(second), { status: "none", reason: "owned_by_other_tab", sentence: "The run is active in another tab." });
    await assert.rejects(second.evaluate(() => run.send("me too")), /active in another tab/);
    await page.close({ runBeforeUnload: false });
    server.stopAtWord = Infinity;
    await press(second, "Resume");
    await waitFor(second, () => run.getState().status === "completed");
    await second.close();
  });

  test(`two tabs opened at once from a crash (${kind}): both may offer, one resumes`, async () => {
    const { chat, page } = await hanging(more);
    await page.close({ runBeforeUnload: false });
    server.stopAtWord = Infinity;
    const before = server.chat(chat).requests.length;
    const tabs = await Promise.all([open(chat, more), open(chat, more)]);
    await Promise.all(tabs.map((tab) => waitFor(tab, () => run.getState().recovery.status === "offered")));
    await Promise.all(tabs.map((tab) => tab.evaluate(() => void run.recovery.resume())));
    await Promise.any(tabs.map((tab) => waitFor(tab, () => run.getState().status === "completed")));
    await Promise.all(tabs.map((tab) => tab.evaluate(() => new Promise((resolve) => setTimeout(resolve, 1_000)))));
    assert.equal(server.chat(chat).requests.length, before + 1, "the model was asked once");
    await Promise.all(tabs.map((tab) => tab.close()));
  });
}

test("not offered, and why", async () => {
  const { chat, page } = await hanging();
  await waitFor(page, (key) => localStorage.getItem(key)?.includes("w19"), `run_checkpoint_${chat}`);
  await page.close({ runBeforeUnload: false });
  for (const [reason, more] of [
    ["branch_changed", { branch: "feature" }],
    ["sandbox_changed", { sandbox: "box-2" }],
    ["repository_changed", { repo: "repo-2" }],
    ["too_old", { skewMs: String(26 * 60_000) }],
  ]) {
    const again = await open(chat, more);
    const found = await recoveryOf(again);
    assert.equal(found.reason, reason);
    const shown = await again.evaluate(() => document.querySelector("piton-resume-banner").shadowRoot.textContent);
    assert.ok(shown.includes(found.sentence), `the banner says why: ${shown}`);
    assert.ok(!shown.includes("Resume where you left off"), shown);
    await again.close();
  }
  const again = await open(chat);
  assert.equal((await recoveryOf(again)).status, "offered", "nothing was thrown away");
  await again.close();
});

test("the page's own active run is not offered to it, on whatever branch it is", async () => {
  for (const more of [{}, { noLocks: "1" }]) {
    const { page } = await hanging(more);
    assert.deepEqual(await page.evaluate(() => run.recovery.check()).then(({ status, reason }) => [status, reason]), ["none", "owned_by_this_page"]);
    assert.equal(await page.evaluate(() => document.querySelector("piton-resume-banner").hidden), true);
    await page.evaluate(() => run.close());
    await waitFor(page, () => run.getState().status === "interrupted");
    server.stopAtWord = Infinity;
    await page.evaluate(() => run.open());
    await press(page, "Resume");
    await waitFor(page, () => run.getState().status === "completed");
    await page.close();
  }
});

test("thirty rounds: no checkpoint over 15 KB", async () => {
  const chat = await newChat();
  const page = await open(chat);
  const sizes = await page.evaluate(async (key) => {
    const found = [];
    const set = Storage.prototype.setItem;
    Storage.prototype.setItem = function (name, value) {
      if (name === key) found.push(new Blob([value]).size);
      return set.call(this, name, value);
    };
    await run.send("rounds");
    return found;
  }, `run_checkpoint_${chat}`);
  assert.equal(await page.evaluate(() => run.getState().messages.at(-1).content), "All thirty rounds.");
  assert.ok(sizes.length >= 90, `${sizes.length} saves`);
  assert.ok(Math.max(...sizes) <= 15 * 1024, `the largest has ${Math.max(...sizes)} bytes`);
  console.log(`# 30 rounds: ${sizes.length} saves, the largest ${Math.max(...sizes)} bytes`);
  await page.close();
});

test("the provider is down on resume: the banner says so, and offers it again", async () => {
  const { chat, page } = await hanging();
  await waitFor(page, (key) => localStorage.getItem(key)?.includes("w19"), `run_checkpoint_${chat}`);
  await page.close({ runBeforeUnload: false });
  server.stopAtWord = Infinity;
  server.isProviderDown = true;
  const again = await open(chat);
  await press(again, "Resume");
  await waitFor(again, () => document.querySelector("piton-resume-banner").shadowRoot.textContent.includes("answered 503"));
  server.isProviderDown = false;
  await press(again, "Try again");
  await waitFor(again, () => run.getState().status === "completed");
  await again.close();
});

test("storage corrupted by hand: set aside, said so, and the next run works", async () => {
  const chat = await newChat();
  const page = await open(chat);
  // Else this page may find it, and set it aside.
  await recoveryOf(page);
  await page.evaluate((key) => localStorage.setItem(key, "{"), `run_checkpoint_${chat}`);
  await page.reload();
  assert.equal((await recoveryOf(page)).reason, "checkpoint_damaged");
  assert.equal(await page.evaluate(() => run.send("tools")), "completed");
  await page.close();
});
