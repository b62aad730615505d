/** A tab that slept through its lease: another tab has the run by now, and whatever ends it here leaves that alone. */
import { expect, test } from "vitest";

import { instrument } from "../../src/run/instrument.js";
import { type RunMessage, tabLock } from "../../src/run/index.js";
import { Browser, call, checkpoint, never, sandbox, say, testRun, until } from "./helpers.js";

/** A tab with a lease that does not answer when it is asked whether it lives: it is asleep. */
function asleep(browser: Browser) {
  const storage = browser.storage();
  const release = async () => void (await storage.updateLease("chat", (lease) => (lease?.owner === "slept" ? null : lease)));
  const lock = {
    acquire: async () => {
      await storage.updateLease("chat", () => ({ owner: "slept" }));
      return { owner: "slept", fence: { owner: "slept" }, release };
    },
    ownerOf: () => Promise.resolve(null),
    whenFree: () => Promise.resolve(),
  };
  return { storage, lock };
}

function awake(browser: Browser) {
  const storage = browser.storage();
  return { storage, lock: tabLock({ storage, clock: browser.clock, locks: null, localStorage: browser.local, heldHere: new Map() }) };
}

const contents = async (browser: Browser) => (await browser.storage().loadConversation("chat")).map((message) => message.content);

/** The tab that slept, in a tool, with an error on its way; and the other one, which has resumed and ended the run. */
async function resumedElsewhere() {
  const browser = new Browser();
  let fail: (error: Error) => void = () => undefined;
  const slept = testRun(browser, async function* (_, round) {
    yield say(`I begin ${round}. `);
    if (round === 1) yield call("read", {});
    else await new Promise((_, reject) => (fail = reject));
  }, { ...asleep(browser), tools: { read: { description: "", kind: "read", run: () => "r" } } });
  const ended = slept.run.send("go");
  await until(() => slept.run.getState().text === "I begin 2. ");
  await until(async () => (await browser.storage().load("chat")).checkpoint?.accumulated === "I begin 2. ");
  const other = testRun(browser, () => [say("The other tab has finished.")], awake(browser));
  expect((await other.run.open()).status).toBe("offered");
  await other.run.recovery.resume();
  expect(other.run.getState().status).toBe("completed");
  const kept = await contents(browser);
  expect(kept.at(-1)).toBe("The other tab has finished.");
  return { browser, slept: slept.run, ended, fail: () => fail(new TypeError("Load failed")), kept };
}

test.each(["Stop", "an error"])("%s in a tab that slept changes nothing of what the other tab ended", async (how) => {
  const { browser, slept, ended, fail, kept } = await resumedElsewhere();
  if (how === "Stop") slept.abort();
  else fail();
  expect(await ended).toBe("interrupted");
  expect(slept.getState().error?.code).toBe("lock_lost");
  expect(await contents(browser)).toEqual(kept);
  expect((await browser.storage().load("chat")).checkpoint).toBeNull();
});

test("Stop in a tab that slept leaves the checkpoint of the other tab, which is active", async () => {
  const browser = new Browser();
  const hang = async function* ({ signal }: { signal: AbortSignal }) {
    yield say("Half");
    await never(signal);
  };
  const slept = testRun(browser, hang, asleep(browser));
  const ended = slept.run.send("go");
  await until(async () => (await browser.storage().load("chat")).checkpoint?.accumulated === "Half");
  const other = testRun(browser, hang, awake(browser));
  await other.run.open();
  other.run.recovery.resume().catch(() => undefined);
  const runOf = async () => (await browser.storage().load("chat")).checkpoint?.runId;
  const before = await runOf();
  await until(async () => (await runOf()) !== before);
  const its = await browser.storage().load("chat");
  slept.run.abort();
  expect(await ended).toBe("interrupted");
  expect(await browser.storage().load("chat")).toEqual(its);
  other.run.close();
});

test("Stop in a loop of one's own that slept: the same", async () => {
  const browser = new Browser();
  const messages: RunMessage[] = [];
  const loop = instrument(async ({ recorder, signal }) => {
    recorder.startRound(1);
    recorder.text("Half");
    await never(signal);
  }, {
    chatId: "chat", provider: "p", model: "m", sandbox: sandbox(), clock: browser.clock, ...asleep(browser),
    conversation: { load: () => messages, save: (all) => void messages.splice(0, messages.length, ...all) },
  });
  const ended = loop.start();
  await until(async () => (await browser.storage().load("chat")).checkpoint !== null);
  const { storage } = awake(browser);
  await storage.updateLease("chat", () => ({ owner: "other" }));
  await storage.save(checkpoint({ writeSeq: 50, accumulated: "of the other tab" }), { owner: "other" });
  loop.abort();
  await expect(ended).rejects.toMatchObject({ code: "lock_lost" });
  expect(messages).toEqual([]);
  expect((await storage.load("chat")).checkpoint).toMatchObject({ writeSeq: 50, accumulated: "of the other tab" });
});

test.each([true, false])("a clear removes no later checkpoint, and none of another owner (with a database: %s)", async (hasDatabase) => {
  const browser = new Browser();
  const storage = browser.storage(hasDatabase ? {} : { indexedDB: null });
  await storage.save(checkpoint({ writeSeq: 7 }));
  await storage.clear("chat", 6);
  expect((await storage.load("chat")).checkpoint?.writeSeq).toBe(7);
  // Only the database has it.
  if (hasDatabase) {
    browser.local.clear();
    await storage.clear("chat", 6);
    expect((await storage.load("chat")).checkpoint?.writeSeq).toBe(7);
  }
  await storage.updateLease("chat", () => ({ owner: "other" }));
  await expect(storage.clear("chat", 8, { owner: "slept" })).rejects.toMatchObject({ code: "lock_lost" });
  // The other tab has ended, too: no tab has a lease, this one neither.
  await storage.updateLease("chat", () => null);
  await expect(storage.clear("chat", 8, { owner: "slept" })).rejects.toMatchObject({ code: "lock_lost" });
  expect((await storage.load("chat")).checkpoint?.writeSeq).toBe(7);
});

test("a tab that lost its lease is no owner any more: it can begin a run when the other tab has ended", async () => {
  const browser = new Browser();
  const tab = awake(browser);
  const { run } = testRun(browser, async function* ({ signal }, round) {
    yield say("Half");
    if (round === 1) await never(signal);
  }, tab);
  const ended = run.send("go");
  await until(async () => (await browser.storage().load("chat")).checkpoint?.accumulated === "Half");
  await tab.storage.updateLease("chat", () => ({ owner: "other" }));
  run.abort();
  expect(await ended).toBe("interrupted");
  await tab.storage.updateLease("chat", () => null);
  expect(await run.send("again")).toBe("completed");
});
