/** What a session's records come to. The same fold for the web app and for users of this package. */
import type { AgentView, Interruption, LogRecord, PromptContent, SessionState, StateChanged, StatusName } from "../types.js";
import { AgentFeatures } from "./agent.js";
import { promptOf, promptText, textOf } from "./content.js";
import { Conversation, object, optional, string } from "./conversation.js";
import type { Item } from "./items.js";
import type { Lineage } from "./lineages.js";

export type RunPhase = "open" | "paused" | "interrupted" | "dismissed" | "ended";
export type Outcome = "completed" | "failed" | "cancelled";

export interface RunView {
  run_id: string;
  boot_id: string;
  phase: RunPhase;
  /** How it ended; null unless `phase` is `ended`. */
  outcome: Outcome | null;
  started_at: string;
  started_seq: number;
  /** When it was interrupted or ended. */
  ended_at: string | null;
}

export interface OpenWait {
  wait_id: string;
  run_id: string;
  /** `input`, `permission`, `tool_result`, `human`. */
  kind: string;
  since_seq: number;
  deadline_at: string | null;
  resume_token_id: string | null;
  /** As the agent asked; null if it was redacted. */
  question: unknown;
}

export interface QueueEntry {
  message_id: string;
  run_id: string;
  position: number;
  version: number;
  queued_at: string;
  held: boolean;
  text: string;
  content: PromptContent | null;
}

export interface StatusView {
  status: StatusName;
  state: SessionState;
  reason: string | null;
  sentence: string | null;
}

export type InterruptionView = Omit<Interruption, "sentence">;

export interface SessionView {
  session_id: string | null;
  title: string | null;
  task_id: string | null;
  agent_profile_id: string | null;
  /** The name of the graph that the session runs; null if an agent works in it. */
  graph: string | null;
  last_seq: number;
  items: readonly Item[];
  run: RunView | null;
  interruption: InterruptionView | null;
  /** The earliest first. */
  waits: readonly OpenWait[];
  queue: readonly QueueEntry[];
  agent: AgentView;
  /** How the session was closed; null while it is open. */
  closed: Outcome | null;
  /** How the lineages of the conversation began, except the first. */
  lineages: readonly Lineage[];
  /** As the server derives it; null until it was said. */
  status: StatusView | null;
}

/** What a server has put together of a session at a seq. */
export interface SessionSeed {
  session_id: string;
  title: string | null;
  task_id: string | null;
  agent_profile_id: string | null;
  /** The name of the graph that the session runs; null if an agent works in it. */
  graph: string | null;
  last_seq: number;
  items: readonly Item[];
  run: RunView | null;
  interruption: InterruptionView | null;
  waits: readonly OpenWait[];
  queue: readonly QueueEntry[];
  agent: AgentView;
  closed: Outcome | null;
  lineages: readonly Lineage[];
  status: StatusView;
  execution_id: string | null;
}

interface Run {
  view: RunView;
  waits: Map<string, OpenWait>;
  interruption: InterruptionView | null;
}

export class SessionFold {
  readonly #conversation = new Conversation();
  readonly #features = new AgentFeatures();
  #info = { session_id: null as string | null, title: null as string | null, task_id: null as string | null, agent_profile_id: null as string | null };
  #graph: string | null = null;
  #lastSeq = 0;
  #run: Run | null = null;
  #queue: QueueEntry[] = [];
  #closed: Outcome | null = null;
  #status: StatusView | null = null;
  #executionId: string | null = null;

  seed(seed: SessionSeed): void {
    const { session_id, title, task_id, agent_profile_id } = seed;
    this.#info = { session_id, title, task_id, agent_profile_id };
    this.#graph = seed.graph;
    this.#lastSeq = seed.last_seq;
    this.#run = seed.run && { view: seed.run, waits: new Map(seed.waits.map((wait) => [wait.wait_id, wait])), interruption: seed.interruption };
    this.#queue = [...seed.queue];
    this.#closed = seed.closed;
    this.#status = seed.status;
    this.#executionId = seed.execution_id;
    this.#features.seed(seed.agent);
    this.#conversation.seed(seed.items, seed.lineages);
    this.#setLive();
  }

  /** Items that come before those that are known. */
  prepend(items: readonly Item[]): void {
    this.#conversation.prepend(items);
  }

  get lastSeq(): number {
    return this.#lastSeq;
  }

  get view(): SessionView {
    const run = this.#run;
    return {
      ...this.#info,
      graph: this.#graph,
      last_seq: this.#lastSeq,
      items: this.#conversation.items,
      run: run?.view ?? null,
      interruption: run?.view.phase === "interrupted" ? run.interruption : null,
      waits: this.#waits(),
      queue: this.#queue,
      agent: this.#features.view,
      closed: this.#closed,
      lineages: this.#conversation.lineages,
      status: this.#status,
    };
  }

  /** Takes the next record, and the change of the status that came with it. */
  apply(record: LogRecord, change: StateChanged | null = null): void {
    this.#lastSeq = record.seq;
    if (change?.new_state) {
      this.#status = { status: change.status, state: change.new_state, reason: change.reason, sentence: change.sentence };
    }
    const execution = optional(record["execution_id"]);
    const isCurrent = this.#executionId === null || this.#executionId === execution;
    this.#features.apply(record, isCurrent);
    this.#session(record);
    this.#queued(record);
    this.#runs(record);
    this.#setLive();
    this.#conversation.apply(record);
  }

  #setLive(): void {
    const run = this.#run?.view;
    this.#conversation.setLive(run?.phase === "open" && this.#closed === null ? run.run_id : null);
  }

  #waits(): OpenWait[] {
    const run = this.#run;
    const isUnfinished = run !== null && (run.view.phase === "open" || run.view.phase === "paused");
    if (!isUnfinished || this.#closed !== null) return [];
    const key = (wait: OpenWait) => (wait.deadline_at === null ? Number.POSITIVE_INFINITY : Date.parse(wait.deadline_at));
    const order = (a: OpenWait, b: OpenWait) => (key(a) === key(b) ? a.since_seq - b.since_seq : key(a) - key(b));
    return [...run.waits.values()].sort(order);
  }

  #session(record: LogRecord): void {
    switch (record.kind) {
      case "session.created":
      case "session.adopted":
        if (record.kind === "session.adopted" && this.#info.session_id !== null) return;
        this.#info = {
          session_id: optional(record["session_id"]),
          title: optional(record["title"]),
          task_id: optional(record["task_id"]),
          agent_profile_id: optional(record["agent_profile_id"]),
        };
        if (record.kind === "session.adopted") this.#adopt(record);
        break;
      case "session.renamed":
        this.#info = { ...this.#info, title: optional(record["title"]) };
        break;
      case "session.agent_assigned":
        this.#info = { ...this.#info, agent_profile_id: optional(record["agent_profile_id"]) };
        break;
      case "session.closed":
        this.#closed = record["outcome"] as Outcome;
        break;
      case "graph.bound":
        this.#graph = optional(record["name"]);
        break;
      case "lineage.started":
        // What a graph did is folded beside the conversation.
        if (this.#graph === null) this.#conversation.startLineage(record);
        break;
      case "executor.starting":
        this.#executionId = optional(record["execution_id"]);
        break;
    }
  }

  /** A run that was open before the first record. */
  #adopt(record: LogRecord): void {
    const run = object(record["run"]);
    if (!run) return;
    const view: RunView = { run_id: string(run["run_id"]), boot_id: string(run["boot_id"]), phase: "open", outcome: null, started_at: string(run["started_at"]), started_seq: record.seq, ended_at: null };
    this.#run = { view, waits: new Map(), interruption: null };
  }

  #queued(record: LogRecord): void {
    const message_id = string(record["message_id"]);
    const at = this.#queue.findIndex((entry) => entry.message_id === message_id);
    switch (record.kind) {
      case "prompt.queued": {
        if (at >= 0) return;
        const entry: QueueEntry = { message_id, run_id: string(record["run_id"]), position: 0, version: record.seq, queued_at: record.ts, held: false, ...said(record) };
        return this.#setQueue(record["first"] === true ? [entry, ...this.#queue] : [...this.#queue, entry]);
      }
      case "prompt.edited":
        return this.#setQueue(this.#queue.map((entry, index) => (index === at ? { ...entry, version: record.seq, ...said(record) } : entry)));
      case "prompt.moved": {
        const entry = this.#queue[at];
        if (!entry) return;
        const rest = this.#queue.filter((_, index) => index !== at);
        rest.splice(Math.min(Math.max(Number(record["position"]) - 1, 0), rest.length), 0, entry);
        return this.#setQueue(rest);
      }
      case "prompt.removed":
      case "message.user":
        if (at >= 0) this.#setQueue(this.#queue.filter((_, index) => index !== at));
        return;
      case "queue.released":
        return this.#hold(false);
      case "record.redacted":
        // What was taken out cannot be delivered.
        return this.#setQueue(this.#queue.filter((entry) => entry.version !== record["target_seq"]));
    }
  }

  #hold(held: boolean): void {
    if (this.#queue.some((entry) => entry.held !== held)) this.#setQueue(this.#queue.map((entry) => ({ ...entry, held })));
  }

  #setQueue(queue: QueueEntry[]): void {
    this.#queue = queue.map((entry, index) => (entry.position === index + 1 ? entry : { ...entry, position: index + 1 }));
  }

  #runs(record: LogRecord): void {
    const run_id = optional(record["run_id"]);
    if (record.kind === "run.started") {
      const view: RunView = { run_id: run_id ?? "", boot_id: string(record["boot_id"]), phase: "open", outcome: null, started_at: record.ts, started_seq: record.seq, ended_at: null };
      this.#run = { view, waits: new Map(), interruption: null };
      return;
    }
    const run = this.#run;
    if (record.kind === "token.minted") return this.#minted(record);
    // What comes late about another run changes nothing.
    if (!run || run.view.run_id !== run_id) return;
    const { phase } = run.view;
    const isUnfinished = phase === "open" || phase === "paused";
    switch (record.kind) {
      case "run.waiting": {
        if (!isUnfinished) return;
        const token = optional(record["resume_token_id"]);
        const wait_id = optional(record["wait_id"]) ?? token ?? `wait_${record.seq}`;
        if (run.waits.has(wait_id)) return;
        run.waits.set(wait_id, {
          wait_id,
          run_id,
          kind: string(record["wait_kind"]),
          since_seq: record.seq,
          deadline_at: optional(record["deadline_at"]),
          resume_token_id: token,
          question: record["question"] ?? null,
        });
        return;
      }
      case "run.resumed": {
        if (phase === "ended" || phase === "dismissed") return;
        if (phase === "interrupted") this.#hold(false);
        run.view = { ...run.view, boot_id: string(record["boot_id"]), phase: "open", ended_at: null };
        const wait_id = optional(record["wait_id"]);
        if (wait_id !== null) run.waits.delete(wait_id);
        return;
      }
      case "run.reattached":
        run.view = { ...run.view, boot_id: string(record["boot_id"]) };
        for (const { wait_id, deadline_at } of (record["deadlines"] as { wait_id: string; deadline_at: string }[] | undefined) ?? []) {
          const wait = run.waits.get(wait_id);
          if (wait) run.waits.set(wait_id, { ...wait, deadline_at });
        }
        return;
      case "run.paused":
        if (phase === "open") run.view = { ...run.view, phase: "paused" };
        return;
      case "wait.cancelled":
        run.waits.delete(string(record["wait_id"]));
        return;
      case "run.completed":
        this.#end(run, record, "ended", "completed");
        return;
      case "run.failed":
        this.#end(run, record, "ended", "failed");
        if (run.view.outcome === "failed") this.#hold(true);
        return;
      case "run.cancelled": {
        this.#end(run, record, "ended", "cancelled");
        const isWanted = record["reason"] === "superseded" || record["reason"] === "permission_rejected";
        if (run.view.outcome === "cancelled" && !isWanted) this.#hold(true);
        return;
      }
      case "run.interrupted":
        return this.#interrupt(run, record, isUnfinished);
      case "run.dismissed":
        this.#end(run, record, "dismissed", null);
        return;
    }
  }

  #interrupt(run: Run, record: LogRecord, isUnfinished: boolean): void {
    // The agent's exit shows that a turn's end was a part of that exit.
    const isBelied = record["stop_reason"] !== undefined && run.view.outcome === "completed";
    if (!isUnfinished && !isBelied) return;
    if (isBelied) run.view = { ...run.view, phase: "open", outcome: null };
    const was_waiting = record["reason"] === "wait_timeout" || run.waits.size > 0;
    const phase = optional(record["phase"]) as InterruptionView["phase"] | null;
    this.#end(run, record, "interrupted", null);
    run.interruption = { run_id: run.view.run_id, reason: record["reason"] as InterruptionView["reason"], phase: phase ?? null, was_waiting, interrupted_at: run.view.ended_at };
    this.#hold(true);
  }

  #end(run: Run, record: LogRecord, phase: RunPhase, outcome: Outcome | null): void {
    if (run.view.phase === "ended") return;
    run.view = { ...run.view, phase, outcome, ended_at: run.view.ended_at ?? record.ts };
    run.waits.clear();
  }

  #minted(record: LogRecord): void {
    const run = this.#run;
    const wait = run?.view.run_id === record["run_id"] ? run?.waits.get(string(record["wait_id"])) : undefined;
    if (wait && record["purpose"] === "wait") run?.waits.set(wait.wait_id, { ...wait, resume_token_id: optional(record["token_id"]) });
  }
}

function said(record: LogRecord): Pick<QueueEntry, "text" | "content"> {
  const content = promptOf(record);
  return { content, text: content === null ? (textOf(record, "content") ?? "") : promptText(content) };
}

/** Folds records, e.g. of a page of `GET /sessions/{session_id}/records`. */
export function foldRecords(records: Iterable<LogRecord>): SessionView {
  const fold = new SessionFold();
  for (const record of records) fold.apply(record);
  return fold.view;
}
