/**
 * One session, live: loaded once, then followed record by record over reconnections and restarts of the
 * server. What is shown is published at most once per frame, however fast records arrive.
 */
import type { PitonClient } from "./client.js";
import type { ConnectionPhase, ConnectionState } from "./connector.js";
import { isPitonError, type PitonError, type ProblemError } from "./errors.js";
import type { Item } from "./fold/items.js";
import { type Outcome, type QueueEntry, type RunView, SessionFold, type SessionSeed, type SessionView } from "./fold/session.js";
import { Observable, type ReadonlyObservable } from "./observable.js";
import { retryWhileLost } from "./retry.js";
import { SessionApi } from "./session-api.js";
import type { PitonSocket } from "./socket.js";
import { type Delivery, RecordStream, type RecordSource } from "./stream.js";
import type { LogRecord, Schemas, SessionStatus, Task } from "./types.js";

/** Records after which the whole status is asked for again: what it says beside the fold may differ. */
const STATUS_KINDS = /^(session|run|wait|token|executor|agent|workspace|queue|prompt)\./;
const QUIET_KINDS: ReadonlySet<string> = new Set(["agent.updated", "session.leased", "session.released", "prompt.prepared"]);
const STATUS_DELAY_MS = 120;
const PUBLISH_DELAY_MS = 16;

export interface SessionStoreOptions {
  /** A shared WebSocket to follow the session over; without one, server-sent events. */
  socket?: PitonSocket | undefined;
  /** Opens the session as a person does, once: its agent is resumed if the server's policy says so. */
  resumeOnOpen?: boolean;
  /** How many items are loaded at a time, from the end; 200 by default. */
  pageSize?: number;
  /** When to publish: by default the next animation frame, or soon where there is none. */
  schedule?: (publish: () => void) => void;
}

export type RecordListener = (record: LogRecord) => void;

export type LoadState = "loading" | "ready" | "failed";

export class SessionStore {
  readonly sessionId: string;
  /** What can be done with the session. */
  readonly api: SessionApi;
  readonly #client: PitonClient;
  readonly #options: SessionStoreOptions;
  readonly #view: Observable<SessionView>;
  readonly #status = new Observable<SessionStatus | null>(null);
  readonly #task = new Observable<Task | null>(null);
  readonly #older = new Observable<number | null>(null);
  #loadingOlder: Promise<Schemas["MessagePage"]> | null = null;
  readonly #load = new Observable<LoadState>("loading");
  readonly #problem = new Observable<PitonError | null>(null);
  readonly #connection: Observable<ConnectionState>;
  #fold = new SessionFold();
  #source: RecordSource | null = null;
  #stopWatching: (() => void) | null = null;
  readonly #listeners = new Set<RecordListener>();
  #isScheduled = false;
  #isStatusWanted = false;
  #endStatusTimer: (() => void) | null = null;
  #isStatusAsked = false;
  #life = 0;
  #abort = new AbortController();

  constructor(client: PitonClient, sessionId: string, options: SessionStoreOptions = {}) {
    this.#client = client;
    this.sessionId = sessionId;
    this.api = new SessionApi(client, sessionId);
    this.#options = options;
    this.#view = new Observable(this.#fold.view);
    this.#connection = new Observable<ConnectionState>({ phase: "connecting", since: client.environment.now(), isOffline: false, problem: null });
  }

  /** The conversation, waits, queue, plan and usage: what the records come to. */
  get view(): ReadonlyObservable<SessionView> {
    return this.#view;
  }

  /** The whole status as the server says it: executor, choices, context, readable permission requests. */
  get status(): ReadonlyObservable<SessionStatus | null> {
    return this.#status;
  }

  get task(): ReadonlyObservable<Task | null> {
    return this.#task;
  }

  /** Whether there are older items to load: not null. */
  get older(): ReadonlyObservable<number | null> {
    return this.#older;
  }

  get load(): ReadonlyObservable<LoadState> {
    return this.#load;
  }

  /** Why the session could not be loaded. */
  get problem(): ReadonlyObservable<PitonError | null> {
    return this.#problem;
  }

  get connection(): ReadonlyObservable<ConnectionState> {
    return this.#connection;
  }

  /** Calls back with each record as it comes, after the fold took it; what it returns ends that. */
  onRecord(listener: RecordListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Loads the session and follows it until `close()`. While the server cannot be reached it keeps trying, and the
   * connection says `reconnecting`; only what the server refuses for good is `failed`.
   */
  async open(): Promise<void> {
    const life = ++this.#life;
    this.#abort.abort();
    this.#abort = new AbortController();
    this.#load.set("loading");
    this.#problem.set(null);
    if (this.#connection.value.phase !== "reconnecting") this.#become("connecting");
    try {
      await this.#loadAll(life);
    } catch (error) {
      if (life !== this.#life) return;
      if (!isPitonError(error)) throw error;
      this.#problem.set(error);
      this.#load.set("failed");
      return;
    }
    if (life !== this.#life) return;
    this.#load.set("ready");
    this.#follow();
    if (this.#options.resumeOnOpen) await this.#resume(life);
  }

  close(): void {
    this.#life += 1;
    this.#abort.abort();
    this.#source?.stop();
    this.#stopWatching?.();
    this.#endStatusTimer?.();
    [this.#source, this.#stopWatching, this.#endStatusTimer] = [null, null, null];
  }

  /** Asks for the status again now. */
  async refreshStatus(): Promise<void> {
    const life = this.#life;
    const status = await this.api.status();
    if (life === this.#life) this.#status.set(status);
  }

  /** One request, also if its answer is lost: every attempt has the same key. */
  async #resume(life: number): Promise<void> {
    const key = this.#client.newKey();
    try {
      const status = await retryWhileLost(this.#client.environment, this.#abort.signal, (signal) => this.api.open({ idempotencyKey: key, signal }), () => {});
      if (life === this.#life) this.#status.set(status);
    } catch (error) {
      // The status says what is wrong with the agent; this says why it was not even tried.
      if (life === this.#life && isPitonError(error)) this.#problem.set(error);
    }
  }

  async #loadAll(life: number): Promise<void> {
    const ask = (signal: AbortSignal) => this.api.bootstrap(this.#options.pageSize, { signal });
    const bootstrap = await retryWhileLost(this.#client.environment, this.#abort.signal, ask, (problem) => {
      if (life === this.#life) this.#become("reconnecting", problem);
    });
    if (life !== this.#life) return;
    const fold = new SessionFold();
    fold.seed(seedOf(bootstrap));
    this.#fold = fold;
    this.#status.set(bootstrap.status);
    this.#task.set(bootstrap.task ?? null);
    this.#older.set(bootstrap.before ?? null);
    this.#view.set(fold.view);
  }

  /** Until the stream is there, which says this from then on. */
  #become(phase: ConnectionPhase, problem: ProblemError | null = null): void {
    const { environment } = this.#client;
    const before = this.#connection.value;
    const since = before.phase === phase ? before.since : environment.now();
    this.#connection.set({ phase, since, isOffline: !environment.isOnline(), problem });
  }

  /** Loads the page of items before those that are known; false if there are none. */
  async loadOlder(): Promise<boolean> {
    const before = this.#older.value;
    if (before === null) return false;
    const life = this.#life;
    this.#loadingOlder ??= this.api.messagesBefore(before, this.#options.pageSize);
    try {
      const page = await this.#loadingOlder;
      // Another call, or a reload, has taken it already.
      if (life !== this.#life || this.#older.value !== before) return true;
      this.#fold.prepend(page.messages as Item[]);
      this.#older.set(page.before ?? null);
      this.#view.set(this.#fold.view);
      return true;
    } finally {
      this.#loadingOlder = null;
    }
  }

  #follow(): void {
    const onRecords = (deliveries: Delivery[]) => this.#take(deliveries);
    const options = { after: this.#fold.lastSeq, onRecords };
    const { socket } = this.#options;
    this.#source = socket ? socket.records(this.sessionId, options) : new RecordStream(this.#client, this.sessionId, options);
    let wasLost = false;
    this.#stopWatching = this.#source.connection.subscribe((state) => {
      this.#connection.set(state);
      // What no record says may have changed while the connection was away.
      if (state.phase === "live" && wasLost) this.#wantStatus();
      if (state.phase === "reconnecting" || state.phase === "signed_out") wasLost = true;
      if (state.phase === "refused" && state.problem?.code === "cursor_invalid") void this.#reload();
    });
    this.#source.start();
  }

  /** The log is shorter than what is known, or contents were taken out: begins again. */
  async #reload(): Promise<void> {
    this.close();
    await this.open();
  }

  #take(deliveries: Delivery[]): void {
    let isRedacted = false;
    for (const { record, change } of deliveries) {
      this.#fold.apply(record, change);
      for (const listener of this.#listeners) listener(record);
      isRedacted ||= record.kind === "record.redacted";
      if (change || (STATUS_KINDS.test(record.kind) && !QUIET_KINDS.has(record.kind))) this.#isStatusWanted = true;
    }
    if (this.#isStatusWanted) this.#wantStatus();
    if (isRedacted) void this.#reload();
    else this.#publish();
  }

  #publish(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    const schedule = this.#options.schedule ?? ((publish: () => void) => scheduleFrame(this.#client, publish));
    schedule(() => {
      this.#isScheduled = false;
      this.#view.set(this.#fold.view);
    });
  }

  /** One request at a time, and not for every record of a burst. */
  #wantStatus(): void {
    this.#isStatusWanted = true;
    if (this.#endStatusTimer || this.#isStatusAsked) return;
    this.#endStatusTimer = this.#client.environment.setTimeout(() => {
      this.#endStatusTimer = null;
      void this.#askStatus();
    }, STATUS_DELAY_MS);
  }

  async #askStatus(): Promise<void> {
    this.#isStatusAsked = true;
    this.#isStatusWanted = false;
    const life = this.#life;
    try {
      await this.refreshStatus();
    } catch (error) {
      // The stream's state says what is wrong with the connection; the next record asks again.
      if (!isPitonError(error)) throw error;
    } finally {
      this.#isStatusAsked = false;
    }
    if (this.#isStatusWanted && life === this.#life) this.#wantStatus();
  }
}

/** A hidden page gets no animation frames. */
function scheduleFrame(client: PitonClient, publish: () => void): void {
  const { environment } = client;
  if (typeof requestAnimationFrame === "function" && environment.isVisible()) requestAnimationFrame(publish);
  else environment.setTimeout(publish, PUBLISH_DELAY_MS);
}

const CLOSED: readonly string[] = ["completed", "failed", "cancelled"];

/** What a fold begins with. */
export function seedOf({ status, messages, queue, agent, lineages, last_seq }: Schemas["SessionBootstrap"]): SessionSeed {
  const outcome = (status.last_outcome ?? null) as Outcome | null;
  const run: RunView | null = status.run
    ? {
        run_id: status.run.run_id,
        boot_id: status.run.boot_id,
        phase: status.run.phase,
        outcome: status.run.phase === "ended" ? outcome : null,
        started_at: status.run.started_at,
        started_seq: status.run.started_seq,
        ended_at: status.run.ended_at ?? null,
      }
    : null;
  const { interruption } = status;
  return {
    session_id: status.session_id,
    title: status.title ?? null,
    task_id: status.task_id ?? null,
    agent_profile_id: status.agent_profile_id ?? null,
    last_seq,
    items: messages as Item[],
    run,
    interruption: interruption
      ? { run_id: interruption.run_id, reason: interruption.reason, phase: interruption.phase ?? null, was_waiting: interruption.was_waiting, interrupted_at: interruption.interrupted_at ?? null }
      : null,
    waits: status.waits.map((wait) => ({
      wait_id: wait.wait_id,
      run_id: wait.run_id,
      kind: wait.kind,
      since_seq: wait.since_seq,
      deadline_at: wait.deadline_at ?? null,
      resume_token_id: wait.resume_token_id ?? null,
      question: wait.question ?? null,
    })),
    queue: queue.prompts as QueueEntry[],
    agent,
    closed: CLOSED.includes(status.status) ? (status.status as Outcome) : null,
    graph: status.graph ?? null,
    // A server before 0.2 does not say it.
    lineages: lineages ?? [],
    status: { status: status.status, state: status.state, reason: status.reason, sentence: status.sentence },
    execution_id: status.agent_execution_id ?? null,
  };
}
