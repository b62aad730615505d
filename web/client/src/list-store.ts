/** All sessions and tasks, live: for lists. */
import type { PitonClient } from "./client.js";
import type { ConnectionState } from "./connector.js";
import { Observable, type ReadonlyObservable } from "./observable.js";
import type { PitonSocket } from "./socket.js";
import { type IndexEvent, IndexStream, type RecordSource } from "./stream.js";
import type { SessionSummary, TaskSummary } from "./types.js";

export interface SessionList {
  /** Last active first. */
  sessions: readonly SessionSummary[];
  tasks: readonly TaskSummary[];
  /** There are more sessions than are listed. */
  truncated: boolean;
  /** A whole listing has arrived. */
  isLoaded: boolean;
}

/** A change in the list that a person may want to hear about. */
export interface SessionChange {
  before: SessionSummary | null;
  after: SessionSummary;
}

export class ListStore {
  readonly #stream: RecordSource;
  readonly #list = new Observable<SessionList>({ sessions: [], tasks: [], truncated: false, isLoaded: false });
  readonly #listeners = new Set<(change: SessionChange) => void>();
  readonly #sessions = new Map<string, SessionSummary>();
  readonly #tasks = new Map<string, TaskSummary>();
  /** Entries of a listing that have not arrived yet; what it does not name is gone when it is whole. */
  #expected: { sessions: number; tasks: number; truncated: boolean; seen: Set<string> } | null = null;
  #truncated = false;
  #isLoaded = false;

  /** Over a shared WebSocket, if there is one; otherwise over server-sent events, which take a connection of their own. */
  constructor(client: PitonClient, options: { socket?: PitonSocket | undefined } = {}) {
    const onEvents = (events: IndexEvent[]) => this.#take(events);
    this.#stream = options.socket ? options.socket.index(onEvents) : new IndexStream(client, onEvents);
  }

  get list(): ReadonlyObservable<SessionList> {
    return this.#list;
  }

  get connection(): ReadonlyObservable<ConnectionState> {
    return this.#stream.connection;
  }

  start(): void {
    this.#stream.start();
  }

  stop(): void {
    this.#stream.stop();
  }

  /** Called for each session that changes after the first listing, also for what changed while offline. */
  onChange(listener: (change: SessionChange) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  #take(events: IndexEvent[]): void {
    for (const event of events) this.#apply(event);
    // A listing is shown when it is whole: a reconnection empties no list.
    if (this.#expected) return;
    const sessions = [...this.#sessions.values()].sort((a, b) => (a.active_at < b.active_at ? 1 : a.active_at > b.active_at ? -1 : 0));
    const tasks = [...this.#tasks.values()].sort((a, b) => (a.created_at < b.created_at ? 1 : a.created_at > b.created_at ? -1 : 0));
    this.#list.set({ sessions, tasks, truncated: this.#truncated, isLoaded: this.#isLoaded });
  }

  #apply(event: IndexEvent): void {
    const expected = this.#expected;
    switch (event.type) {
      case "listing":
        this.#expected = { ...event, seen: new Set() };
        break;
      case "session": {
        const before = this.#sessions.get(event.session.session_id) ?? null;
        this.#sessions.set(event.session.session_id, event.session);
        if (this.#isLoaded && before?.last_seq !== event.session.last_seq) this.#changed({ before, after: event.session });
        if (expected && expected.sessions > 0) {
          expected.sessions -= 1;
          expected.seen.add(event.session.session_id);
        }
        break;
      }
      case "session_gone":
        this.#sessions.delete(event.session_id);
        break;
      case "task":
        this.#tasks.set(event.task.task_id, event.task);
        if (expected && expected.tasks > 0) {
          expected.tasks -= 1;
          expected.seen.add(event.task.task_id);
        }
        break;
      case "task_gone":
        this.#tasks.delete(event.task_id);
        break;
    }
    this.#settle();
  }

  #settle(): void {
    const expected = this.#expected;
    if (!expected || expected.sessions > 0 || expected.tasks > 0) return;
    this.#expected = null;
    this.#truncated = expected.truncated;
    this.#isLoaded = true;
    for (const id of this.#sessions.keys()) if (!expected.seen.has(id)) this.#sessions.delete(id);
    for (const id of this.#tasks.keys()) if (!expected.seen.has(id)) this.#tasks.delete(id);
  }

  #changed(change: SessionChange): void {
    for (const listener of [...this.#listeners]) listener(change);
  }
}
