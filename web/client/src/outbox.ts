/**
 * Prompts that are on their way. Each is kept, under one idempotency key, until the server has it in its
 * log or refuses it: a reload or a crash in between loses none, and sends none twice.
 */
import type { PitonClient } from "./client.js";
import { ConnectionError, ProblemError } from "./errors.js";
import { Observable, type ReadonlyObservable } from "./observable.js";
import { SessionApi, type PromptOptions } from "./session-api.js";
import type { PromptAccepted, PromptContent } from "./types.js";

/** The part of `localStorage` that is needed. */
export interface KeyValueStorage {
  readonly length: number;
  key(index: number): string | null;
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

export interface OutgoingPrompt {
  key: string;
  session_id: string;
  content: PromptContent;
  if_busy: NonNullable<PromptOptions["ifBusy"]>;
  created_at: number;
  /** Why the server refused it; null while it is on its way. A refused prompt stays until it is dropped. */
  refusal: { code: string; title: string; hint: string } | null;
}

/** Keys are remembered by the server for a day: what is older might be delivered twice. */
const KEY_MAX_AGE_MS = 23 * 3_600_000;
const OUTGOING_MAX = 64;

/**
 * Each prompt has a storage key of its own, so that tabs that share the storage never overwrite each other's.
 * Every tab shows and delivers all of them; the server carries each out once, by its idempotency key.
 */
export class Outbox {
  readonly #client: PitonClient;
  readonly #storage: KeyValueStorage | null;
  readonly #prefix: string;
  readonly #prompts: Observable<readonly OutgoingPrompt[]>;
  /** Storage is full or disabled: a reload would lose what is on its way. */
  readonly #isDurable = new Observable(true);
  /** Prompts of this tab that could not be stored. */
  readonly #unstored = new Map<string, OutgoingPrompt>();
  readonly #answers = new Map<string, Waiter[]>();
  /** One delivery at a time per session: a later prompt never overtakes an earlier one. */
  readonly #delivering = new Map<string, Promise<void>>();
  #lastCreatedAt = 0;

  constructor(client: PitonClient, storage: KeyValueStorage | null, prefix = "piton.outbox.") {
    this.#client = client;
    this.#storage = storage;
    this.#prefix = prefix;
    this.#prompts = new Observable<readonly OutgoingPrompt[]>(this.#read());
    if (!storage) this.#isDurable.set(false);
  }

  /** All that is on its way, from every tab, oldest first. */
  get prompts(): ReadonlyObservable<readonly OutgoingPrompt[]> {
    return this.#prompts;
  }

  get isDurable(): ReadonlyObservable<boolean> {
    return this.#isDurable;
  }

  /** Another tab changed the storage: call it from a listener of `storage` events. */
  refresh(): void {
    this.#prompts.set(this.#read());
  }

  /**
   * Sends a prompt; resolves when the server has it in its log. Rejects if it refuses or cannot be reached.
   * What was sent before to the same session is delivered first.
   */
  async send(sessionId: string, content: PromptContent, options: PromptOptions = {}): Promise<PromptAccepted> {
    this.refresh();
    const known = this.#prompts.value;
    if (known.length >= OUTGOING_MAX) throw new RangeError(`At most ${OUTGOING_MAX} prompts can be on their way`);
    // Strictly later than every one before it, also when the clock was set back.
    this.#lastCreatedAt = Math.max(this.#client.environment.now(), this.#lastCreatedAt + 1, ...known.map((prompt) => prompt.created_at + 1));
    const prompt: OutgoingPrompt = {
      key: options.idempotencyKey ?? this.#client.newKey(),
      session_id: sessionId,
      content,
      if_busy: options.ifBusy ?? "queue",
      created_at: this.#lastCreatedAt,
      refusal: null,
    };
    this.#store(prompt);
    this.refresh();
    const answer = new Promise<PromptAccepted>((resolve, reject) => {
      this.#answers.set(prompt.key, [...(this.#answers.get(prompt.key) ?? []), { resolve, reject }]);
    });
    void this.#deliverAll(sessionId);
    return await answer;
  }

  /** Sends again what is on its way, in order, e.g. after a reload or a reconnection. */
  async flush(): Promise<void> {
    this.refresh();
    const sessions = new Set(this.#prompts.value.map((prompt) => prompt.session_id));
    await Promise.all([...sessions].map((session) => this.#deliverAll(session)));
  }

  drop(key: string): void {
    this.#unstored.delete(key);
    try {
      this.#storage?.removeItem(this.#prefix + key);
    } catch {
      // Disabled storage holds nothing.
    }
    this.refresh();
  }

  async #deliverAll(sessionId: string): Promise<void> {
    const before = this.#delivering.get(sessionId) ?? Promise.resolve();
    const next = before.then(() => this.#deliverInOrder(sessionId));
    this.#delivering.set(sessionId, next);
    await next;
    if (this.#delivering.get(sessionId) === next) this.#delivering.delete(sessionId);
  }

  async #deliverInOrder(sessionId: string): Promise<void> {
    for (;;) {
      this.refresh();
      const prompt = this.#prompts.value.find((one) => one.session_id === sessionId && !one.refusal);
      if (!prompt) return;
      if (this.#client.environment.now() - prompt.created_at > KEY_MAX_AGE_MS) {
        this.#refuse(prompt, { code: "request_timeout", title: "The prompt was not delivered within a day", hint: "Send it again, or drop it." });
        continue;
      }
      const error = await this.#deliver(prompt);
      if (!error) continue;
      // What may be carried out later stays on its way, and so does all that is behind it.
      for (const behind of this.#prompts.value.filter((one) => one.session_id === sessionId)) this.#settle(behind.key, (waiter) => waiter.reject(error));
      return;
    }
  }

  /** Null: the server has it, or refuses it for good. */
  async #deliver(prompt: OutgoingPrompt): Promise<Error | null> {
    try {
      const api = new SessionApi(this.#client, prompt.session_id);
      const accepted = await api.prompt(prompt.content, { ifBusy: prompt.if_busy, idempotencyKey: prompt.key });
      this.drop(prompt.key);
      this.#settle(prompt.key, (waiter) => waiter.resolve(accepted));
      return null;
    } catch (error) {
      if (error instanceof ProblemError && !error.isTemporary && !error.isSignedOut && error.status < 500) {
        this.#refuse(prompt, { code: error.code, title: error.message, hint: error.hint });
        this.#settle(prompt.key, (waiter) => waiter.reject(error));
        return null;
      }
      return error instanceof Error ? error : new ConnectionError(String(error));
    }
  }

  #settle(key: string, settle: (waiter: Waiter) => void): void {
    const waiters = this.#answers.get(key) ?? [];
    this.#answers.delete(key);
    for (const waiter of waiters) settle(waiter);
  }

  #refuse(prompt: OutgoingPrompt, refusal: NonNullable<OutgoingPrompt["refusal"]>): void {
    // Another tab may have dropped it meanwhile.
    if (this.#prompts.value.some((one) => one.key === prompt.key)) this.#store({ ...prompt, refusal });
    this.refresh();
  }

  #store(prompt: OutgoingPrompt): void {
    this.#unstored.delete(prompt.key);
    try {
      if (!this.#storage) throw new Error("no storage");
      this.#storage.setItem(this.#prefix + prompt.key, JSON.stringify(prompt));
      this.#isDurable.set(true);
    } catch {
      this.#unstored.set(prompt.key, prompt);
      this.#isDurable.set(false);
    }
  }

  #read(): readonly OutgoingPrompt[] {
    const found = new Map<string, OutgoingPrompt>();
    try {
      for (let index = 0; index < (this.#storage?.length ?? 0); index += 1) {
        const name = this.#storage?.key(index);
        const prompt = name?.startsWith(this.#prefix) ? parse(this.#storage?.getItem(name) ?? "") : null;
        if (prompt) found.set(prompt.key, prompt);
      }
    } catch {
      // Disabled storage: only what this tab holds.
    }
    for (const prompt of this.#unstored.values()) found.set(prompt.key, prompt);
    const prompts = [...found.values()].sort((a, b) => a.created_at - b.created_at || (a.key < b.key ? -1 : 1));
    const now = this.#prompts?.value ?? [];
    const isSame = now.length === prompts.length && now.every((prompt, at) => prompt.key === prompts[at]?.key && (prompt.refusal === null) === (prompts[at]?.refusal === null));
    return isSame ? now : prompts;
  }
}

interface Waiter {
  resolve(accepted: PromptAccepted): void;
  reject(error: Error): void;
}

/** Null: damaged, or not ours. */
function parse(text: string): OutgoingPrompt | null {
  try {
    const value = JSON.parse(text) as Partial<OutgoingPrompt> | null;
    const isWhole = typeof value?.key === "string" && typeof value.session_id === "string" && typeof value.created_at === "number" && value.content !== undefined;
    return isWhole ? (value as OutgoingPrompt) : null;
  } catch {
    return null;
  }
}
