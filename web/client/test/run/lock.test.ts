import { expect, test } from "vitest";

import { type BrowserStorageOptions, tabLock } from "../../src/run/index.js";
import { Browser, checkpoint, TestClock } from "./helpers.js";

/** Tabs of one browser without Web Locks; Node's BroadcastChannel is the browser's. */
function tabs(options: BrowserStorageOptions = {}) {
  const browser = new Browser();
  const clock = new TestClock();
  let advancing = Date.now();
  clock.now = () => (advancing = Math.max(advancing, Date.now()));
  const tab = () => {
    const storage = browser.storage(options);
    return { storage, lock: tabLock({ storage, clock, locks: null, localStorage: browser.local, heldHere: new Map() }) };
  };
  return { browser, tab };
}

test.each([["IndexedDB", {}], ["localStorage alone", { indexedDB: null }]])("one owner (%s)", async (_, options) => {
  const { tab, browser } = tabs(options);
  const [a, b] = [tab(), tab()];
  const held = await a.lock.acquire("chat");
  expect(held).not.toBeNull();
  expect(browser.local.getItem("run_active_chat")).toContain(held?.owner);
  expect(await b.lock.ownerOf("chat")).toBe("owned_by_other_tab");
  expect(await a.lock.ownerOf("chat")).toBe("owned_by_this_page");
  expect(await b.lock.acquire("chat")).toBeNull();
  await held?.release();
  expect(browser.local.getItem("run_active_chat")).toBeNull();
  const next = await b.lock.acquire("chat");
  expect(next).not.toBeNull();
  await next?.release();
});

test("of tabs that try at once, one succeeds", async () => {
  const { tab } = tabs();
  const held = await Promise.all(Array.from({ length: 6 }, () => tab().lock.acquire("chat")));
  const owners = held.filter((lock) => lock !== null);
  expect(owners).toHaveLength(1);
  await owners[0]?.release();
});

test("a crashed tab frees it; one that only slept is refused by the store when it writes again", async () => {
  const { tab } = tabs();
  const asleep = tab();
  // No page answers for it: it has crashed, or sleeps.
  await asleep.storage.updateLease("chat", () => ({ owner: "asleep" }));
  const other = tab();
  const held = await other.lock.acquire("chat");
  expect(held).not.toBeNull();
  await other.storage.save(checkpoint({ writeSeq: 5 }), held?.fence);
  await expect(asleep.storage.save(checkpoint({ writeSeq: 2 }), { owner: "asleep" })).rejects.toMatchObject({ code: "lock_lost" });
  await held?.release();
});
