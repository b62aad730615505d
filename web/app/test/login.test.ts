/** How one can log in, as the record of the agent's error says it. */
import type { Item, LogRecord } from "piton-client";
import { expect, it } from "vitest";
import { lastAgentError, loginMethodsOf } from "../src/screens/session/login.ts";

const record = (more: Record<string, unknown>) => ({ seq: 7, ts: "t", kind: "agent.error", ...more }) as unknown as LogRecord;

it("reads the methods of an agent's error, and nothing of what is no method", () => {
  expect(loginMethodsOf(record({ auth_methods: [{ id: "a", name: "A", description: "about" }, { id: "b" }] }))).toEqual([
    { id: "a", name: "A", description: "about" },
    { id: "b", name: "b", description: null },
  ]);
  expect(loginMethodsOf(record({ auth_methods: [null, 3, { name: "no id" }, { id: "" }] }))).toEqual([]);
  expect([loginMethodsOf(record({})), loginMethodsOf(record({ kind: "run.failed", auth_methods: [{ id: "a" }] })), loginMethodsOf(undefined)]).toEqual([[], [], []]);
});

it("the last error counts", () => {
  const notice = (seq: number, kind: string) => ({ type: "notice", seq, kind }) as unknown as Item;
  expect(lastAgentError([notice(1, "agent.error"), notice(4, "agent.error"), notice(5, "run.failed")])).toBe(4);
  expect(lastAgentError([notice(5, "run.failed")])).toBeNull();
});
