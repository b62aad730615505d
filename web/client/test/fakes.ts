/** A server and a clock that tests control. */
import type { Environment, Wake } from "../src/environment.js";

export class FakeEnvironment implements Environment {
  readonly WebSocket: Environment["WebSocket"];
  #now = 1_000_000;
  #nextId = 0;
  #online = true;
  #visible = true;
  readonly #timers = new Map<number, { at: number; callback: () => void }>();
  readonly #watchers = new Set<(wake: Wake) => void>();
  #timerId = 0;
  readonly requests: { url: string; init: RequestInit }[] = [];
  onFetch: (url: string, init: RequestInit) => Promise<Response> | Response;

  constructor(onFetch: FakeEnvironment["onFetch"], WebSocket?: unknown) {
    this.onFetch = onFetch;
    this.WebSocket = WebSocket as Environment["WebSocket"];
  }

  async fetch(url: string, init: RequestInit): Promise<Response> {
    this.requests.push({ url, init });
    const aborted = new Promise<never>((_, reject) => {
      init.signal?.addEventListener("abort", () => reject(init.signal?.reason ?? new Error("aborted")), { once: true });
    });
    aborted.catch(() => {});
    return await Promise.race([Promise.resolve(this.onFetch(url, init)), aborted]);
  }

  now = () => this.#now;
  random = () => 0.5;
  randomId = () => `key-${++this.#nextId}`;
  isOnline = () => this.#online;
  isVisible = () => this.#visible;

  setTimeout = (callback: () => void, ms: number) => {
    const id = ++this.#timerId;
    this.#timers.set(id, { at: this.#now + ms, callback });
    return () => void this.#timers.delete(id);
  };

  watch = (listener: (wake: Wake) => void) => {
    this.#watchers.add(listener);
    return () => void this.#watchers.delete(listener);
  };

  wake(wake: Wake): void {
    if (wake === "online" || wake === "offline") this.#online = wake === "online";
    else this.#visible = wake === "visible";
    for (const watcher of [...this.#watchers]) watcher(wake);
  }

  /** Lets time pass, timer by timer. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    for (;;) {
      await settle();
      const due = [...this.#timers.entries()].filter(([, timer]) => timer.at <= end).sort((a, b) => a[1].at - b[1].at)[0];
      if (!due) break;
      this.#timers.delete(due[0]);
      this.#now = Math.max(this.#now, due[1].at);
      due[1].callback();
    }
    this.#now = end;
    await settle();
  }

  /** Time passes while the page sleeps: no timer is called. */
  sleep(ms: number): void {
    this.#now += ms;
  }
}

declare function setImmediate(callback: () => void): void;

/** Lets everything run that waits for nothing but its turn. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await new Promise<void>((resolve) => setImmediate(resolve));
}

/** The body of a stream that the test writes to. */
export class FakeStream {
  readonly response: Response;
  #controller: ReadableStreamDefaultController<Uint8Array> | null = null;
  isCancelled = false;

  constructor() {
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => void (this.#controller = controller),
      cancel: () => void (this.isCancelled = true),
    });
    this.response = new Response(body, { headers: { "content-type": "text/event-stream" } });
  }

  write(text: string): void {
    this.#controller?.enqueue(new TextEncoder().encode(text));
  }

  end(): void {
    this.#controller?.close();
  }

  fail(): void {
    this.#controller?.error(new TypeError("network error"));
  }
}

export function problem(status: number, code: string): Response {
  const body = { type: `urn:piton:error:${code}`, title: code, status, code, hint: "" };
  return new Response(JSON.stringify(body), { status, headers: { "content-type": "application/problem+json" } });
}

export function json(value: unknown, status = 200): Response {
  return new Response(JSON.stringify(value), { status, headers: { "content-type": "application/json" } });
}
