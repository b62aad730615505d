/** What the tests of browser runs share: a clock that is held still, a page's stores, a scripted model. */
import { IDBFactory } from "fake-indexeddb";

import {
  browserStorage, type BrowserStorageOptions, type Clock, createRun, type HeldLock, type Run, type RunCheckpoint, type RunMessage,
  type RunOptions, type RunTelemetryEvent, type Sandbox, type StreamPart, type StreamRequest, type TabLock, type Truth,
} from "../../src/run/index.js";

export const NOW = 1_700_000_000_000;

export class TestClock implements Clock {
  time = NOW;
  now = () => this.time;
  setTimeout = (run: () => void, ms: number) => setTimeout(run, ms);
  clearTimeout = (timer: unknown) => clearTimeout(timer as ReturnType<typeof setTimeout>);
}

/** A `Storage` with a limit, that can be broken. */
export class TestStorage implements Storage {
  readonly values = new Map<string, string>();
  limit = Infinity;
  isBroken = false;
  get length() {
    return this.values.size;
  }
  private look() {
    if (this.isBroken) throw new DOMException("storage is disabled", "SecurityError");
  }
  getItem(key: string) {
    this.look();
    return this.values.get(key) ?? null;
  }
  setItem(key: string, value: string) {
    this.look();
    if (value.length > this.limit) throw new DOMException("full", "QuotaExceededError");
    this.values.set(key, value);
  }
  removeItem(key: string) {
    this.look();
    this.values.delete(key);
  }
  clear() {
    this.values.clear();
  }
  key(at: number) {
    return [...this.values.keys()][at] ?? null;
  }
}

/** Tabs of one browser that share it see each other's locks. */
export class TestLocks {
  readonly held = new Set<string>();
  tab(): TabLock {
    const mine = new Set<string>();
    return {
      acquire: (chatId: string): Promise<HeldLock | null> => {
        if (this.held.has(chatId)) return Promise.resolve(null);
        this.held.add(chatId);
        mine.add(chatId);
        const release = () => {
          this.held.delete(chatId);
          mine.delete(chatId);
          return Promise.resolve();
        };
        return Promise.resolve({ owner: "tab", release });
      },
      ownerOf: (chatId) => Promise.resolve(!this.held.has(chatId) ? null : mine.has(chatId) ? "owned_by_this_page" : "owned_by_other_tab"),
      whenFree: async (chatId, signal) => until(() => signal.aborted || !this.held.has(chatId)),
    };
  }
}

/** One browser: its stores outlive its pages. */
export class Browser {
  local = new TestStorage();
  factory = new IDBFactory();
  locks = new TestLocks();
  clock = new TestClock();
  storage(options: BrowserStorageOptions = {}) {
    return browserStorage({ localStorage: this.local, indexedDB: this.factory, clock: this.clock, ...options });
  }
}

export const TRUTH: Truth = { branch: "main", head: "abc1234", changed: [[" M", "a.txt"]], more: 0, stat: { files: 1, added: 1, removed: 0 } };

export function sandbox(changes: Partial<Sandbox> = {}): Sandbox {
  return {
    identity: () => ({ sandboxSessionId: "box", activeBranch: "main", repoId: "repo" }),
    truth: () => Promise.resolve(TRUTH),
    ...changes,
  };
}

export function checkpoint(changes: Partial<RunCheckpoint> = {}): RunCheckpoint {
  return {
    version: 1, chatId: "chat", round: 3, phase: "executing_tools", baseMessageCount: 1,
    deltaMessages: [], accumulated: "", thinkingAccumulated: "", coderDelegationActive: false, lastCoderState: null,
    savedAt: NOW, provider: "p", model: "m", sandboxSessionId: "box", activeBranch: "main", repoId: "repo",
    userAborted: false, jobId: null, runId: "run", writeSeq: 1, trimmedMessages: 0, ...changes,
  };
}

export type Script = (request: StreamRequest, round: number) => AsyncIterable<StreamPart> | Iterable<StreamPart>;

export const say = (text: string): StreamPart => ({ type: "text", text });
export const call = (name: string, input: unknown, id = `call_${name}`): StreamPart => ({
  type: "tool-call", call: { id, name, arguments: input },
});

export interface TestRun {
  run: Run;
  events: RunTelemetryEvent[];
  requests: StreamRequest[];
}

export function testRun(browser: Browser, script: Script, changes: Partial<RunOptions> = {}): TestRun {
  const events: RunTelemetryEvent[] = [];
  const requests: StreamRequest[] = [];
  const run = createRun({
    chatId: "chat",
    provider: "p",
    model: "m",
    sandbox: sandbox(),
    storage: browser.storage(),
    lock: browser.locks.tab(),
    clock: browser.clock,
    telemetry: (event) => events.push(event),
    async *stream(request) {
      requests.push(request);
      yield* script(request, requests.length);
    },
    ...changes,
  });
  return { run, events, requests };
}

export const never = (signal?: AbortSignal): Promise<never> =>
  new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));

export function lastOf(messages: readonly RunMessage[]): RunMessage {
  const last = messages.at(-1);
  if (!last) throw new Error("there is no message");
  return last;
}

/** Waits for something that other tasks do. */
export async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  const end = Date.now() + 5_000;
  while (!(await isSo())) {
    if (Date.now() > end) throw new Error("it did not happen within 5 s");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
