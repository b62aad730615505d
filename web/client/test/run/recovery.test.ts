/** What an interrupted run meets when its page comes back: sandboxes that do not answer, conversations that went on. */
import { describe, expect, test } from "vitest";

import { contentOf as bannerContent } from "../../src/run/banner.js";
import { instrument } from "../../src/run/instrument.js";
import { type Conversation, type RunCheckpoint, type RunMessage, RunRecorder, tabLock } from "../../src/run/index.js";
import { recordJob } from "../../src/run/piton.js";
import { Browser, call, checkpoint, never, sandbox, say, testRun, TRUTH, until } from "./helpers.js";

const user = (content: string): RunMessage => ({ role: "user", content });
const assistant = (content: string): RunMessage => ({ role: "assistant", content });
const looks: RunMessage = { role: "assistant", content: "look", toolCalls: [{ id: "9", name: "w", arguments: {} }] };

const saved = (browser: Browser) => JSON.parse(browser.local.getItem("run_checkpoint_chat") ?? "null") as RunCheckpoint | null;

/** A page that died in the given phase; the conversation is the app's. */
async function interrupted(phase: Partial<RunCheckpoint>, messages: RunMessage[] = [user("go")]) {
  const browser = new Browser();
  await browser.storage().save(checkpoint({ phase: "streaming_llm", baseMessageCount: 1, ...phase }));
  const conversation: Conversation = { load: () => [...messages], save: (all) => void messages.splice(0, messages.length, ...all) };
  return { browser, messages, conversation };
}

describe("a sandbox that never answers", () => {
  const limits = { truthTimeoutMs: 20 };

  test("does not keep an interrupted run from being offered", async () => {
    const { browser, conversation } = await interrupted({});
    const { run } = testRun(browser, () => [], { conversation, limits, sandbox: sandbox({ identity: () => never() }) });
    expect(await run.open()).toMatchObject({ status: "offered" });
    expect(await run.recovery.resume()).toMatchObject({ status: "offered", problem: { sentence: "no answer within 0.02 s" } });
    await expect(run.send("more")).rejects.toMatchObject({ code: "timeout" });
    expect(run.getState()).toMatchObject({ status: "error", error: { code: "timeout" } });
  });

  test("is not gone", async () => {
    const { browser, conversation } = await interrupted({});
    const { run } = testRun(browser, () => [say("done")], { conversation, limits, sandbox: sandbox({ isAlive: () => never() }) });
    await run.open();
    expect(await run.recovery.resume()).toMatchObject({ status: "resumed" });
  });

  test("is said to be the reason when its truth is asked for", async () => {
    const { browser, conversation } = await interrupted({});
    let isGivenUp = false;
    const truth = (signal?: AbortSignal) => {
      signal?.addEventListener("abort", () => (isGivenUp = true));
      return never();
    };
    const { run } = testRun(browser, () => [], { conversation, limits, sandbox: sandbox({ truth }) });
    await run.open();
    expect(await run.recovery.resume()).toMatchObject({ status: "offered", problem: { code: "truth_unavailable", canResumeWithoutTruth: true } });
    expect(isGivenUp).toBe(true);
  });
});

describe("a conversation that was continued elsewhere", () => {
  const elsewhere = [user("go"), user("from the laptop"), assistant("answer")];

  test("is not resumed over, and loses nothing when the run is dismissed", async () => {
    const { browser, messages, conversation } = await interrupted({ deltaMessages: [looks], accumulated: "Half" }, [...elsewhere]);
    const { run, requests } = testRun(browser, () => [], { conversation });
    await run.open();
    expect(await run.recovery.resume()).toMatchObject({ status: "offered", problem: { code: "conversation_continued" } });
    expect(requests).toEqual([]);
    expect(messages).toEqual(elsewhere);
    await run.recovery.dismiss();
    expect(messages.slice(0, 3)).toEqual(elsewhere);
    expect(messages.slice(3).map((message) => message.role)).toEqual(["assistant", "tool", "assistant"]);
    expect(messages.at(-1)?.content).toBe("Half");
  });

  test("keeps its messages when the user asks for something else", async () => {
    const { browser, conversation } = await interrupted({ accumulated: "Half" }, [...elsewhere]);
    const { run, requests } = testRun(browser, () => [say("new")], { conversation });
    await run.open();
    await run.send("more");
    expect(requests[0]?.messages.map((message) => message.content)).toEqual(["go", "from the laptop", "answer", "Half", "more"]);
  });

  test("gets results behind their calls", async () => {
    const delta: RunMessage[] = [looks, { role: "tool", content: "r", toolCallId: "9" }, assistant("so")];
    const { browser, messages, conversation } = await interrupted({ deltaMessages: delta }, [user("go"), looks, user("laptop")]);
    const { run } = testRun(browser, () => [], { conversation });
    await run.open();
    await run.recovery.dismiss();
    expect(messages).toEqual([user("go"), looks, user("laptop"), ...delta]);
  });
});

describe("a conversation that is ahead of the checkpoint", () => {
  test("has the answer already when the page died between the two: it is not doubled", async () => {
    const { browser, messages, conversation } = await interrupted({ accumulated: "whole" }, [user("go"), assistant("whole")]);
    const { run } = testRun(browser, () => [], { conversation });
    await run.open();
    await run.recovery.dismiss();
    expect(messages).toEqual([user("go"), assistant("whole")]);
  });

  test("has the rounds that a trimmed checkpoint left out", async () => {
    const whole = [user("go"), assistant("1"), assistant("2"), assistant("3")];
    const delta = [user("[2 earlier messages of this run were left out to keep its checkpoint small.]"), assistant("3")];
    const { browser, messages, conversation } = await interrupted({ deltaMessages: delta, trimmedMessages: 2 }, [...whole]);
    const { run } = testRun(browser, () => [], { conversation });
    await run.open();
    await run.recovery.dismiss();
    expect(messages).toEqual(whole);
  });
});

describe("what the page shows", () => {
  test("after Dismiss and after a fresh sandbox has what the run had said", async () => {
    for (const how of ["dismiss", "resume"] as const) {
      const { browser, conversation } = await interrupted({ accumulated: "Half" });
      const { run } = testRun(browser, () => [say("new")], {
        conversation, sandbox: sandbox({ isAlive: () => Promise.resolve(false), create: () => Promise.resolve() }),
      });
      await run.open();
      await run.recovery[how]();
      await until(() => run.getState().messages.length === 2);
      expect(run.getState().messages).toEqual([user("go"), assistant("Half")]);
      // The sentence about the sandbox goes with the next prompt.
      await run.send("more");
      expect(bannerContent(run.getState().recovery)).toBeNull();
    }
  });

  test("has the answer of another tab when that has ended", async () => {
    const { browser, messages, conversation } = await interrupted({});
    const other = await browser.locks.tab().acquire("chat");
    const { run } = testRun(browser, () => [], { conversation });
    expect(await run.open()).toMatchObject({ reason: "owned_by_other_tab" });
    messages.push(assistant("of the other tab"));
    await browser.storage().clear("chat", 2);
    await other?.release();
    await until(() => run.getState().messages.length === 2);
    expect(run.getState().recovery).toMatchObject({ status: "none", reason: "no_checkpoint" });
  });

  test("says that the conversation cannot be read, and overwrites nothing", async () => {
    const { browser } = await interrupted({});
    let saves = 0;
    const conversation = { load: () => Promise.reject(new Error("offline")), save: () => void (saves += 1) };
    const { run } = testRun(browser, () => [say("x")], { conversation });
    expect(await run.open()).toMatchObject({ status: "offered" });
    expect(run.getState().error).toEqual({ code: "conversation_unavailable", message: "offline" });
    await expect(run.send("more")).rejects.toThrow("offline");
    expect(saves).toBe(0);
    expect(saved(browser)?.runId).toBe("run");
  });
});

test("dismissing beside a newer version's checkpoint does not destroy it", async () => {
  const browser = new Browser();
  browser.local.setItem("run_checkpoint_chat", '{"version":2}');
  const { run } = testRun(browser, () => []);
  await run.open();
  await run.recovery.dismiss();
  expect(browser.local.getItem("run_checkpoint_chat.aside")).toBe('{"version":2}');
});

test("a sandbox that stays is resumed after any time, and the offer says since when; another one is not", async () => {
  for (const isPersistent of [true, false]) {
    const { browser, conversation } = await interrupted({});
    browser.clock.time += 3 * 24 * 3_600_000;
    const { run } = testRun(browser, () => [say("done")], { conversation, sandbox: sandbox({ isPersistent }) });
    const state = await run.open();
    if (!isPersistent) {
      expect(state).toMatchObject({ status: "none", reason: "too_old" });
      continue;
    }
    expect(state.status === "offered" && state.sentence).toContain("2023");
    expect(await run.recovery.resume()).toMatchObject({ status: "resumed" });
  }
});

test("the return of a coder is saved, and what it had reported counts until its result is there", async () => {
  const browser = new Browser();
  const identity = { sandboxSessionId: "box", activeBranch: "main", repoId: "repo" };
  const recorder = new RunRecorder({
    chatId: "chat", provider: "p", model: "m", identity, storage: browser.storage(), lock: browser.locks.tab(), clock: browser.clock,
  });
  await recorder.begin({ baseMessageCount: 0, deltaMessages: [] });
  recorder.startRound(1);
  await recorder.startTools(looks);
  await recorder.delegate(({ onState }) => Promise.resolve(onState({ plan: "x" })));
  expect(saved(browser)).toMatchObject({ phase: "delegating_coder", coderDelegationActive: false, lastCoderState: "[CODER_STATE]\nPlan: x" });
  await recorder.toolResults([{ role: "tool", content: "coded", toolCallId: "9" }]);
  expect(saved(browser)).toMatchObject({ phase: "executing_tools", coderDelegationActive: false });
  await recorder.end("clear");
});

test("a loop of one's own that lost its lease runs no tool", async () => {
  const browser = new Browser();
  const storage = browser.storage();
  const lock = tabLock({ storage, clock: browser.clock, locks: null, localStorage: browser.local, heldHere: new Map() });
  let ran = 0;
  const loop = instrument(async ({ recorder }) => {
    recorder.startRound(1);
    // Another tab took the run over while this one slept.
    await storage.updateLease("chat", () => ({ owner: "other" }));
    await recorder.startTools(looks);
    ran += 1;
  }, { chatId: "chat", provider: "p", model: "m", sandbox: sandbox(), storage, lock, clock: browser.clock, conversation: { load: () => [], save: () => undefined } });
  await expect(loop.start()).rejects.toMatchObject({ code: "lock_lost" });
  expect(ran).toBe(0);
});

test("waiting for a lock does not depend on the clock, which may be set back", async () => {
  const browser = new Browser();
  const held = { held: [{ name: "run_active_chat" }] };
  const locks = {
    query: () => Promise.resolve(held),
    request: (_: string, __: unknown, take: (lock: null) => unknown) => Promise.resolve(take(null)),
  } as unknown as LockManager;
  // This clock stands still.
  const lock = tabLock({ storage: browser.storage(), clock: browser.clock, locks, localStorage: null, heldHere: new Map() });
  expect(await lock.acquire("chat")).toBeNull();
  expect(await lock.ownerOf("chat")).toBe("owned_by_other_tab");
});

test("a change whose result was cut off is named once, and its round goes on behind it", async () => {
  const { browser, conversation, messages } = await interrupted({ phase: "executing_tools", deltaMessages: [looks], round: 4 });
  const { run, requests } = testRun(browser, (_, round) => (round === 1 ? [call("read", {}, "10")] : [say("done")]), {
    conversation, tools: { read: { description: "", kind: "read", run: () => "r" } },
  });
  await run.open();
  await run.recovery.resume();
  expect(requests[0]?.messages.at(-1)?.content.match(/- w/g)).toHaveLength(1);
  expect(messages.map((message) => message.role)).toEqual(["user", "assistant", "tool", "user", "assistant", "tool", "assistant"]);
});

test("an interruption is counted once, however often the page looks for it", async () => {
  const { browser, conversation } = await interrupted({});
  const { run, events } = testRun(browser, () => [], { conversation });
  await run.open();
  await run.recovery.check();
  await run.recovery.check();
  expect(events.filter((event) => event.type === "interrupted")).toHaveLength(1);
});

test("a clock that is set back while a run is resumed gives no negative time", async () => {
  const { browser, conversation } = await interrupted({});
  const { run, events } = testRun(browser, function* () {
    browser.clock.time -= 3_600_000;
    yield say("done");
  }, { conversation });
  await run.open();
  await run.recovery.resume();
  expect(events.at(-1)).toMatchObject({ type: "resume_ended", timeToResumeMs: 0, success: true });
});

test("a prompt and a result of 5 MB: localStorage cannot hold them, and nothing of them is lost", async () => {
  const browser = new Browser();
  browser.local.limit = 1024 * 1024;
  const large = "x".repeat(5 * 1024 * 1024);
  let isAtResult = false;
  const tools = { read: { description: "", kind: "read" as const, run: () => large } };
  // The conversation cannot be saved behind the first time, so that the result is the checkpoint's alone.
  const messages: RunMessage[] = [];
  let saves = 0;
  const conversation: Conversation = {
    load: () => [...messages],
    save: (all) => {
      saves += 1;
      if (saves > 1) throw new Error("full");
      messages.splice(0, messages.length, ...all);
    },
  };
  const page = testRun(browser, async function* ({ signal }, round) {
    if (round === 1) yield call("read", {});
    else {
      isAtResult = true;
      await never(signal);
    }
  }, { conversation, tools });
  page.run.send(`${large}!`).catch(() => undefined);
  await until(() => isAtResult);
  // The page is gone; its lock with it.
  const left = new Browser();
  left.factory = browser.factory;
  left.local = browser.local;
  await until(async () => (await left.storage().load("chat")).checkpoint?.round === 2);
  const { run, requests } = testRun(left, () => [say("done")], { conversation: { load: () => [...messages], save: () => undefined }, tools });
  expect(await run.open()).toMatchObject({ status: "offered" });
  expect(await run.recovery.resume()).toMatchObject({ status: "resumed" });
  expect(requests[0]?.messages.map((message) => message.content.length).slice(0, 3)).toEqual([large.length + 1, 0, large.length]);
  expect(left.local.getItem("run_checkpoint_chat")).toBeNull();
});

test("the time to resume counts from the user's decision: the comparison with the workspace is a part of it", async () => {
  const { browser, conversation } = await interrupted({});
  const truth = () => {
    browser.clock.time += 9_000;
    return Promise.resolve(TRUTH);
  };
  const { run, events } = testRun(browser, () => [say("done")], { conversation, sandbox: sandbox({ truth }) });
  await run.open();
  await run.recovery.resume();
  expect(events.at(-1)).toMatchObject({ type: "resume_ended", timeToResumeMs: 9_000 });
});

describe("while a resume compares with the workspace", () => {
  /** A resume that waits for the workspace, and what lets it continue. */
  async function comparing(script: Parameters<typeof testRun>[1]) {
    const { browser, conversation, messages } = await interrupted({ accumulated: "Half" });
    let give: (truth: typeof TRUTH) => void = () => undefined;
    const page = testRun(browser, script, { conversation, sandbox: sandbox({ truth: () => new Promise((resolve) => (give = resolve)) }) });
    await page.run.open();
    const resumed = page.run.recovery.resume();
    await until(() => page.run.getState().recovery.status === "resuming");
    await new Promise((resolve) => setTimeout(resolve, 10));
    return { ...page, messages, resume: () => (give(TRUTH), resumed) };
  }

  test.each(["is active", "has ended"])("another run that was begun meanwhile and %s is left alone, and the old one is not offered", async (how) => {
    let end: () => void = () => undefined;
    const { run, requests, events, resume } = await comparing(async function* () {
      yield say("other");
      if (how === "is active") await new Promise<void>((resolve) => (end = resolve));
    });
    const sent = run.send("something else");
    await until(() => (how === "is active" ? run.getState().text === "other" : run.getState().status === "completed"));
    expect((await resume()).status).toBe("none");
    expect(bannerContent(run.getState().recovery)).toBeNull();
    end();
    expect(await sent).toBe("completed");
    expect(run.getState()).toMatchObject({ status: "completed", error: null });
    expect(requests).toHaveLength(1);
    expect(events.filter((event) => event.type === "resumed" || event.type === "resume_failed")).toEqual([]);
  });

  test("a run that was dismissed meanwhile is not offered again", async () => {
    const { run, requests, messages, resume } = await comparing(() => [say("x")]);
    await run.recovery.dismiss();
    expect(await resume()).toMatchObject({ status: "none", reason: "no_checkpoint" });
    expect(requests).toEqual([]);
    expect(messages).toEqual([user("go"), assistant("Half")]);
  });
});

test("a resume finds that a server owns the chat by now, and leaves it that", async () => {
  const { browser, conversation } = await interrupted({});
  const { run, requests } = testRun(browser, () => [say("x")], { conversation });
  await run.open();
  await testRun(browser, () => [], { conversation }).run.recovery.dismiss();
  await recordJob({ chatId: "chat", jobId: "ses_1", storage: browser.storage(), lock: browser.locks.tab() });
  expect(await run.recovery.resume()).toMatchObject({ status: "job", jobId: "ses_1" });
  expect(requests).toEqual([]);
});
