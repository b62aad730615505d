/**
 * The conversation that records come to: text put together, every tool call paired with its outcome. A
 * call whose outcome is not in the log is unknown: it may have happened, wholly or in part.
 *
 * Items are never changed in place: an item that another record changes is replaced, so that a list can
 * compare by identity.
 */
import type { LogRecord } from "../types.js";
import { promptOf, promptText, textOf } from "./content.js";
import { type AgentItem, type Item, NOTICE_KINDS, type NoticeItem, type NoticeKind, type ToolItem, type ToolState } from "./items.js";
import { isInSegments, type Lineage, lineageOf, segmentsOf } from "./lineages.js";

const NOTICES: ReadonlySet<string> = new Set(NOTICE_KINDS);

export class Conversation {
  #items: Item[] = [];
  #shown: readonly Item[] = [];
  #isChanged = false;
  /** Where each agent message and each tool call is. */
  readonly #messages = new Map<string, number>();
  readonly #calls = new Map<string, number>();
  /** The message that a run's agent said last. */
  #lastOfRun: { run_id: string; index: number } | null = null;
  /** The run that an agent works on at this moment: its calls without an outcome are pending. */
  #live: string | null = null;
  /** How each lineage began, except the first: what a rewind left behind is marked. */
  #lineages: readonly Lineage[] = [];

  /** All items in order: another array after each change, the same items where nothing changed. */
  get items(): readonly Item[] {
    if (this.#isChanged) {
      this.#shown = this.#items.slice();
      this.#isChanged = false;
    }
    return this.#shown;
  }

  get lineages(): readonly Lineage[] {
    return this.#lineages;
  }

  /** Begins with what a server has put together. */
  seed(items: readonly Item[], lineages: readonly Lineage[]): void {
    this.#items = items.slice();
    this.#lineages = lineages;
    this.#index();
    this.#markAbandoned();
  }

  /** Begins a lineage behind an older record; the items after that record stay, as an abandoned branch. */
  startLineage(record: LogRecord): void {
    this.#lineages = [...this.#lineages, lineageOf(record)];
    this.#markAbandoned();
  }

  /** Older items, before those that are known. */
  prepend(older: readonly Item[]): void {
    const first = this.#items[0]?.seq ?? Number.POSITIVE_INFINITY;
    this.#items = [...older.filter((item) => item.seq < first), ...this.#items];
    this.#index();
    // The page may be older than the last rewind.
    this.#markAbandoned();
  }

  /** Which run an agent works on now; null: none. */
  setLive(run_id: string | null): void {
    if (run_id === this.#live) return;
    this.#live = run_id;
    // Only calls without an outcome depend on it, and they are among the last items of their run.
    for (const index of this.#calls.values()) {
      const item = this.#items[index] as ToolItem;
      if (item.ended_at === null && (item.status === "pending" || item.status === "unknown")) {
        const status = this.#open(item.run_id);
        if (status !== item.status) this.#replace(index, { ...item, status });
      }
    }
  }

  apply(record: LogRecord): void {
    switch (record.kind) {
      case "message.user":
        return this.#user(record);
      case "message.delta":
        return this.#delta(record);
      case "message.completed":
        return this.#completed(record);
      case "agent.updated":
        if (record["truncated"] === true) this.#truncated(record);
        return;
      case "tool.intent":
        return this.#intent(record);
      case "tool.updated":
        return this.#update(record, record["run_id"], record["call_id"], record["update"]);
      case "run.waiting": {
        // Some agents say only here with what they make a call.
        const question = object(record["question"]);
        return this.#update(record, record["run_id"], question?.["call_id"], question?.["toolCall"]);
      }
      case "tool.outcome":
        return this.#outcome(record);
      default:
        if (NOTICES.has(record.kind)) this.#notice(record);
    }
  }

  #index(): void {
    this.#isChanged = true;
    this.#messages.clear();
    this.#calls.clear();
    this.#lastOfRun = null;
    this.#items.forEach((item, index) => {
      if (item.type === "agent") {
        this.#messages.set(item.message_id, index);
        if (item.run_id !== null) this.#lastOfRun = { run_id: item.run_id, index };
      } else if (item.type === "tool") {
        this.#calls.set(callKey(item.run_id, item.call_id), index);
      }
    });
  }

  #markAbandoned(): void {
    const segments = segmentsOf(this.#lineages);
    this.#items.forEach((item, index) => {
      // The record before a rewind of the conversation says that the same rewind restored files.
      const isRestored = item.type === "notice" && item.kind === "workspace.restored";
      const isCurrent = isInSegments(segments, item.seq) || (isRestored && isInSegments(segments, item.seq + 1));
      if (isCurrent !== (item.abandoned === true)) return;
      const { abandoned: _, ...rest } = item;
      this.#replace(index, (isCurrent ? rest : { ...rest, abandoned: true }) as Item);
    });
  }

  #push(item: Item): number {
    this.#isChanged = true;
    return this.#items.push(item) - 1;
  }

  #replace(index: number, item: Item): void {
    this.#isChanged = true;
    this.#items[index] = item;
  }

  #open(run_id: string): ToolState {
    return run_id === this.#live ? "pending" : "unknown";
  }

  #user(record: LogRecord): void {
    const content = promptOf(record);
    const text = content === null ? textOf(record, "content") : promptText(content);
    const { seq, ts } = record;
    this.#push({ type: "user", seq, ts, message_id: string(record["message_id"]), run_id: optional(record["run_id"]), text, content });
  }

  #delta(record: LogRecord): void {
    const { seq, ts } = record;
    const message_id = string(record["message_id"]);
    const run_id = optional(record["run_id"]);
    const piece = textOf(record, "text");
    let index = this.#messages.get(message_id);
    if (index === undefined) {
      const channel = record["channel"] === "thought" ? "thought" : "answer";
      index = this.#push({ type: "agent", seq, ts, message_id, run_id, channel, text: "", complete: false, truncated: false });
      this.#messages.set(message_id, index);
    }
    if (run_id !== null) this.#lastOfRun = { run_id, index };
    const item = this.#items[index] as AgentItem;
    // Sent again from its beginning, as after an interruption, it begins again.
    const isNew = record["offset"] === 0;
    const before = isNew ? "" : item.text;
    const text = before === null || piece === null ? null : before + piece;
    this.#replace(index, { ...item, text, complete: isNew ? false : item.complete });
  }

  #completed(record: LogRecord): void {
    const index = this.#messages.get(string(record["message_id"]));
    if (index !== undefined) this.#replace(index, { ...(this.#items[index] as AgentItem), complete: true });
  }

  /** A part of what a run's agent said was left out: of its last message, or of one of which nothing is there. */
  #truncated(record: LogRecord): void {
    const run_id = optional(record["run_id"]);
    if (run_id === null) return;
    const { seq, ts } = record;
    const last = this.#lastOfRun;
    let index = last?.run_id === run_id ? last.index : undefined;
    const item = index === undefined ? undefined : this.#items[index];
    if (index !== undefined && item?.type === "agent") this.#replace(index, { ...item, truncated: true });
    else index = this.#push({ type: "agent", seq, ts, message_id: `truncated_${seq}`, run_id, channel: "answer", text: "", complete: true, truncated: true });
    this.#lastOfRun = { run_id, index };
  }

  #intent(record: LogRecord): void {
    const { seq, ts } = record;
    const run_id = string(record["run_id"]);
    const call_id = string(record["call_id"]);
    const name = string(record["name"]);
    const args = record["arguments"] ?? null;
    const key = callKey(run_id, call_id);
    const index = this.#calls.get(key);
    if (index === undefined) {
      const status = this.#open(run_id);
      const item: ToolItem = { type: "tool", seq, ts, ended_at: null, call_id, run_id, name, title: null, kind: null, arguments: args, content: null, locations: null, status, result: null };
      this.#calls.set(key, this.#push(item));
      return;
    }
    const item = this.#items[index] as ToolItem;
    // Made again, it may have happened again; only an outcome that came before its intent is this intent's.
    const again = item.name === null ? {} : { status: this.#open(run_id), result: null, ended_at: null };
    this.#replace(index, { ...item, ...again, name, arguments: args });
  }

  /** What an agent says of a call after it made it. */
  #update(_record: LogRecord, run_id: unknown, call_id: unknown, update: unknown): void {
    const said = object(update);
    if (!said || typeof run_id !== "string" || typeof call_id !== "string") return;
    const index = this.#calls.get(callKey(run_id, call_id));
    if (index === undefined) return;
    const item = this.#items[index] as ToolItem;
    const input = said["rawInput"];
    const args = isNothing(input) ? item.arguments : merged(item.arguments, input);
    this.#replace(index, { ...item, arguments: args, ...details(item, said) });
  }

  #outcome(record: LogRecord): void {
    const { seq, ts } = record;
    const run_id = string(record["run_id"]);
    const call_id = string(record["call_id"]);
    const status = toolState(record["status"]);
    const result = record["result"] ?? null;
    const key = callKey(run_id, call_id);
    const index = this.#calls.get(key);
    if (index === undefined) {
      // An outcome whose intent was never written still happened.
      const empty: ToolItem = { type: "tool", seq, ts, ended_at: ts, call_id, run_id, name: null, title: null, kind: null, arguments: null, content: null, locations: null, status, result };
      this.#calls.set(key, this.#push({ ...empty, ...details(empty, object(result) ?? {}) }));
      return;
    }
    const item = this.#items[index] as ToolItem;
    // The first known outcome counts; `unknown` gives way to a late one.
    if (item.ended_at !== null && item.status !== "unknown") return;
    this.#replace(index, { ...item, status, result, ended_at: ts, ...details(item, object(result) ?? {}) });
  }

  #notice(record: LogRecord): void {
    const { seq, ts, kind } = record;
    // An ordinary prompt is prepared, too: only what it carries beside the user's words is worth a word.
    if (kind === "prompt.prepared" && record["history"] !== true && record["interruption_summary"] !== true) return;
    // The answer to a wait is not a continuation.
    if (kind === "run.resumed" && record["wait_id"] !== undefined) return;
    const text = record["error"] ?? record["message"];
    const notice: NoticeItem = {
      type: "notice",
      seq,
      ts,
      kind: kind as NoticeKind,
      run_id: optional(record["run_id"]),
      reason: optional(record["reason"]),
      code: optional(record["code"]),
      text: typeof text === "string" ? text : null,
    };
    const checkpoint = optional(record["checkpoint_id"]) ?? optional(record["from_checkpoint_id"]);
    if (kind === "workspace.restored") notice.files = Number(record["paths_count"]);
    if (kind === "lineage.started") notice.from_seq = Number(record["from_seq"]);
    if (checkpoint !== null && (kind === "workspace.restored" || kind === "lineage.started")) notice.checkpoint_id = checkpoint;
    this.#push(notice);
  }
}

function callKey(run_id: string, call_id: string): string {
  return `${run_id}/${call_id}`;
}

function toolState(status: unknown): ToolState {
  return status === "succeeded" || status === "failed" || status === "cancelled" ? status : "unknown";
}

/** What a tool call shows, where something new is said of it. */
function details(item: ToolItem, said: Record<string, unknown>): Pick<ToolItem, "title" | "kind" | "content" | "locations"> {
  const text = (key: string) => {
    const value = said[key];
    return typeof value === "string" && value !== "" ? value : null;
  };
  const list = (key: string) => {
    const value = said[key];
    return Array.isArray(value) && value.length > 0 ? (value as unknown[]) : null;
  };
  return {
    title: text("title") ?? item.title,
    kind: text("kind") ?? item.kind,
    content: list("content") ?? item.content,
    locations: list("locations") ?? item.locations,
  };
}

function isNothing(value: unknown): boolean {
  return value === undefined || value === null || (object(value) !== null && Object.keys(value).length === 0);
}

/** Some agents say their arguments bit by bit. */
function merged(before: unknown, after: unknown): unknown {
  const [old, said] = [object(before), object(after)];
  return old && said ? { ...old, ...said } : after;
}

export function object(value: unknown): Record<string, unknown> | null {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : null;
}

export function string(value: unknown): string {
  return typeof value === "string" ? value : "";
}

export function optional(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}
