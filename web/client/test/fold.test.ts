/** The fold comes to what Piton's own comes to: on committed histories, and on those of the last Rust test run. */
import { existsSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { type Delivery, foldRecords, SessionFold, type SessionView } from "../src/index.js";
import { recordOf } from "../src/socket.js";
import type { LogRecord } from "../src/types.js";

interface Vector {
  name: string;
  records: LogRecord[];
  view: Omit<SessionView, "status">;
}

function read(path: string): Vector[] {
  const url = new URL(path, import.meta.url);
  return existsSync(url) ? (JSON.parse(readFileSync(url, "utf8")) as Vector[]) : [];
}

/** Without what records do not say. */
function comparable(view: SessionView): unknown {
  const { status: _, ...rest } = view;
  return JSON.parse(JSON.stringify(rest));
}

const committed = read("./vectors/fold.json");
const fresh = read("../../../target/tmp/fold-vectors.json");

describe("the fold", () => {
  it("has vectors", () => {
    expect(committed.length).toBeGreaterThan(20);
  });

  it.each(committed.map((vector) => [vector.name, vector] as const))("equals Rust's: %s", (_, vector) => {
    expect(comparable(foldRecords(vector.records))).toEqual(vector.view);
  });

  it("equals Rust's on the histories of the last test run", () => {
    for (const vector of fresh) expect(comparable(foldRecords(vector.records)), JSON.stringify(vector.records)).toEqual(vector.view);
  });

  it("is the same when it begins with a server's answer in the middle", () => {
    for (const vector of committed) {
      const whole = foldRecords(vector.records);
      for (let at = 0; at <= vector.records.length; at += 7) {
        const before = foldRecords(vector.records.slice(0, at));
        if (before.session_id === null) continue;
        const fold = new SessionFold();
        const execution = vector.records.slice(0, at).findLast((record) => record.kind === "executor.starting");
        const status = { status: "idle", state: "WAITING_FOR_INPUT", reason: null, sentence: null } as const;
        fold.seed({ ...before, session_id: before.session_id, status, execution_id: (execution?.["execution_id"] as string) ?? null });
        for (const record of vector.records.slice(at)) fold.apply(record);
        // What a server's answer does not have: whose message was last. A later truncation marks another then.
        expect(comparable(fold.view), `${vector.name} at ${at}`).toEqual(comparable(whole));
      }
    }
  });

  it("replaces an item that changes, and no other", () => {
    const records = committed[0]?.records ?? [];
    const fold = new SessionFold();
    for (const record of records) {
      const before = fold.view.items;
      fold.apply(record);
      const after = fold.view.items;
      const changed = before.filter((item, index) => item !== after[index]);
      expect(changed.length, record.kind).toBeLessThanOrEqual(1);
    }
  });

  it("gives a call that an interruption cut off as unknown, and as pending while its run is open", () => {
    const records = committed.find((vector) => vector.name.startsWith("an interruption"))?.records ?? [];
    const at = records.findIndex((record) => record.kind === "run.interrupted");
    const tool = (count: number) => foldRecords(records.slice(0, count)).items.find((item) => item.type === "tool");
    expect(tool(at)).toMatchObject({ status: "pending" });
    expect(tool(at + 1)).toMatchObject({ status: "unknown" });
  });
});

describe("recordOf", () => {
  const base = { session_id: "s", task_id: null, seq: 4, ts: "t" };

  it("makes records of the socket's events", () => {
    const deliveries: [string, Record<string, unknown>, LogRecord][] = [
      ["session.message.added", { role: "user", message_id: "m", run_id: "r", text: "hi", offset: 0, complete: true }, { seq: 4, ts: "t", kind: "message.user", message_id: "m", run_id: "r", content: "hi" }],
      ["session.message.updated", { role: "agent", message_id: "m", run_id: "r", channel: "thought", offset: 2, text: "x", complete: false }, { seq: 4, ts: "t", kind: "message.delta", message_id: "m", run_id: "r", channel: "thought", offset: 2, text: "x" }],
      ["session.message.updated", { role: "agent", message_id: "m", offset: 3, text: "", complete: true, length: 3, hash: "h" }, { seq: 4, ts: "t", kind: "message.completed", message_id: "m", length: 3, hash: "h" }],
      ["session.agentctl_starting", { agent_execution_id: "e", runtime: "standalone" }, { seq: 4, ts: "t", kind: "executor.starting", execution_id: "e", runtime: "standalone" }],
      ["session.agent_configured", { chosen: { mode: "ask" } }, { seq: 4, ts: "t", kind: "agent.configured", mode: "ask" }],
      ["session.record", { kind: "tool.intent", record: { seq: 4, ts: "t", kind: "tool.intent", call_id: "c" } }, { seq: 4, ts: "t", kind: "tool.intent", call_id: "c" }],
    ];
    for (const [event, payload, record] of deliveries) expect(recordOf(event, { ...base, ...payload })).toEqual(record);
  });

  it("is a record source's delivery", () => {
    const delivery: Delivery = { record: recordOf("session.agentctl_ready", { ...base, agent_execution_id: "e" }), change: null };
    expect(delivery.record.kind).toBe("executor.ready");
  });
});
