/**
 * One WebSocket for any number of sessions: methods with answers, and records of the sessions that are
 * subscribed to. A lost socket is made again, and each subscription continues after its last record.
 */
import { Connector, type ConnectionState } from "./connector.js";
import { ConnectionError, ProblemError } from "./errors.js";
import { Observable, type ReadonlyObservable } from "./observable.js";
import { Cursor, type Delivery, type IndexEvent, indexEvent, type RecordSource, type RecordStreamOptions } from "./stream.js";
import type { LogRecord, Problem, StateChanged } from "./types.js";

/** How long an answer may take. */
const ANSWER_TIMEOUT_MS = 100_000;
/** How often the server is asked whether it is there while nothing else is said. */
const HEARTBEAT_MS = 15_000;
/** Closed by the server because the token is not accepted any more. */
const CLOSED_NOT_ALLOWED = 1008;

/** The topic of the list of sessions and tasks; all others are sessions. */
const INDEX = "";
/** Events of the list of sessions and tasks. */
const INDEX_EVENTS = /^(listing|index|gone|task|task\..+|tasks\.unsubscribed)$/;

interface Incoming {
  id?: string;
  result?: unknown;
  error?: Problem;
  event?: string;
  payload?: Record<string, unknown> & { session_id?: string; seq?: number; more?: boolean };
}

interface Call {
  resolve(value: unknown): void;
  reject(error: Error): void;
  endTimer(): void;
}

export class PitonSocket extends Connector {
  #socket: WebSocket | null = null;
  #nextId = 1;
  readonly #calls = new Map<string, Call>();
  readonly #subscriptions = new Map<string, Set<SocketRecords>>();
  readonly #indexes = new Set<SocketIndex>();
  /** What the server sends over this socket, and for whom. */
  readonly #topics = new Map<string, ReadonlySet<object>>();
  readonly #ordered = new Map<string, Promise<void>>();
  #users = 0;

  /** Calls a method, e.g. `task.session.status`. It is sent once: give changes an `idempotency_key`. */
  async call<T = unknown>(method: string, params: Record<string, unknown> = {}): Promise<T> {
    const socket = this.#socket;
    if (!socket || socket.readyState !== 1) throw new ConnectionError("The socket is not connected");
    const id = String(this.#nextId++);
    const answer = new Promise<unknown>((resolve, reject) => {
      const late = () => {
        this.#calls.delete(id);
        reject(new ConnectionError("The server did not answer in time"));
      };
      const endTimer = this.client.environment.setTimeout(late, ANSWER_TIMEOUT_MS);
      this.#calls.set(id, { resolve, reject, endTimer });
    });
    socket.send(JSON.stringify({ id, method, params }));
    return (await answer) as T;
  }

  /** The records of a session, from after a seq. The socket is open while something is subscribed. */
  records(sessionId: string, options: RecordStreamOptions): RecordSource {
    return new SocketRecords(this, sessionId, options);
  }

  /** Changes of the list of sessions and tasks. After each connection a new listing comes first. */
  index(onEvents: (events: IndexEvent[]) => void): RecordSource {
    return new SocketIndex(this, onEvents);
  }

  /** @internal */
  addIndex(index: SocketIndex): void {
    this.#indexes.add(index);
    this.#use(INDEX);
  }

  /** @internal */
  removeIndex(index: SocketIndex): void {
    if (this.#indexes.delete(index)) this.#leave(INDEX);
  }

  /** @internal */
  add(records: SocketRecords): void {
    const of = this.#subscriptions.get(records.sessionId) ?? new Set();
    this.#subscriptions.set(records.sessionId, of.add(records));
    this.#use(records.sessionId);
  }

  /** @internal */
  remove(records: SocketRecords): void {
    const of = this.#subscriptions.get(records.sessionId);
    if (!of?.delete(records)) return;
    if (of.size === 0) this.#subscriptions.delete(records.sessionId);
    this.#leave(records.sessionId);
  }

  #use(topic: string): void {
    if (this.#users++ === 0) this.start();
    else if (this.connection.value.phase === "live") this.#sync(topic);
  }

  #leave(topic: string): void {
    if (--this.#users === 0) this.stop();
    else if (this.connection.value.phase === "live") this.#sync(topic);
  }

  protected override async connect(signal: AbortSignal): Promise<void> {
    const { environment } = this.client;
    if (!environment.WebSocket) throw new ConnectionError("There is no WebSocket here");
    const url = `${this.client.address.replace(/^http/, "ws")}/api/v1/ws`;
    const protocols = ["piton.v1", `bearer.${this.client.token.value}`];
    const socket = new environment.WebSocket(url, protocols);
    let wasOpen = false;
    const ended = new Promise<number>((resolve) => {
      socket.onclose = (event) => resolve(event.code);
      // `close` follows, with nothing more to know.
      socket.onerror = () => {};
    });
    const onAbort = () => socket.close();
    signal.addEventListener("abort", onAbort, { once: true });
    const beat = this.#heartbeat();
    try {
      socket.onopen = () => {
        wasOpen = true;
        this.#socket = socket;
        this.live();
        this.#ordered.clear();
        this.#topics.clear();
        for (const session of this.#subscriptions.keys()) this.#sync(session);
        if (this.#indexes.size > 0) this.#sync(INDEX);
      };
      let failed: unknown = null;
      socket.onmessage = (event) => {
        this.heard();
        try {
          this.#message(JSON.parse(String(event.data)) as Incoming);
        } catch (error) {
          failed = error;
          socket.close();
        }
      };
      if (signal.aborted) onAbort();
      const code = await Promise.race([ended, aborted(signal)]);
      if (failed) throw failed;
      if (code === CLOSED_NOT_ALLOWED) {
        // Over HTTP the client itself learns why, and everybody who watches it.
        await this.client.call("get", "/api/v1/sessions", { query: { limit: 1 }, signal });
        throw signedOut();
      }
      // A refused handshake says nothing about its cause to a page: ask over HTTP, which throws it.
      if (!wasOpen && !signal.aborted) await this.client.call("get", "/api/v1/sessions", { query: { limit: 1 }, signal });
    } finally {
      beat();
      signal.removeEventListener("abort", onAbort);
      [socket.onopen, socket.onmessage, socket.onerror, socket.onclose] = [null, null, () => {}, null];
      this.#socket = null;
      for (const [id, call] of this.#calls) {
        this.#calls.delete(id);
        call.endTimer();
        call.reject(new ConnectionError("The connection was lost"));
      }
    }
  }

  /** A page sees no pings: it asks for something small. */
  #heartbeat(): () => void {
    const { environment } = this.client;
    let end = () => {};
    const next = () => {
      end = environment.setTimeout(() => {
        if (this.#socket) this.call("ping").catch(() => {});
        next();
      }, HEARTBEAT_MS);
    };
    next();
    return () => end();
  }

  /**
   * Makes what the server sends of a topic fit who listens. In order for each topic: the server carries out
   * requests side by side, and an older one must not undo a newer one.
   */
  #sync(topic: string): void {
    const socket = this.#socket;
    const fit = async () => {
      if (this.#socket !== socket) return;
      const readers: readonly (SocketRecords | SocketIndex)[] = topic === INDEX ? [...this.#indexes] : [...(this.#subscriptions.get(topic) ?? [])];
      const params = topic === INDEX ? {} : { session_id: topic };
      const method = topic === INDEX ? "tasks" : "session";
      const isNew = readers.some((reader) => !this.#topics.get(topic)?.has(reader));
      try {
        // The server sends a topic once per socket: for a reader that begins earlier it begins again.
        if (this.#topics.has(topic) && (readers.length === 0 || isNew)) {
          this.#topics.delete(topic);
          await this.call(`${method}.unsubscribe`, params);
        }
        if (readers.length === 0 || !isNew) return;
        const wanted = topic === INDEX ? { sessions: true } : { after: Math.min(...readers.map((reader) => (reader as SocketRecords).cursor.after)) };
        await this.call(`${method}.subscribe`, { ...params, ...wanted });
        this.#topics.set(topic, new Set(readers));
        for (const reader of readers) reader.became("live", null);
      } catch (error) {
        // A lost socket is made again, and everything subscribed to again.
        if (error instanceof ProblemError && this.#socket === socket) for (const reader of readers) reader.became("refused", error);
      }
    };
    const before = this.#ordered.get(topic);
    const next = before ? before.then(fit) : fit();
    this.#ordered.set(topic, next);
    void next.then(() => {
      if (this.#ordered.get(topic) === next) this.#ordered.delete(topic);
    });
  }

  #message(message: Incoming): void {
    if (message.id !== undefined) {
      const call = this.#calls.get(message.id);
      if (!call) return;
      this.#calls.delete(message.id);
      call.endTimer();
      if (message.error) call.reject(new ProblemError(message.error));
      else call.resolve(message.result);
      return;
    }
    const { event, payload } = message;
    if (event && INDEX_EVENTS.test(event)) {
      this.progressed();
      // The subscription has ended on the server, e.g. because the list could not be read: connects again.
      if (event === "tasks.unsubscribed") throw new ConnectionError("The list is not followed any more");
      const known = indexEvent(event, payload);
      if (known) for (const index of this.#indexes) index.take(known);
      return;
    }
    const sessionId = payload?.session_id;
    if (!event || !payload || !sessionId) return;
    this.progressed();
    for (const records of this.#subscriptions.get(sessionId) ?? []) records.take(event, payload);
  }
}

/** The list of sessions and tasks over a shared socket. */
export class SocketIndex implements RecordSource {
  readonly #socket: PitonSocket;
  readonly #onEvents: (events: IndexEvent[]) => void;
  readonly #state: Observable<ConnectionState>;
  #stopWatching: (() => void) | null = null;

  constructor(socket: PitonSocket, onEvents: (events: IndexEvent[]) => void) {
    this.#socket = socket;
    this.#onEvents = onEvents;
    this.#state = new Observable<ConnectionState>({ ...socket.connection.value, phase: "stopped", problem: null });
  }

  get connection(): ReadonlyObservable<ConnectionState> {
    return this.#state;
  }

  start(): void {
    if (this.#stopWatching) return;
    this.#stopWatching = () => {};
    this.#socket.addIndex(this);
    this.#stopWatching = this.#socket.connection.subscribe((state) => {
      if (state.phase !== "live") this.#state.set(state);
    });
  }

  stop(): void {
    if (!this.#stopWatching) return;
    this.#stopWatching();
    this.#stopWatching = null;
    this.#socket.removeIndex(this);
    this.became("stopped", null);
  }

  /** @internal */
  became(phase: ConnectionState["phase"], problem: ProblemError | null): void {
    this.#state.set({ ...this.#socket.connection.value, phase, problem });
  }

  /** @internal */
  take(event: IndexEvent): void {
    this.#onEvents([event]);
  }
}

/** One session's records over a shared socket. */
export class SocketRecords implements RecordSource {
  readonly sessionId: string;
  readonly cursor: Cursor;
  readonly #socket: PitonSocket;
  readonly #onRecords: (deliveries: Delivery[]) => void;
  readonly #state: Observable<ConnectionState>;
  #change: StateChanged | null = null;
  #stopWatching: (() => void) | null = null;

  constructor(socket: PitonSocket, sessionId: string, options: RecordStreamOptions) {
    this.#socket = socket;
    this.sessionId = sessionId;
    this.cursor = new Cursor(options.after);
    this.#onRecords = options.onRecords;
    this.#state = new Observable<ConnectionState>({ ...socket.connection.value, phase: "stopped", problem: null });
  }

  get connection(): ReadonlyObservable<ConnectionState> {
    return this.#state;
  }

  start(): void {
    if (this.#stopWatching) return;
    this.#stopWatching = () => {};
    this.#socket.add(this);
    // Live only when the subscription is, which the answer says.
    this.#stopWatching = this.#socket.connection.subscribe((state) => {
      if (state.phase !== "live" && this.#state.value.phase !== "refused") this.#state.set(state);
    });
  }

  stop(): void {
    if (!this.#stopWatching) return;
    this.#stopWatching();
    this.#stopWatching = null;
    this.#socket.remove(this);
    this.became("stopped", null);
  }

  /** @internal */
  became(phase: ConnectionState["phase"], problem: ProblemError | null): void {
    this.#state.set({ ...this.#socket.connection.value, phase, problem });
  }

  /** @internal */
  take(event: string, payload: Record<string, unknown>): void {
    if (event === "session.unsubscribed") {
      this.became("refused", new ProblemError(payload["error"] as Problem));
      return;
    }
    const seq = payload["seq"] as number;
    if (event === "session.state_changed") {
      this.#change = payload as unknown as StateChanged;
      // It is the whole of a `status.derived` record; otherwise the record follows.
      if (payload["more"] === true) return;
    }
    if (!this.cursor.takes(seq)) return;
    const change = this.#change?.seq === seq ? this.#change : null;
    this.#change = null;
    this.#onRecords([{ record: recordOf(event, payload), change }]);
  }
}

/** The record that an event of the socket was made of, as far as the event says. */
export function recordOf(event: string, payload: Record<string, unknown>): LogRecord {
  const { seq, ts } = payload as { seq: number; ts: string };
  const record = (kind: string, fields: Record<string, unknown>): LogRecord => ({ seq, ts, kind, ...present(fields) });
  const execution_id = payload["agent_execution_id"];
  switch (event) {
    case "session.state_changed":
      return record("status.derived", { status: payload["status"], reason: payload["reason"] });
    case "session.agentctl_starting":
      return record("executor.starting", { execution_id, runtime: payload["runtime"] });
    case "session.agentctl_ready":
      return record("executor.ready", { execution_id });
    case "session.agentctl_error": {
      const kind = payload["reason"] === "executor_unreachable" ? "executor.unreachable" : "executor.error";
      return record(kind, { execution_id, code: payload["code"], reason: payload["reason"], message: payload["message"] });
    }
    case "session.agent_updated":
      return record("agent.updated", { execution_id, run_id: payload["run_id"], what: payload["what"], update: payload["update"], truncated: payload["truncated"] });
    case "session.agent_configured":
      return record("agent.configured", (payload["chosen"] as Record<string, unknown> | null) ?? {});
    case "session.message.added":
    case "session.message.updated":
      return messageRecord(record, payload);
    default: {
      const whole = payload["record"] as LogRecord | null;
      return whole ?? record(String(payload["kind"] ?? event), {});
    }
  }
}

function messageRecord(record: (kind: string, fields: Record<string, unknown>) => LogRecord, payload: Record<string, unknown>): LogRecord {
  const { message_id, run_id, role, channel, offset, text, content, length, hash } = payload;
  const redacted = text === null || undefined;
  if (role === "user") return record("message.user", { message_id, run_id, content: content ?? text, redacted });
  if (payload["complete"] === true) return record("message.completed", { message_id, length, hash });
  return record("message.delta", { message_id, run_id, channel, offset, text, redacted });
}

function present(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined && value !== null));
}

function aborted(signal: AbortSignal): Promise<null> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(null);
    else signal.addEventListener("abort", () => resolve(null), { once: true });
  });
}

function signedOut(): ProblemError {
  const hint = "Sign in again with `piton open`.";
  return new ProblemError({ type: "urn:piton:error:unauthenticated", title: "The token is not accepted any more", status: 401, code: "unauthenticated", hint });
}
