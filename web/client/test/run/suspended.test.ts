/** A page that is hidden already when something begins, as on systems that suspend it without another event. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { instrument } from "../../src/run/instrument.js";
import { type RunMessage } from "../../src/run/index.js";
import { Browser, call, sandbox, say, testRun } from "./helpers.js";

let page: EventTarget & { visibilityState: string };
const show = (visibilityState: string) => {
  page.visibilityState = visibilityState;
  page.dispatchEvent(new Event("visibilitychange"));
};

beforeEach(() => {
  page = Object.assign(new EventTarget(), { visibilityState: "visible" });
  vi.stubGlobal("document", page);
  vi.stubGlobal("window", new EventTarget());
});

afterEach(() => {
  vi.unstubAllGlobals();
});

const read = { description: "", kind: "read" as const, run: () => "text" };

test.each([[1], [2]])("hidden in round %i, the connection dies in round 2: interrupted and offered, nothing lost", async (hideIn) => {
  const browser = new Browser();
  const { run } = testRun(browser, function* (_, round) {
    yield say(`Round ${round}. `);
    if (round === hideIn) show("hidden");
    if (round === 1) yield call("read", {});
    else throw new TypeError("Load failed");
  }, { tools: { read } });
  expect(await run.send("go")).toBe("interrupted");
  expect(run.getState().recovery).toMatchObject({ status: "offered", checkpoint: { round: 2, accumulated: "Round 2. " } });
});

test("a page that was hidden and is seen again: what fails in a later round has failed", async () => {
  const browser = new Browser();
  const { run } = testRun(browser, function* (_, round) {
    if (round === 1) {
      show("hidden");
      show("visible");
      yield call("read", {});
    } else throw new TypeError("Load failed");
  }, { tools: { read } });
  expect(await run.send("go")).toBe("error");
  expect((await browser.storage().load("chat")).checkpoint).toBeNull();
});

test("hidden since round 1, a change dies in round 2: its outcome is unknown, and the model is not told that it failed", async () => {
  const browser = new Browser();
  const { run, requests } = testRun(browser, function* (_, round) {
    if (round === 1) show("hidden");
    yield call(round === 1 ? "read" : "write", {});
  }, { tools: { read, write: { description: "", kind: "change", run: () => Promise.reject(new TypeError("Load failed")) } } });
  expect(await run.send("go")).toBe("interrupted");
  expect(requests).toHaveLength(2);
  expect(run.getState().recovery).toMatchObject({ status: "offered", checkpoint: { phase: "executing_tools" } });
});

test("asleep since before the stream was waited for: the time does not count, it gets the time of a page that wakes", async () => {
  const browser = new Browser();
  const timers: Array<{ run: () => void; ms: number }> = [];
  // The timer of a page that slept through its time is over when the page wakes.
  const clock = {
    now: () => browser.clock.now(),
    setTimeout: (run: () => void, ms: number) => timers.push({ run, ms }),
    clearTimeout: () => undefined,
  };
  const { run } = testRun(browser, async function* (_, round) {
    if (round === 1) {
      show("hidden");
      yield call("read", {});
      return;
    }
    timers.findLast(({ ms }) => ms === 1_000)?.run();
    expect(timers.at(-1)?.ms).toBe(300);
    yield say("It came after all.");
  }, { tools: { read }, clock, limits: { streamTimeoutMs: 1_000, wakeTimeoutMs: 300 } });
  expect(await run.send("go")).toBe("completed");
});

test("a loop of one's own that is hidden since an earlier round is interrupted", async () => {
  const browser = new Browser();
  const messages: RunMessage[] = [];
  const loop = instrument(async ({ recorder }) => {
    recorder.startRound(1);
    show("hidden");
    await recorder.responseReceived();
    recorder.startRound(2);
    recorder.text("Half");
    throw new TypeError("Load failed");
  }, {
    chatId: "chat", provider: "p", model: "m", sandbox: sandbox(), storage: browser.storage(), lock: browser.locks.tab(), clock: browser.clock,
    conversation: { load: () => messages, save: (all) => void messages.splice(0, messages.length, ...all) },
  });
  await expect(loop.start()).rejects.toThrow("Load failed");
  expect(loop.recovery.getState()).toMatchObject({ status: "offered", checkpoint: { round: 2, accumulated: "Half" } });
});
