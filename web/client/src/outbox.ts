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

export class Outbox {
  readonly #client: PitonClient;
  readonly #storage: KeyValueStorage | null;
  readonly #storageKey: string;
  readonly #prompts: Observable<readonly OutgoingPrompt[]>;
  /** Storage is full or disabled: a reload would lose what is on its way. */
  readonly #isDurable = new Observable(true);
  readonly #sending = new Set<string>();

  constructor(client: PitonClient, storage: KeyValueStorage | null, storageKey = "piton.outbox") {
    this.#client = client;
    this.#storage = storage;
    this.#storageKey = storageKey;
    this.#prompts = new Observable<readonly OutgoingPrompt[]>(this.#read());
    if (!storage) this.#isDurable.set(false);
  }

  get prompts(): ReadonlyObservable<readonly OutgoingPrompt[]> {
    return this.#prompts;
  }

  get isDurable(): ReadonlyObservable<boolean> {
    return this.#isDurable;
  }

  /** Sends a prompt; resolves when the server has it in its log. Rejects if it refuses or cannot be reached. */
  async send(sessionId: string, content: PromptContent, options: PromptOptions = {}): Promise<PromptAccepted> {
    if (this.#prompts.value.length >= OUTGOING_MAX) throw new RangeError(`At most ${OUTGOING_MAX} prompts can be on their way`);
    const prompt: OutgoingPrompt = {
      key: options.idempotencyKey ?? this.#client.newKey(),
      session_id: sessionId,
      content,
      if_busy: options.ifBusy ?? "queue",
      created_at: this.#client.environment.now(),
      refusal: null,
    };
    this.#write([...this.#prompts.value, prompt]);
    return await this.#deliver(prompt);
  }

  /** Sends again what is on its way, in order, e.g. after a reload or a reconnection. */
  async flush(): Promise<void> {
    for (const prompt of this.#prompts.value) {
      if (prompt.refusal || this.#sending.has(prompt.key)) continue;
      if (this.#client.environment.now() - prompt.created_at > KEY_MAX_AGE_MS) {
        this.#refuse(prompt, { code: "request_timeout", title: "The prompt was not delivered within a day", hint: "Send it again, or drop it." });
        continue;
      }
      try {
        await this.#deliver(prompt);
      } catch (error) {
        if (error instanceof ConnectionError) return;
        if (!(error instanceof ProblemError)) throw error;
      }
    }
  }

  drop(key: string): void {
    this.#write(this.#prompts.value.filter((prompt) => prompt.key !== key));
  }

  async #deliver(prompt: OutgoingPrompt): Promise<PromptAccepted> {
    this.#sending.add(prompt.key);
    try {
      const api = new SessionApi(this.#client, prompt.session_id);
      const accepted = await api.prompt(prompt.content, { ifBusy: prompt.if_busy, idempotencyKey: prompt.key });
      this.drop(prompt.key);
      return accepted;
    } catch (error) {
      // What may be carried out later stays on its way: signed out, overloaded, not reachable.
      if (error instanceof ProblemError && !error.isTemporary && !error.isSignedOut && error.status < 500) {
        this.#refuse(prompt, { code: error.code, title: error.message, hint: error.hint });
      }
      throw error;
    } finally {
      this.#sending.delete(prompt.key);
    }
  }

  #refuse(prompt: OutgoingPrompt, refusal: NonNullable<OutgoingPrompt["refusal"]>): void {
    this.#write(this.#prompts.value.map((one) => (one.key === prompt.key ? { ...one, refusal } : one)));
  }

  #read(): OutgoingPrompt[] {
    try {
      const text = this.#storage?.getItem(this.#storageKey);
      const prompts: unknown = text ? JSON.parse(text) : [];
      return Array.isArray(prompts) ? (prompts as OutgoingPrompt[]) : [];
    } catch {
      // Disabled storage, or not ours: begins empty.
      return [];
    }
  }

  #write(prompts: readonly OutgoingPrompt[]): void {
    this.#prompts.set(prompts);
    if (!this.#storage) return;
    try {
      if (prompts.length === 0) this.#storage.removeItem(this.#storageKey);
      else this.#storage.setItem(this.#storageKey, JSON.stringify(prompts));
      this.#isDurable.set(true);
    } catch {
      this.#isDurable.set(false);
    }
  }
}
