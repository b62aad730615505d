/** Who owns a run, and what happens when that cannot be known. */
import { expect, test } from "vitest";

import { instrument } from "../../src/run/instrument.js";
import { RunError, type RunMessage, tabLock } from "../../src/run/index.js";
import { pitonSandbox } from "../../src/run/piton.js";
import { contentOf as bannerContent } from "../../src/run/banner.js";
import { Browser, checkpoint, never, sandbox, say, testRun, until } from "./helpers.js";

const codeOf = async (work: Promise<unknown>) => await work.then(() => null, (error: unknown) => (error instanceof RunError ? error.code : error));

test("a loop of one's own does not begin while a server owns the run", async () => {
  const browser = new Browser();
  await browser.storage().save(checkpoint({ jobId: "sess_1", phase: "streaming_llm" }));
  let began = 0;
  const messages: RunMessage[] = [];
  const loop = instrument(async () => void (began += 1), {
    chatId: "chat", provider: "p", model: "m", sandbox: sandbox(), storage: browser.storage(), lock: browser.locks.tab(), clock: browser.clock,
    conversation: { load: () => messages, save: (all) => void messages.splice(0, messages.length, ...all) },
  });
  expect(await codeOf(loop.start())).toBe("owned_by_server");
  expect(began).toBe(0);
  expect((await browser.storage().load("chat")).checkpoint?.jobId).toBe("sess_1");
  expect(await codeOf(testRun(browser, () => [say("x")]).run.send("hello"))).toBe("owned_by_server");
});

test("a tab that lost its lease writes nothing, not even to localStorage", async () => {
  for (const withDatabase of [true, false]) {
    const browser = new Browser();
    const storage = () => browser.storage(withDatabase ? {} : { indexedDB: null });
    const [slept, now] = [storage(), storage()];
    const take = (from: typeof slept, owner: string) => from.updateLease("chat", () => ({ owner }));
    await take(slept, "a");
    await slept.save(checkpoint({ writeSeq: 1, accumulated: "old" }), { owner: "a" });
    await take(now, "b");
    await now.save(checkpoint({ writeSeq: 2, accumulated: "new" }), { owner: "b" });
    expect(await codeOf(slept.save(checkpoint({ writeSeq: 9, accumulated: "stale" }), { owner: "a" }))).toBe("lock_lost");
    expect((await storage().load("chat")).checkpoint?.accumulated).toBe("new");
  }
});

test("without Web Locks and without any store nobody becomes the owner, and it is said why", async () => {
  const browser = new Browser();
  browser.local.isBroken = true;
  const storage = browser.storage({ indexedDB: null });
  const lock = tabLock({ storage, clock: browser.clock, locks: null, localStorage: null });
  expect(await codeOf(lock.acquire("chat"))).toBe("storage_unavailable");
});

test("without Web Locks and IndexedDB, two tabs that begin at once: at most one can write", async () => {
  const browser = new Browser();
  const tab = () => {
    const storage = browser.storage({ indexedDB: null });
    return { storage, lock: tabLock({ storage, clock: browser.clock, locks: null, localStorage: browser.local, heldHere: new Map() }) };
  };
  const tabs = [tab(), tab(), tab()];
  const held = await Promise.all(tabs.map(async ({ lock, storage }) => ({ storage, held: await lock.acquire("chat") })));
  const writes = await Promise.all(held.filter((one) => one.held).map(({ storage, held: own }) => codeOf(storage.save(checkpoint(), own?.fence))));
  expect(writes.filter((code) => code === null).length).toBeLessThanOrEqual(1);
});

test("a damaged conversation is set aside, the run opens, and it is said", async () => {
  for (const text of ["{no json", '"text"', '[{"role":1}]']) {
    const browser = new Browser();
    browser.local.setItem("run_conversation_chat", text);
    const { run } = testRun(browser, () => [say("x")], { storage: browser.storage({ indexedDB: null }) });
    await run.open();
    expect(run.getState().messages).toEqual([]);
    expect(run.getState().storageProblems).toContain("conversation_damaged");
    expect(browser.local.getItem("run_conversation_chat.aside")).toBe(text);
  }
});

test("both stores fail: the run works, and its state says that a reload would lose it", async () => {
  const browser = new Browser();
  browser.local.isBroken = true;
  const { run } = testRun(browser, () => [say("done")], { storage: browser.storage({ indexedDB: null }) });
  await run.open();
  expect(run.getState().storageProblems).toEqual(expect.arrayContaining(["local_storage_unavailable", "indexed_db_unavailable"]));
});

test("a Piton sandbox that is gone is made again, and is the sandbox from then on", async () => {
  const asked: string[] = [];
  const created: string[] = [];
  const answer = (value: unknown, status = 200) => new Response(JSON.stringify(value), { status });
  const box = pitonSandbox({
    token: "t", sessionId: "old", newSession: { title: "Mine" }, onCreated: (id) => void created.push(id),
    fetch: async (input, init) => {
      asked.push(`${init?.method ?? "GET"} ${String(input)} ${String(init?.body ?? "")}`);
      if (init?.method === "POST") return answer({ session_id: "new" }, 201);
      return String(input).includes("/old") ? answer({ code: "session_not_found" }, 404) : answer({ repository: true, branch: "b", head: null, changed: [], truncated: false });
    },
  });
  expect(await box.isAlive?.()).toBe(false);
  await box.create?.();
  expect(created).toEqual(["new"]);
  expect(asked.at(-1)).toBe('POST /api/v1/sessions {"start":false,"mcp_servers":[],"title":"Mine"}');
  expect(await box.identity()).toMatchObject({ sandboxSessionId: "new", activeBranch: "b" });
  expect(pitonSandbox({ token: "t", sessionId: "x", newSession: null }).create).toBeUndefined();
});

/** A run that hangs behind the first words of its answer. */
async function active(browser: Browser, changes: Parameters<typeof testRun>[2] = {}) {
  const hanging = testRun(browser, async function* ({ signal }) {
    yield say("Half");
    await never(signal);
  }, changes);
  const ended = hanging.run.send("go");
  ended.catch(() => undefined);
  await until(() => hanging.run.getState().text === "Half");
  return { ...hanging, ended };
}

test.each(["Web Locks", "a lease"])("the page's own active run is not offered to it (%s)", async (kind) => {
  const browser = new Browser();
  const heldHere = new Map<string, string>();
  const lock = () => tabLock({ storage: browser.storage(), clock: browser.clock, locks: null, localStorage: browser.local, heldHere });
  const tab = browser.locks.tab();
  const own = () => (kind === "a lease" ? lock() : tab);
  const { run, ended } = await active(browser, { lock: own() });
  expect(await run.recovery.check()).toMatchObject({ status: "none", reason: "owned_by_this_page" });
  expect(bannerContent(run.recovery.getState())).toBeNull();
  // Another branch says nothing against a run that is active.
  const moved = testRun(browser, () => [], { lock: own(), sandbox: sandbox({ identity: () => ({ sandboxSessionId: "box", activeBranch: "other", repoId: null }) }) });
  expect(await moved.run.open()).toMatchObject({ status: "none", reason: "owned_by_this_page" });
  expect(await codeOf(moved.run.recovery.dismiss())).toBe("owned_by_this_page");
  run.abort();
  expect(await ended).toBe("aborted");
  await until(() => {
    const { recovery } = run.getState();
    return recovery.status === "none" && recovery.reason === "no_checkpoint";
  });
});

test("a run that is closed is interrupted: its lock is free, and the next one is offered it", async () => {
  const browser = new Browser();
  const { run, ended, requests } = await active(browser);
  run.close();
  expect(await ended).toBe("interrupted");
  expect(requests[0]?.signal.aborted).toBe(true);
  const next = testRun(browser, () => [say("the rest")]);
  expect((await next.run.open()).status).toBe("offered");
  await next.run.recovery.resume();
  expect(next.run.getState().messages.at(-1)?.content).toBe("the rest");
});

test("stopped or closed before the model is asked: it is not asked", async () => {
  for (const how of ["abort", "close"] as const) {
    const browser = new Browser();
    const { run, requests } = testRun(browser, () => [say("x")]);
    const ended = run.send("go");
    run[how]();
    expect(await ended).toBe(how === "abort" ? "aborted" : "interrupted");
    expect(requests).toEqual([]);
    expect((await browser.storage().load("chat")).checkpoint === null).toBe(how === "abort");
  }
});

test("a loop of one's own that is closed keeps its checkpoint and frees the lock", async () => {
  const browser = new Browser();
  const messages: RunMessage[] = [];
  const loop = instrument(async ({ recorder, signal }) => {
    recorder.startRound(1);
    recorder.text("Half");
    // As many libraries do: an error of its own.
    await never(signal).catch(() => Promise.reject(new Error("request cancelled")));
  }, {
    chatId: "chat", provider: "p", model: "m", sandbox: sandbox(), storage: browser.storage(), lock: browser.locks.tab(), clock: browser.clock,
    conversation: { load: () => messages, save: (all) => void messages.splice(0, messages.length, ...all) },
  });
  const ended = loop.start();
  await until(async () => (await browser.storage().load("chat")).checkpoint !== null);
  loop.close();
  await expect(ended).rejects.toThrow("request cancelled");
  expect((await browser.storage().load("chat")).checkpoint?.accumulated).toBe("Half");
  expect(browser.locks.held.size).toBe(0);
});

test("a sandbox that does not know itself on resume: offered again, and not stuck", async () => {
  const browser = new Browser();
  await browser.storage().save(checkpoint({ phase: "streaming_llm", baseMessageCount: 0, accumulated: "Half" }));
  let isDown = false;
  const { run } = testRun(browser, () => [say("the rest")], {
    sandbox: sandbox({ identity: () => (isDown ? Promise.reject(new Error("down")) : { sandboxSessionId: "box", activeBranch: "main", repoId: "repo" }) }),
  });
  await run.open();
  isDown = true;
  expect(await run.recovery.resume()).toMatchObject({ status: "offered", problem: { sentence: "down" } });
  isDown = false;
  await run.recovery.resume();
  expect(run.getState().status).toBe("completed");
});
