import { describe, expect, test } from "vitest";

import { openCalls, parseCheckpoint, trimMessages, withOpenCallsAnswered } from "../../src/run/checkpoint.js";
import { activeKey, checkpointKey, type RunMessage } from "../../src/run/index.js";
import { checkpoint } from "./helpers.js";

test("the keys are named after the chat", () => {
  expect(checkpointKey("c1")).toBe("run_checkpoint_c1");
  expect(activeKey("c1")).toBe("run_active_c1");
});

describe("a checkpoint that is read again", () => {
  const kind = (raw: unknown) => parseCheckpoint(raw, "chat").kind;

  test("is the one that was written", () => {
    const written = checkpoint({ accumulated: "half a sen", lastCoderState: "x" });
    expect(parseCheckpoint(JSON.stringify(written), "chat")).toEqual({ kind: "checkpoint", checkpoint: written });
  });

  test("is damaged when any field is missing or has another type", () => {
    const whole = checkpoint() as unknown as Record<string, unknown>;
    for (const key of Object.keys(whole)) {
      const { [key]: _, ...without } = whole;
      expect(kind(JSON.stringify(without)), `without ${key}`).toBe("damaged");
      expect(kind(JSON.stringify({ ...whole, [key]: { no: 1 } })), `another ${key}`).toBe("damaged");
    }
    expect(kind(JSON.stringify(checkpoint()).slice(0, -7))).toBe("damaged");
    expect(kind("null")).toBe("damaged");
    expect(kind(JSON.stringify(checkpoint({ chatId: "other" })))).toBe("damaged");
    expect(kind(JSON.stringify({ ...whole, deltaMessages: [{ role: "user" }] }))).toBe("damaged");
  });

  test("of a newer version is left alone", () => {
    expect(kind(JSON.stringify({ version: 2, anything: true }))).toBe("newer");
  });
});

describe("calls without a result", () => {
  const assistant: RunMessage = {
    role: "assistant", content: "", toolCalls: [{ id: "1", name: "a", arguments: {} }, { id: "2", name: "b", arguments: {} }],
  };
  const first: RunMessage = { role: "tool", content: "ok", toolCallId: "1" };

  test("are those of the last answer", () => {
    expect(openCalls([assistant, first]).map((call) => call.id)).toEqual(["2"]);
    expect(openCalls([assistant, first, { role: "assistant", content: "done" }])).toEqual([]);
    expect(openCalls([])).toEqual([]);
  });

  test("get a result that says so, since providers refuse a transcript without", () => {
    const answered = withOpenCallsAnswered([assistant, first]);
    expect(answered.map((message) => message.toolCallId)).toEqual([undefined, "1", "2"]);
    expect(answered[2]?.content).toContain("unknown");
    expect(openCalls(answered)).toEqual([]);
  });
});

describe("messages that are too many", () => {
  const round = (n: number, size: number): RunMessage[] => [
    { role: "assistant", content: "x".repeat(size), toolCalls: [{ id: `${n}`, name: "read", arguments: {} }] },
    { role: "tool", content: "y".repeat(size), toolCallId: `${n}` },
  ];
  const prompt: RunMessage = { role: "user", content: "Fix it" };

  test("lose the oldest whole rounds, and say how many messages", () => {
    const messages = [prompt, ...[1, 2, 3, 4].flatMap((n) => round(n, 1_000))];
    const { messages: kept, trimmed } = trimMessages(messages, 5_000);
    expect(trimmed).toBe(4);
    expect(kept[0]).toEqual(prompt);
    expect(kept[1]?.content).toContain("[4 earlier messages");
    expect(kept.slice(2)).toEqual(messages.slice(5));
  });

  test("keep every call with its results", () => {
    for (let budget = 0; budget < 12_000; budget += 500) {
      const { messages } = trimMessages([prompt, ...[1, 2, 3, 4, 5].flatMap((n) => round(n, 1_000))], budget);
      const calls = messages.flatMap((message) => message.toolCalls ?? []).map((call) => call.id);
      const results = messages.flatMap((message) => message.toolCallId ?? []);
      expect(results, `${budget} bytes`).toEqual(calls);
    }
  });

  test("keep the last round whole, also one of 5 MB", () => {
    const large = round(2, 5_000_000);
    const { messages } = trimMessages([prompt, ...round(1, 10), ...large], 50_000);
    expect(messages.slice(-2)).toEqual(large);
  });

  test("are counted on when they are trimmed again", () => {
    const once = trimMessages([prompt, ...[1, 2, 3].flatMap((n) => round(n, 1_000))], 3_000);
    const twice = trimMessages([...once.messages, ...round(4, 1_000)], 3_000);
    expect(twice.messages[1]?.content).toContain(`[${once.trimmed + 2} earlier messages`);
    expect(twice.messages.filter((message) => message.content.includes("earlier messages"))).toHaveLength(1);
  });
});
