// The session on the screen: one store at a time, opened once per visit.
import { type Signal, signal } from "@preact/signals";
import { type ConnectionState, type LoadState, Observable, type PitonError, type ReadonlyObservable, SessionStore, type SessionStatus, type SessionView, type Task } from "piton-client";
import { client } from "./account.ts";
import { noteCapabilities } from "./capabilities.ts";
import { socket } from "./socket.ts";

export type OpenSession = {
  id: string;
  store: SessionStore;
  view: Signal<SessionView>;
  status: Signal<SessionStatus | null>;
  task: Signal<Task | null>;
  /** Not null: there are items before those that are loaded. */
  older: Signal<number | null>;
  load: Signal<LoadState>;
  problem: Signal<PitonError | null>;
  connection: Signal<ConnectionState>;
  /** The one attempt to resume that a visit makes is under way. */
  isOpening: Signal<boolean>;
  loadOlder: () => Promise<void>;
  close: () => void;
};

const PAGE_ITEMS = 200;

export const current = signal<OpenSession | null>(null);

function open(id: string): OpenSession {
  // A store that loads everything at once has no older items.
  type Paged = { older?: ReadonlyObservable<number | null>; loadOlder?: () => Promise<boolean> };
  // One attempt to resume per visit, by the server's policy.
  const store: SessionStore & Paged = new SessionStore(client, id, { socket, resumeOnOpen: true, pageSize: PAGE_ITEMS });
  const ends: (() => void)[] = [];
  const follow = <T>(observable: { value: T; subscribe: (listener: (value: T) => void) => () => void }): Signal<T> => {
    const out = signal(observable.value);
    ends.push(
      observable.subscribe((value) => {
        out.value = value;
      }),
    );
    return out;
  };
  const session: OpenSession = {
    id,
    store,
    view: follow(store.view),
    status: follow(store.status),
    task: follow(store.task),
    older: follow(store.older ?? new Observable<number | null>(null)),
    loadOlder: async () => {
      await store.loadOlder?.();
    },
    load: follow(store.load),
    problem: follow(store.problem),
    connection: follow(store.connection),
    isOpening: signal(true),
    close: () => {
      for (const end of ends) end();
      store.close();
    },
  };
  ends.push(store.onRecord((record) => noteCapabilities(id, record)));
  void store.open().finally(() => {
    session.isOpening.value = false;
  });
  return session;
}

/** Shows a session; null: none. The same one again changes nothing. */
export function showSession(id: string | null): void {
  if (current.peek()?.id === id) return;
  current.peek()?.close();
  current.value = id === null ? null : open(id);
}
