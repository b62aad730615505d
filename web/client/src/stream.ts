/** Streams over `fetch`: a session's records, and the list of all sessions. */
import type { PitonClient } from "./client.js";
import { Connector } from "./connector.js";
import { ConnectionError } from "./errors.js";
import { EventParser, type ServerEvent } from "./sse.js";
import type { LogRecord, SessionSummary, StateChanged, TaskSummary } from "./types.js";

/** A record as it arrives, with the change of the status that it caused. */
export interface Delivery {
  record: LogRecord;
  change: StateChanged | null;
}

export interface RecordSource {
  readonly connection: Connector["connection"];
  start(): void;
  stop(): void;
}

export interface RecordStreamOptions {
  /** The last seq that is known; the stream begins after it. */
  after: number;
  /** Called with records in order, each exactly once, over all reconnections. */
  onRecords(deliveries: Delivery[]): void;
}

/** Checks that nothing is missing and nothing comes twice. */
export class Cursor {
  #after: number;

  constructor(after: number) {
    this.#after = after;
  }

  get after(): number {
    return this.#after;
  }

  /** False for what is known already. What is missing breaks the connection: it is asked for again. */
  takes(seq: number): boolean {
    if (!Number.isSafeInteger(seq)) throw new ConnectionError("A record has no seq");
    if (seq <= this.#after) return false;
    if (seq !== this.#after + 1) throw new ConnectionError(`Record ${this.#after + 1} is missing before ${seq}`);
    this.#after = seq;
    return true;
  }
}

async function readEvents(body: ReadableStream<Uint8Array> | null, signal: AbortSignal, onEvents: (events: ServerEvent[]) => void, onBytes: () => void): Promise<void> {
  if (!body) throw new ConnectionError("The stream has no body");
  const reader = body.getReader();
  // Some hosts leave a body that is being read alone when its request is aborted.
  const onAbort = () => void reader.cancel().catch(() => {});
  if (signal.aborted) onAbort();
  signal.addEventListener("abort", onAbort, { once: true });
  const decoder = new TextDecoder();
  const parser = new EventParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onBytes();
      const events = parser.push(decoder.decode(value, { stream: true }));
      if (events.length > 0) onEvents(events);
    }
  } finally {
    signal.removeEventListener("abort", onAbort);
    // The connection may be gone already.
    await reader.cancel().catch(() => {});
  }
}

/** A session's records over server-sent events, from after a seq, over lost connections. */
export class RecordStream extends Connector implements RecordSource {
  readonly #sessionId: string;
  readonly #cursor: Cursor;
  readonly #onRecords: (deliveries: Delivery[]) => void;

  constructor(client: PitonClient, sessionId: string, options: RecordStreamOptions) {
    super(client);
    this.#sessionId = sessionId;
    this.#cursor = new Cursor(options.after);
    this.#onRecords = options.onRecords;
  }

  /** The last seq that was delivered. */
  get after(): number {
    return this.#cursor.after;
  }

  protected override async connect(signal: AbortSignal): Promise<void> {
    const path = `/api/v1/sessions/${encodeURIComponent(this.#sessionId)}/events`;
    const headers = { accept: "text/event-stream", "last-event-id": String(this.#cursor.after) };
    const response = await this.client.stream(path, headers, signal);
    this.live();
    // A change without its record is sent again with it after a reconnection.
    let change: StateChanged | null = null;
    const onEvents = (events: ServerEvent[]) => {
      const deliveries: Delivery[] = [];
      try {
        for (const event of events) {
          if (event.id === null) {
            if (event.event === "session.state_changed") change = JSON.parse(event.data) as StateChanged;
            continue;
          }
          const record = JSON.parse(event.data) as LogRecord;
          if (this.#cursor.takes(record.seq)) deliveries.push({ record, change: change?.seq === record.seq ? change : null });
          change = null;
        }
      } finally {
        if (deliveries.length > 0) {
          this.progressed();
          this.#onRecords(deliveries);
        }
      }
    };
    await readEvents(response.body, signal, onEvents, () => this.heard());
  }
}

/** An event of the stream of all sessions. */
export type IndexEvent =
  | { type: "listing"; sessions: number; tasks: number; truncated: boolean }
  | { type: "session"; session: SessionSummary }
  | { type: "session_gone"; session_id: string }
  | { type: "task"; task: TaskSummary }
  | { type: "task_gone"; task_id: string };

/** Changes of the list of sessions and tasks. After each connection a new listing comes first. */
export class IndexStream extends Connector {
  readonly #onEvents: (events: IndexEvent[]) => void;

  constructor(client: PitonClient, onEvents: (events: IndexEvent[]) => void) {
    super(client);
    this.#onEvents = onEvents;
  }

  protected override async connect(signal: AbortSignal): Promise<void> {
    const response = await this.client.stream("/api/v1/events", { accept: "text/event-stream" }, signal);
    this.live();
    const onEvents = (events: ServerEvent[]) => {
      this.progressed();
      const known = events.map(({ event, data }) => indexEvent(event, JSON.parse(data))).filter((event) => event !== null);
      if (known.length > 0) this.#onEvents(known);
    };
    await readEvents(response.body, signal, onEvents, () => this.heard());
  }
}

/** @internal */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export function indexEvent(event: string, value: any): IndexEvent | null {
  switch (event) {
    case "listing":
      return { type: "listing", sessions: value.sessions, tasks: value.tasks ?? 0, truncated: value.truncated };
    case "index":
      return { type: "session", session: value };
    case "gone":
      return { type: "session_gone", session_id: value.session_id };
    case "task":
    case "task.updated":
    case "task.state_changed":
      return { type: "task", task: value };
    case "task.deleted":
      return { type: "task_gone", task_id: value.task_id };
    default:
      // A newer server's.
      return null;
  }
}
