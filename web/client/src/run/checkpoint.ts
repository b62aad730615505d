/** Checkpoints as text: written, read again with suspicion, and kept small. Nothing here touches a store. */
import { CHECKPOINT_VERSION, type LoopPhase, type RunCheckpoint, type RunMessage, type ToolCall } from "./types.js";

/** A checkpoint of this size is worth a warning; above it the oldest rounds are left out. */
export const WARN_BYTES = 50 * 1024;

const PHASES: LoopPhase[] = ["streaming_llm", "executing_tools", "delegating_coder"];

export function checkpointKey(chatId: string): string {
  return `run_checkpoint_${chatId}`;
}

export function activeKey(chatId: string): string {
  return `run_active_${chatId}`;
}

/** The run of this chat ended: newer than every checkpoint that was written before it. */
export interface Tombstone {
  version: number;
  chatId: string;
  cleared: true;
  writeSeq: number;
  savedAt: number;
}

export type Parsed =
  | { kind: "checkpoint"; checkpoint: RunCheckpoint }
  | { kind: "cleared"; tombstone: Tombstone }
  | { kind: "damaged"; why: string }
  | { kind: "newer" };

/** Reads what a store had. Every field is looked at: stores are edited, cut off and shared with other versions. */
export function parseCheckpoint(raw: unknown, chatId: string): Parsed {
  let value: unknown;
  try {
    value = typeof raw === "string" ? JSON.parse(raw) : raw;
  } catch {
    // No JSON is no object either.
  }
  const damaged = (why: string): Parsed => ({ kind: "damaged", why });
  if (!isObject(value)) return damaged("no object");
  if ((value.version as number) > CHECKPOINT_VERSION) return { kind: "newer" };
  const isOurs = value.version === CHECKPOINT_VERSION && value.chatId === chatId;
  if (!isOurs || !isCount(value.writeSeq) || !Number.isFinite(value.savedAt)) return damaged("no position");
  if (value.cleared === true) return { kind: "cleared", tombstone: value as unknown as Tombstone };
  const wrong = wrongField(value);
  return wrong ? damaged(`field ${wrong}`) : { kind: "checkpoint", checkpoint: value as unknown as RunCheckpoint };
}

function wrongField(value: Record<string, unknown>): string | undefined {
  const text = (field: unknown) => typeof field === "string";
  const flag = (field: unknown) => typeof field === "boolean";
  const textOrNull = (field: unknown) => field === null || text(field);
  const checks: Record<string, (field: unknown) => boolean> = {
    accumulated: text, thinkingAccumulated: text, provider: text, model: text, sandboxSessionId: text, activeBranch: text,
    repoId: text, runId: text, round: isCount, baseMessageCount: isCount, trimmedMessages: isCount, userAborted: flag,
    coderDelegationActive: flag, lastCoderState: textOrNull, jobId: textOrNull,
    phase: (field) => PHASES.includes(field as LoopPhase),
    accumulatedFrom: (field) => field === undefined || isCount(field),
    deltaMessages: (field) => Array.isArray(field) && field.every(isMessage),
  };
  return Object.keys(checks).find((key) => !checks[key]?.(value[key]));
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

export function isMessage(value: unknown): boolean {
  if (!isObject(value) || typeof value.role !== "string" || typeof value.content !== "string") return false;
  const { toolCalls } = value;
  const isCall = (call: unknown) => isObject(call) && typeof call.id === "string" && typeof call.name === "string";
  return toolCalls === undefined || (Array.isArray(toolCalls) && toolCalls.every(isCall));
}

/** Calls of the last assistant's message that have no result. */
export function openCalls(messages: RunMessage[]): ToolCall[] {
  const at = messages.findLastIndex((message) => message.role === "assistant");
  const calls = messages[at]?.toolCalls ?? [];
  const answered = new Set(messages.slice(at + 1).map((message) => message.toolCallId));
  return calls.filter((call) => !answered.has(call.id));
}

/**
 * A transcript in which every call has a result, since providers refuse any other: a call that was cut
 * off gets a result that says so.
 */
export function withOpenCallsAnswered(messages: RunMessage[]): RunMessage[] {
  const unknown = openCalls(messages).map((call) => ({
    role: "tool",
    content: "[The outcome of this call is unknown: the run was interrupted.]",
    toolCallId: call.id,
    toolName: call.name,
  }));
  return messages.concat(unknown);
}

function bytesOf(text: string): number {
  return new TextEncoder().encode(text).length;
}

const LEFT_OUT = /^\[(\d+) earlier messages of this run were left out/;

export interface TrimmedMessages {
  messages: RunMessage[];
  trimmed: number;
  /** Before any were left out. */
  bytes: number;
}

/**
 * Leaves the oldest whole rounds out until the messages have at most `bytesMax` bytes. A round begins with
 * a message that answers no call, so a call and its results go together. The request that began the run
 * and the last round stay, whatever their size. A message in the gap says how many are missing.
 */
export function trimMessages(messages: RunMessage[], bytesMax: number): TrimmedMessages {
  const kept = messages[0]?.role === "user" && !LEFT_OUT.test(messages[0].content) ? 1 : 0;
  const sizes = messages.map((message) => bytesOf(JSON.stringify(message)));
  const bytes = sizes.reduce((sum, size) => sum + size, 0);
  let total = bytes;
  let from = kept;
  while (total > bytesMax) {
    let next = from + 1;
    while (next < messages.length && messages[next]?.role === "tool") next++;
    if (next >= messages.length) break;
    for (; from < next; from++) total -= sizes[from] ?? 0;
  }
  if (from === kept) return { messages, trimmed: 0, bytes };
  // Left out already when the run was trimmed before.
  const before = LEFT_OUT.exec(messages[kept]?.content ?? "")?.[1];
  const trimmed = from - kept - (before ? 1 : 0);
  const marker: RunMessage = {
    role: "user",
    content: `[${trimmed + Number(before ?? 0)} earlier messages of this run were left out to keep its checkpoint small.]`,
  };
  return { messages: [...messages.slice(0, kept), marker, ...messages.slice(from)], trimmed, bytes };
}
