// What a timeline shows: turns, interruptions, resumes, checkpoints, questions, in the order of the log.
import type { LogRecord } from "piton-client";

export type PointKind = "turn" | "end" | "interruption" | "resume" | "checkpoint" | "question" | "error" | "agent" | "session";
export type Point = { seq: number; ts: string; kind: PointKind; text: string; record: LogRecord };

const text = (value: unknown): string => (typeof value === "string" ? value.replaceAll("_", " ") : "");

const READERS: Record<string, (record: LogRecord) => [PointKind, string]> = {
  "session.created": () => ["session", "Session created"],
  "session.forked": () => ["session", "Forked from another session"],
  "session.closed": (record) => ["session", `Closed as ${text(record["outcome"])}`],
  "run.started": () => ["turn", "Prompt"],
  "run.completed": () => ["end", "Completed"],
  "run.failed": (record) => ["error", `Failed: ${text(record["code"])}`],
  "run.cancelled": (record) => ["end", `Cancelled${record["reason"] ? `: ${text(record["reason"])}` : ""}`],
  "run.interrupted": (record) => ["interruption", `Interrupted: ${text(record["reason"])}${record["phase"] ? `, while ${text(record["phase"])}` : ""}`],
  "run.resumed": () => ["resume", "Continued"],
  "run.reattached": () => ["resume", "The server came back; the agent kept working"],
  "run.paused": () => ["question", "Paused"],
  "run.dismissed": () => ["end", "Interruption dismissed"],
  "run.waiting": (record) => ["question", `Asked: ${text(record["wait_kind"])}`],
  "agent.resuming": (record) => ["agent", `Agent starting (${text(record["context"]) || text(record["strategy"]) || "fresh"})`],
  "agent.exited": (record) => ["agent", `Agent ended${record["signal"] ? ` by signal ${String(record["signal"])}` : ""}`],
  "agent.error": (record) => ["error", `Agent error: ${text(record["code"])}`],
  "agent.session_cleared": () => ["error", "The agent does not know its conversation any more"],
  "executor.error": (record) => ["error", `Executor error: ${text(record["code"])}`],
  "executor.unreachable": () => ["error", "The executor did not respond"],
  "executor.abandoned": () => ["error", "The executor was abandoned"],
  "checkpoint.created": (record) => ["checkpoint", `Checkpoint${record["current_node"] ? ` after ${String(record["current_node"])}` : ""}`],
  "lineage.started": () => ["resume", "Continued from an older checkpoint"],
  "node.completed": (record) => ["turn", `Node ${String(record["path"])} completed`],
  "node.failed": (record) => ["error", `Node ${String(record["path"])} failed`],
};

export function pointOf(record: LogRecord): Point | null {
  // The answer to a question is no continuation after an interruption.
  if (record.kind === "run.resumed" && record["wait_id"]) return { seq: record.seq, ts: record.ts, kind: "question", text: "Answered", record };
  const read = READERS[record.kind];
  if (!read) return null;
  const [kind, words] = read(record);
  return { seq: record.seq, ts: record.ts, kind, text: words, record };
}

/** What happened between two points, counted. */
export function summary(records: readonly LogRecord[], from: number, to: number): { tools: number; messages: number; edits: string[] } {
  const [low, high] = from < to ? [from, to] : [to, from];
  const between = records.filter((record) => record.seq > low && record.seq <= high);
  const edits = new Set<string>();
  for (const record of between) {
    if (record.kind !== "tool.updated" && record.kind !== "tool.outcome") continue;
    const said = JSON.stringify(record["update"] ?? record["result"] ?? null);
    for (const found of said.matchAll(/"type":"diff","path":"((?:[^"\\]|\\.)*)"|"path":"((?:[^"\\]|\\.)*)"[^{}]*"type":"diff"/g)) edits.add(found[1] ?? found[2] ?? "");
  }
  return {
    tools: between.filter((record) => record.kind === "tool.intent").length,
    messages: between.filter((record) => record.kind === "message.completed").length,
    edits: [...edits],
  };
}
