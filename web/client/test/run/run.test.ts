import { afterEach, describe, expect, test, vi } from "vitest";

import { gitTruth } from "../../src/run/git.js";
import { interruptionSummary, type RunCheckpoint, type RunMessage, RunError, type Tool } from "../../src/run/index.js";
import { Browser, call, checkpoint, lastOf, never, sandbox, say, testRun, until } from "./helpers.js";

/** A page that dies: nothing of it runs any more, its stores stay. */
function saved(browser: Browser): RunCheckpoint {
  return JSON.parse(browser.local.getItem("run_checkpoint_chat") ?? "null") as RunCheckpoint;
}

afterEach(() => {
  vi.unstubAllGlobals();
});

describe("the loop", () => {
  test("runs read-only tools side by side, then one change; the rest is refused", async () => {
    const browser = new Browser();
    const order: string[] = [];
    let open = 0;
    const read: Tool = {
      description: "", kind: "read",
      async run(input: { path: string }) {
        open += 1;
        order.push(`read ${input.path}`);
        await until(() => open === 2);
        return input.path;
      },
    };
    const write: Tool = { description: "", kind: "change", run: (input: { n: number }) => void order.push(`write ${input.n}`) };
    const { run } = testRun(
      browser,
      (_, round) => round === 1
        ? [call("read", { path: "a" }, "1"), call("read", { path: "b" }, "2"), call("write", { n: 1 }, "3"), call("write", { n: 2 }, "4")]
        : [say("done")],
      { tools: { read, write } },
    );
    expect(await run.send("go")).toBe("completed");
    expect(order).toEqual(["read a", "read b", "write 1"]);
    const results = run.getState().messages.filter((message) => message.role === "tool");
    expect(results.map((message) => message.toolCallId)).toEqual(["1", "2", "3", "4"]);
    expect(results[3]?.content).toContain("Not run");
    expect(browser.local.getItem("run_checkpoint_chat")).toBeNull();
    expect(browser.locks.held.size).toBe(0);
  });

  test("saves every phase before it begins, and every result after it", async () => {
    const browser = new Browser();
    const seen: Array<[string, Partial<RunCheckpoint>]> = [];
    const look = (at: string) => {
      const { phase, round, accumulated, deltaMessages, coderDelegationActive, lastCoderState } = saved(browser);
      seen.push([at, { phase, round, accumulated, coderDelegationActive, lastCoderState, deltaMessages: deltaMessages.map((m) => ({ role: m.role, content: m.content })) }]);
    };
    const { run } = testRun(browser, function* (_, round) {
      look(`stream ${round}`);
      if (round === 1) yield call("read", {});
      else if (round === 2) yield call("code", {});
      else yield say("done");
    }, {
      tools: {
        read: { description: "", kind: "read", run: () => { look("read"); return "r"; } },
        code: {
          description: "", kind: "delegate",
          run: (_: never, { onState }) => {
            look("code");
            onState({ plan: "p", tasks: ["t"], files: ["f"], assumptions: ["a"], errors: ["e"] });
            look("state");
            return "c";
          },
        },
      },
    });
    await run.send("go");
    const none = { coderDelegationActive: false, lastCoderState: null, accumulated: "" };
    const state = "[CODER_STATE]\nPlan: p\nOpen tasks:\n- t\nFiles touched:\n- f\nAssumptions:\n- a\nErrors:\n- e";
    expect(seen).toEqual([
      ["stream 1", { ...none, phase: "streaming_llm", round: 1, deltaMessages: [] }],
      ["read", { ...none, phase: "executing_tools", round: 1, deltaMessages: [{ role: "assistant", content: "" }] }],
      ["stream 2", { ...none, phase: "streaming_llm", round: 2, deltaMessages: [] }],
      ["code", { ...none, phase: "delegating_coder", round: 2, coderDelegationActive: true, deltaMessages: [{ role: "assistant", content: "" }] }],
      ["state", { ...none, phase: "delegating_coder", round: 2, coderDelegationActive: true, lastCoderState: state, deltaMessages: [{ role: "assistant", content: "" }] }],
      ["stream 3", { ...none, phase: "streaming_llm", round: 3, lastCoderState: state, deltaMessages: [] }],
    ]);
  });

  test("keeps a checkpoint under 15 KB through 30 rounds", async () => {
    const browser = new Browser();
    const sizes: number[] = [];
    const set = browser.local.setItem.bind(browser.local);
    browser.local.setItem = (key, value) => {
      if (key.startsWith("run_checkpoint_")) sizes.push(value.length);
      set(key, value);
    };
    const { run } = testRun(browser, function* (_, round) {
      yield say("I look at the next file and tell you what I find. ".repeat(40));
      if (round < 30) yield call("read", { path: `src/file${round}.ts` }, `c${round}`);
    }, { tools: { read: { description: "", kind: "read", run: () => "line of the file\n".repeat(400) } } });
    expect(await run.send("go")).toBe("completed");
    expect(sizes.length).toBeGreaterThanOrEqual(90);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(15 * 1024);
  });

  test("without a place for the conversation the oldest rounds go, with a warning", async () => {
    const browser = new Browser();
    const { run, events } = testRun(browser, function* (_, round) {
      if (round > 1) {
        const { deltaMessages, trimmedMessages } = saved(browser);
        expect(JSON.stringify(deltaMessages).length).toBeLessThan(60_000);
        if (round > 12) expect(trimmedMessages).toBeGreaterThan(0);
      }
      if (round < 20) yield call("read", {}, `c${round}`);
    }, {
      conversation: { load: () => [], save: () => Promise.reject(new Error("full")) },
      tools: { read: { description: "", kind: "read", run: () => "x".repeat(5_000) } },
    });
    await run.send("go");
    expect(events.filter((event) => event.type === "warning" && event.code === "checkpoint_large")).toHaveLength(1);
  });

  test("a tool that never returns is given up, and the model learns of it", async () => {
    const browser = new Browser();
    const { run } = testRun(browser, (_, round) => (round === 1 ? [call("hang", {})] : [say("I see")]), {
      tools: { hang: { description: "", kind: "change", timeoutMs: 20, run: () => never() } },
    });
    expect(await run.send("go")).toBe("completed");
    expect(run.getState().messages[2]?.content).toContain("did not return within 0.02 s. Its outcome is unknown");
  });

  test("a tool that fails or does not exist is a result", async () => {
    const { run } = testRun(new Browser(), (_, round) => (round === 1 ? [call("bad", {}, "1"), call("toString", {}, "2")] : [say("ok")]), {
      tools: { bad: { description: "", kind: "read", run: () => { throw new Error("no such file"); } } },
    });
    await run.send("go");
    expect(run.getState().messages.slice(2, 4).map((message) => message.content)).toEqual(["Error: no such file", "Error: there is no tool toString."]);
  });

  test("an error of the provider ends the run; what it had said is kept", async () => {
    const browser = new Browser();
    const { run } = testRun(browser, function* () {
      yield say("Half a sen");
      throw new RunError("provider_error", "overloaded");
    });
    expect(await run.send("go")).toBe("error");
    expect(run.getState().error).toEqual({ code: "provider_error", message: "overloaded" });
    expect(lastOf(await browser.storage().loadConversation("chat"))).toEqual({ role: "assistant", content: "Half a sen" });
    expect(saved(browser)).toBeNull();
  });

  test("a provider that says nothing is given up", async () => {
    const { run } = testRun(new Browser(), async function* ({ signal }) {
      yield say("Half");
      await never(signal);
    }, { limits: { streamTimeoutMs: 20 } });
    expect(await run.send("go")).toBe("error");
    expect(run.getState().error?.code).toBe("provider_timeout");
  });

  test("an abort is on the disk at once, and nothing is offered", async () => {
    const browser = new Browser();
    const { run } = testRun(browser, async function* ({ signal }) {
      yield say("Half");
      await never(signal);
    });
    const ended = run.send("go");
    await until(() => run.getState().text === "Half");
    run.abort();
    expect(saved(browser)).toMatchObject({ userAborted: true, accumulated: "Half" });
    expect(await ended).toBe("aborted");
    expect(saved(browser)).toBeNull();
    expect(lastOf(run.getState().messages).content).toBe("Half");
  });

  test("a run without any storage runs, and says that it is not safe", async () => {
    const browser = new Browser();
    const { run, events } = testRun(browser, () => [say("done")], {
      storage: browser.storage({ localStorage: null, indexedDB: null }),
      conversation: { load: () => [], save: () => undefined },
    });
    expect(await run.send("go")).toBe("completed");
    const codes = events.map((event) => (event.type === "warning" ? event.code : event.type));
    expect(codes).toEqual(expect.arrayContaining(["local_storage_unavailable", "indexed_db_unavailable", "not_saved"]));
  });

  test("two at once are refused", async () => {
    const browser = new Browser();
    const hang = async function* ({ signal }: { signal: AbortSignal }) {
      yield say("x");
      await never(signal);
    };
    const first = testRun(browser, hang).run;
    const ended = first.send("go");
    await until(() => first.getState().text === "x");
    await expect(first.send("again")).rejects.toMatchObject({ code: "run_in_progress" });
    await expect(testRun(browser, hang).run.send("other tab")).rejects.toMatchObject({ code: "owned_by_other_tab" });
    first.abort();
    await ended;
  });
});

/** A page that died in the given phase, and the one that is opened after it. */
async function interrupted(phase: Partial<RunCheckpoint>, base: RunMessage[] = [{ role: "user", content: "go" }]) {
  const browser = new Browser();
  const storage = browser.storage();
  await storage.saveConversation("chat", base);
  await storage.save(checkpoint({ baseMessageCount: base.length, ...phase }));
  return browser;
}

describe("recovery", () => {
  test("asks first; Resume continues with the history, the deltas, the summary, the saved provider and model", async () => {
    const delta: RunMessage[] = [{ role: "assistant", content: "", toolCalls: [{ id: "9", name: "write", arguments: { path: "a.txt" } }] }];
    const browser = await interrupted({ provider: "old", model: "old-model", deltaMessages: delta });
    const { run, requests, events } = testRun(browser, () => [say("It is there already.")]);
    const state = await run.open();
    expect(state).toMatchObject({ status: "offered", sentence: "The session was interrupted while tools were running. Resume where you left off?" });
    expect(requests).toHaveLength(0);
    await run.recovery.resume();
    expect(run.getState().status).toBe("completed");
    const [request] = requests;
    expect(request).toMatchObject({ provider: "old", model: "old-model" });
    expect(request?.messages.slice(0, 2)).toEqual([{ role: "user", content: "go" }, delta[0]]);
    expect(request?.messages[2]).toMatchObject({ role: "tool", toolCallId: "9" });
    expect(request?.messages[3]?.content).toBe(interruptionSummary({
      phase: "executing_tools", round: 3, answer: "", calls: delta[0]?.toolCalls ?? [], coderState: null,
      truth: { branch: "main", head: "abc1234", changed: [[" M", "a.txt"]], more: 0, stat: { files: 1, added: 1, removed: 0 } },
    }, "Continue where you left off."));
    expect(saved(browser)).toBeNull();
    expect(events.map((event) => event.type)).toEqual(["interrupted", "resumed", "resume_ended"]);
    expect(events[2]).toMatchObject({ phase: "executing_tools", success: true, timeToResumeMs: expect.any(Number) as number });
  });

  test("gives the model all of the answer that was cut off", async () => {
    const accumulated = "word ".repeat(3_000);
    const browser = await interrupted({ phase: "streaming_llm", accumulated });
    const { run, requests } = testRun(browser, () => [say("…")]);
    await run.open();
    await run.recovery.resume();
    expect(lastOf(requests[0]?.messages ?? []).content).toContain(`> ${accumulated}`);
  });

  test("of a delegation has the coder's last state", async () => {
    const browser = await interrupted({ phase: "delegating_coder", coderDelegationActive: true, lastCoderState: "[CODER_STATE]\nPlan: x" });
    const { run, requests } = testRun(browser, () => [say("…")]);
    await run.open();
    await run.recovery.resume();
    expect(lastOf(requests[0]?.messages ?? []).content).toContain("Last known Coder state:\n> [CODER_STATE]\n> Plan: x");
  });

  test("with the provider down keeps the checkpoint as it was, and offers again", async () => {
    const browser = await interrupted({ phase: "streaming_llm", accumulated: "Half a sen" });
    const before = saved(browser);
    let isDown = true;
    const { run, requests, events } = testRun(browser, function* () {
      if (isDown) throw new RunError("provider_unreachable", "The provider cannot be reached.");
      yield say("tence.");
    });
    await run.open();
    expect(await run.recovery.resume()).toMatchObject({ status: "offered", problem: { code: "provider_unreachable" } });
    expect(saved(browser)).toEqual(before);
    expect(browser.locks.held.size).toBe(0);
    isDown = false;
    await run.recovery.resume();
    expect(run.getState().status).toBe("completed");
    expect(requests[1]?.messages).toEqual(requests[0]?.messages);
    expect(events.map((event) => event.type)).toEqual(["interrupted", "resumed", "resume_failed", "resumed", "resume_ended"]);
  });

  test("without truth says why, and can do without it when the user says so", async () => {
    const browser = await interrupted({});
    const { run, requests } = testRun(browser, () => [say("ok")], {
      sandbox: sandbox({ truth: () => never() }),
      limits: { truthTimeoutMs: 20 },
    });
    await run.open();
    const state = await run.recovery.resume();
    expect(state).toMatchObject({ status: "offered", problem: { code: "truth_unavailable", canResumeWithoutTruth: true } });
    expect(requests).toHaveLength(0);
    await run.recovery.resume({ withoutTruth: true });
    expect(lastOf(requests[0]?.messages ?? []).content).toContain("Look at the workspace before you change anything.");
  });

  test("of a sandbox that is gone starts a new one and keeps what was said", async () => {
    const browser = await interrupted({ phase: "streaming_llm", accumulated: "Half a sen" });
    const create = vi.fn(() => Promise.resolve());
    const { run, requests } = testRun(browser, () => [], {
      sandbox: sandbox({ isAlive: () => Promise.resolve(false), create }),
    });
    await run.open();
    expect(await run.recovery.resume()).toMatchObject({ status: "fresh", sentence: expect.stringContaining("Sandbox expired, starting fresh") as string });
    expect(create).toHaveBeenCalledOnce();
    expect(requests).toHaveLength(0);
    expect(lastOf(await browser.storage().loadConversation("chat")).content).toBe("Half a sen");
    expect((await browser.storage().load("chat")).checkpoint).toBeNull();
  });

  test("a sandbox that cannot be reached is not gone", async () => {
    const browser = await interrupted({});
    const { run } = testRun(browser, () => [], {
      sandbox: sandbox({ isAlive: () => Promise.reject(new Error("offline")), truth: () => Promise.reject(new Error("offline")) }),
    });
    await run.open();
    expect(await run.recovery.resume()).toMatchObject({ status: "offered", problem: { code: "truth_unavailable" } });
  });

  test("dismissed: not offered again, and nothing of it is lost", async () => {
    const delta: RunMessage[] = [{ role: "assistant", content: "look", toolCalls: [{ id: "9", name: "w", arguments: {} }] }];
    const browser = await interrupted({ deltaMessages: delta });
    const { run } = testRun(browser, () => []);
    await run.open();
    await run.recovery.dismiss();
    expect((await browser.storage().loadConversation("chat")).map((message) => message.role)).toEqual(["user", "assistant", "tool"]);
    expect((await testRun(browser, () => []).run.open())).toMatchObject({ status: "none", reason: "no_checkpoint" });
  });

  test("a new prompt instead of Resume keeps what the interrupted run had said", async () => {
    const browser = await interrupted({ phase: "streaming_llm", accumulated: "Half a sen" });
    const { run, requests } = testRun(browser, () => [say("new")]);
    await run.open();
    await run.send("something else");
    expect(requests[0]?.messages.map((message) => message.content)).toEqual(["go", "Half a sen", "something else"]);
  });

  test("two tabs that resume at once: one does", async () => {
    const browser = await interrupted({});
    const tabs = [testRun(browser, () => [say("done")]), testRun(browser, () => [say("done")])];
    await Promise.all(tabs.map(({ run }) => run.open()));
    await Promise.all(tabs.map(({ run }) => run.recovery.resume()));
    expect(tabs.map(({ requests }) => requests.length).sort()).toEqual([0, 1]);
  });

  test("a run that another tab has ended since is not run again", async () => {
    const browser = await interrupted({});
    const late = testRun(browser, () => [say("twice")]);
    await late.run.open();
    const quick = testRun(browser, () => [say("done")]);
    await quick.run.open();
    await quick.run.recovery.resume();
    await late.run.recovery.resume();
    expect(late.requests).toHaveLength(0);
    expect(late.run.getState().recovery).toMatchObject({ status: "none", reason: "no_checkpoint" });
  });

  test("a conversation that is not complete is not resumed, and nothing is cleared", async () => {
    const browser = await interrupted({ baseMessageCount: 5 });
    const { run } = testRun(browser, () => []);
    await run.open();
    expect(await run.recovery.resume()).toMatchObject({ status: "offered", problem: { code: "conversation_missing" } });
    expect(saved(browser).baseMessageCount).toBe(5);
  });
});

test("truth comes from one command, also where paths are strange", async () => {
  const commands: string[] = [];
  const truth = await gitTruth((command) => {
    commands.push(command);
    return Promise.resolve(" M a b.txt\n?? \"n\\nl\"\n--piton-truth--\nabc\n--piton-truth--\nmain\n--piton-truth--\n 2 files changed, 10 insertions(+), 1 deletion(-)\n");
  })();
  expect(commands).toHaveLength(1);
  expect(truth).toEqual({ branch: "main", head: "abc", changed: [[" M", "a b.txt"], ["??", '"n\\nl"']], more: 0, stat: { files: 2, added: 10, removed: 1 } });
  await expect(gitTruth(() => Promise.resolve({ stdout: "", exitCode: 128 }))()).rejects.toMatchObject({ code: "truth_unavailable" });
});
