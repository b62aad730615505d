// What a timeline shows: turns, interruptions, resumes, checkpoints, rewinds, questions, in the order of the log.
import { isInSegments, type Lineage, type LogRecord, segmentsOf } from "piton-client";

export type PointKind = "turn" | "end" | "interruption" | "resume" | "checkpoint" | "rewind" | "question" | "error" | "agent" | "session";
export type Point = {
  seq: number;
  ts: string;
  kind: PointKind;
  text: string;
  record: LogRecord;
  lineage: number;
  /** A rewind, or a resume from an older checkpoint, left it behind. */
  isAbandoned: boolean;
};

export const SIGNS: Record<PointKind, string> = { turn: "●", end: "○", interruption: "✂", resume: "▸", checkpoint: "◆", rewind: "▲", question: "?", error: "✕", agent: "·", session: "■" };

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
  "checkpoint.created": (record) => ["checkpoint", checkpointText(record)],
  "workspace.restored": (record) => ["rewind", `Files restored: ${String(record["paths_count"])}`],
  "lineage.started": (record) => ["rewind", `Back to record ${String(record["from_seq"])}, as lineage ${String(record["lineage"])}`],
  "node.completed": (record) => ["turn", `Node ${String(record["path"])} completed`],
  "node.failed": (record) => ["error", `Node ${String(record["path"])} failed`],
};

const CHECKPOINTS: Record<string, string> = { turn_start: "before a prompt", turn_complete: "after a turn", node_start: "before", node_complete: "after", loop_iteration: "in the loop", edge: "behind", safe_point: "safe point at", user_checkpoint: "question of" };

function checkpointText(record: LogRecord): string {
  const type = String(record["checkpoint_type"] ?? "");
  const node = record["current_node"];
  return `Checkpoint ${CHECKPOINTS[type] ?? text(type)}${node ? ` ${String(node)}` : ""}`;
}

function pointOf(record: LogRecord): Pick<Point, "kind" | "text"> | null {
  // The answer to a question is no continuation after an interruption.
  if (record.kind === "run.resumed" && record["wait_id"]) return { kind: "question", text: "Answered" };
  const read = READERS[record.kind];
  if (!read) return null;
  const [kind, words] = read(record);
  return { kind, text: words };
}

export function lineagesOf(records: readonly LogRecord[]): Lineage[] {
  const starts = records.filter((record) => record.kind === "lineage.started");
  return starts.map((record) => ({ lineage: Number(record["lineage"]), from_lineage: Number(record["from_lineage"]), from_seq: Number(record["from_seq"]), at: record.seq }));
}

export function pointsOf(records: readonly LogRecord[]): Point[] {
  const segments = segmentsOf(lineagesOf(records));
  const points: Point[] = [];
  let lineage = 1;
  for (const record of records) {
    if (record.kind === "lineage.started") lineage = Number(record["lineage"]);
    const point = pointOf(record);
    // Files that the same rewind restored are said in the record before it.
    const isAbandoned = !isInSegments(segments, record.seq) && !(record.kind === "workspace.restored" && isInSegments(segments, record.seq + 1));
    if (point) points.push({ ...point, seq: record.seq, ts: record.ts, record, lineage, isAbandoned });
  }
  return points;
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
