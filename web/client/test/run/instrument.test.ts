import { afterEach, expect, test, vi } from "vitest";

import { instrument, type InstrumentOptions, type OwnLoop } from "../../src/run/instrument.js";
import { type RunCheckpoint, RunError, type RunMessage, type RunTelemetryEvent, tabLock } from "../../src/run/index.js";
import { Browser, checkpoint, never, sandbox, until } from "./helpers.js";

function options(browser: Browser, messages: RunMessage[]): InstrumentOptions {
  return {
    chatId: "chat", provider: "p", model: "m", sandbox: sandbox(), storage: browser.storage(), lock: browser.locks.tab(), clock: browser.clock,
    conversation: {
      load: () => messages,
      save: (all) => {
        messages.splice(0, messages.length, ...all);
      },
    },
  };
}

afterEach(() => {
  vi.unstubAllGlobals();
});

const saved = (browser: Browser) => JSON.parse(browser.local.getItem("run_checkpoint_chat") ?? "null") as RunCheckpoint | null;

test("a loop of one's own: its steps are saved, and cleared when it returns", async () => {
  const browser = new Browser();
  const seen: Array<Partial<RunCheckpoint> | null> = [];
  const look = () => {
    const found = saved(browser);
    seen.push(found && { phase: found.phase, accumulated: found.accumulated, baseMessageCount: found.baseMessageCount, deltaMessages: found.deltaMessages });
  };
  const messages: RunMessage[] = [{ role: "user", content: "earlier" }];
  const loop = instrument(async ({ recorder }: OwnLoop, prompt?: string) => {
    recorder.push({ role: "user", content: prompt ?? "" });
    recorder.startRound(1);
    recorder.text("Half");
    await recorder.responseReceived();
    look();
    const answer = { role: "assistant", content: "Half", toolCalls: [{ id: "1", name: "t", arguments: {} }] };
    await recorder.startTools(answer);
    look();
    await recorder.toolResults([{ role: "tool", content: "r", toolCallId: "1" }]);
    recorder.persisted(4);
    recorder.startRound(2);
    look();
  }, options(browser, messages));
  await loop.start("go");
  const user = { role: "user", content: "go" };
  const answer = { role: "assistant", content: "Half", toolCalls: [{ id: "1", name: "t", arguments: {} }] };
  expect(seen).toEqual([
    { phase: "streaming_llm", accumulated: "Half", baseMessageCount: 1, deltaMessages: [user] },
    { phase: "executing_tools", accumulated: "", baseMessageCount: 1, deltaMessages: [user, answer] },
    { phase: "streaming_llm", accumulated: "", baseMessageCount: 4, deltaMessages: [] },
  ]);
  expect(saved(browser)).toBeNull();
  expect(browser.locks.held.size).toBe(0);
});

test("an interrupted one is resumed with the saved provider, model and round", async () => {
  const browser = new Browser();
  await browser.storage().save(checkpoint({ provider: "old", model: "old-model", phase: "streaming_llm", accumulated: "Half", round: 4 }));
  let given: OwnLoop | undefined;
  const loop = instrument((own: OwnLoop) => {
    given = own;
    return Promise.resolve();
  }, options(browser, [{ role: "user", content: "go" }]));
  expect((await loop.recovery.check()).status).toBe("offered");
  await loop.recovery.resume();
  expect(given?.restored).toMatchObject({ provider: "old", model: "old-model", round: 4 });
  expect(given?.messages.at(-1)?.content).toContain("> Half");
  expect(saved(browser)).toBeNull();
});

test("a resumed loop that throws before any output keeps its checkpoint", async () => {
  const browser = new Browser();
  await browser.storage().save(checkpoint({ phase: "streaming_llm", accumulated: "Half" }));
  const before = saved(browser);
  const loop = instrument(({ recorder }: OwnLoop) => {
    recorder.startRound(3);
    return Promise.reject(new RunError("provider_unreachable", "down"));
  }, options(browser, [{ role: "user", content: "go" }]));
  await loop.recovery.check();
  expect(await loop.recovery.resume()).toMatchObject({ status: "offered", problem: { code: "provider_unreachable" } });
  expect(saved(browser)).toEqual(before);
});

test("an aborted one is marked at once", async () => {
  const browser = new Browser();
  const loop = instrument(async ({ recorder, signal }: OwnLoop) => {
    recorder.startRound(1);
    await never(signal);
  }, options(browser, []));
  const ended = loop.start();
  await until(() => saved(browser) !== null);
  loop.abort();
  expect(saved(browser)?.userAborted).toBe(true);
  await expect(ended).rejects.toMatchObject({ code: "aborted" });
  expect(saved(browser)).toBeNull();
});

test("one that dies because the page slept is offered without a reload; one that just fails has ended", async () => {
  for (const hasSlept of [true, false]) {
    const page = Object.assign(new EventTarget(), { visibilityState: "visible" });
    vi.stubGlobal("document", page);
    vi.stubGlobal("window", new EventTarget());
    const browser = new Browser();
    const loop = instrument(({ recorder }: OwnLoop) => {
      recorder.startRound(1);
      recorder.text("Half");
      if (hasSlept) {
        page.visibilityState = "hidden";
        page.dispatchEvent(new Event("visibilitychange"));
      }
      return Promise.reject(new Error("network error"));
    }, options(browser, []));
    await expect(loop.start()).rejects.toThrow("network error");
    expect(loop.recovery.getState().status).toBe(hasSlept ? "offered" : "none");
    expect(saved(browser)?.accumulated ?? null).toBe(hasSlept ? "Half" : null);
    expect(browser.locks.held.size).toBe(0);
  }
});

const calls: RunMessage = { role: "assistant", content: "I write", toolCalls: [{ id: "1", name: "write", arguments: {} }] };

test.each(["an error", "Stop"])("a run that ends with %s: what it had said is in the conversation, and it is not offered", async (how) => {
  const browser = new Browser();
  const messages: RunMessage[] = [{ role: "user", content: "earlier" }];
  const loop = instrument(async ({ recorder, signal }: OwnLoop, prompt?: string) => {
    recorder.push({ role: "user", content: prompt ?? "" });
    recorder.startRound(1);
    await recorder.startTools(calls);
    await recorder.toolResults([{ role: "tool", content: "written", toolCallId: "1" }]);
    recorder.startRound(2);
    recorder.text("Half");
    if (how === "Stop") loop.abort();
    signal.throwIfAborted();
    throw new RunError("stream_cut", "cut");
  }, options(browser, messages));
  await expect(loop.start("go")).rejects.toMatchObject({ code: how === "Stop" ? "aborted" : "stream_cut" });
  expect(messages.map((message) => message.content)).toEqual(["earlier", "go", "I write", "written", "Half"]);
  expect(saved(browser)).toBeNull();
  expect((await loop.recovery.check()).status).toBe("none");
});

test("a resumed run that fails behind its first word: all of it is kept, and the run that is over is not offered", async () => {
  const browser = new Browser();
  const messages: RunMessage[] = [{ role: "user", content: "go" }];
  await browser.storage().save(checkpoint({ deltaMessages: [calls] }));
  const events: RunTelemetryEvent[] = [];
  const loop = instrument(({ recorder }: OwnLoop) => {
    recorder.startRound(4);
    recorder.text("I see tha");
    return Promise.reject(new RunError("stream_cut", "cut"));
  }, { ...options(browser, messages), telemetry: (event) => events.push(event) });
  await loop.recovery.check();
  await expect(loop.recovery.resume()).rejects.toMatchObject({ code: "stream_cut" });
  expect(messages.map((message) => message.role)).toEqual(["user", "assistant", "tool", "user", "assistant"]);
  expect(messages[3]?.content).toContain("[SESSION_RESUMED]");
  expect(messages[4]?.content).toBe("I see tha");
  expect(loop.recovery.getState().status).toBe("resumed");
  expect((await loop.recovery.check()).status).toBe("none");
  expect(events.filter(({ type }) => type.startsWith("resume_"))).toMatchObject([{ type: "resume_ended", success: false, outcome: "error" }]);
});

test("a run whose conversation cannot be saved at its end keeps its checkpoint", async () => {
  const browser = new Browser();
  const loop = instrument(({ recorder }: OwnLoop) => {
    recorder.startRound(1);
    recorder.text("Half");
    return Promise.reject(new Error("cut"));
  }, { ...options(browser, []), conversation: { load: () => [], save: () => Promise.reject(new Error("full")) } });
  await expect(loop.start()).rejects.toThrow("cut");
  expect(saved(browser)?.accumulated).toBe("Half");
});

test("a resumed run that ends reports it, with the time since the user's decision", async () => {
  const browser = new Browser();
  await browser.storage().save(checkpoint({ phase: "streaming_llm" }));
  const events: RunTelemetryEvent[] = [];
  const loop = instrument(({ recorder }: OwnLoop) => {
    recorder.startRound(3);
    browser.clock.time += 1_000;
    recorder.text("Done.");
    return Promise.resolve();
  }, { ...options(browser, [{ role: "user", content: "go" }]), telemetry: (event) => events.push(event) });
  await loop.recovery.check();
  await loop.recovery.resume();
  expect(events.at(-1)).toMatchObject({ type: "resume_ended", success: true, outcome: "completed", timeToResumeMs: 1_000 });
});

test("the steps of a loop say that another tab has the run, before it saves or runs anything", async () => {
  const browser = new Browser();
  const storage = browser.storage();
  const lock = tabLock({ storage, clock: browser.clock, locks: null, localStorage: browser.local, heldHere: new Map() });
  const messages: RunMessage[] = [];
  const loop = instrument(async ({ recorder, messages: all }: OwnLoop) => {
    recorder.startRound(1);
    recorder.text("Mine");
    await storage.updateLease("chat", () => ({ owner: "other" }));
    await recorder.responseReceived();
    messages.push(...all, { role: "assistant", content: "Mine" });
  }, { ...options(browser, messages), storage, lock });
  await expect(loop.start()).rejects.toMatchObject({ code: "lock_lost" });
  expect(messages).toEqual([]);
});
