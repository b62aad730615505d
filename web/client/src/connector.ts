/**
 * Keeps one connection up: connects, notices that it is dead, waits, connects again. A lost network is
 * `reconnecting` and never an error; only the server's word ends it.
 */
import { Backoff } from "./backoff.js";
import type { PitonClient } from "./client.js";
import type { Wake } from "./environment.js";
import { ProblemError } from "./errors.js";
import { Observable, type ReadonlyObservable } from "./observable.js";

export type ConnectionPhase =
  /** The first attempt. */
  | "connecting"
  | "live"
  /** The connection was lost, or could not be made yet; it is tried for ever. */
  | "reconnecting"
  /** There is no token, or it is not accepted any more. Begins again with another token. */
  | "signed_out"
  /** The server refuses for good, e.g. because the session was deleted; `problem` says why. */
  | "refused"
  /** `stop()` was called, or it was never started. */
  | "stopped";

export interface ConnectionState {
  phase: ConnectionPhase;
  /** Since when, in milliseconds of the epoch. */
  since: number;
  /** The device says that it has no network. */
  isOffline: boolean;
  problem: ProblemError | null;
}

/** The server says something every 15 s; after this time without a word the connection is dead. */
export const SILENCE_MAX_MS = 40_000;
/** A page that was hidden may have slept through the silence: after this it connects again at once. */
const STALE_MS = 20_000;

export abstract class Connector {
  readonly #client: PitonClient;
  readonly #state: Observable<ConnectionState>;
  readonly #backoff: Backoff;
  #abort: AbortController | null = null;
  #stopWatching: (() => void) | null = null;
  #wake: (() => void) | null = null;
  #heardAt = 0;
  #wasLive = false;

  constructor(client: PitonClient) {
    this.#client = client;
    this.#backoff = new Backoff(client.environment.random);
    this.#state = new Observable<ConnectionState>({ phase: "stopped", since: client.environment.now(), isOffline: false, problem: null });
  }

  get connection(): ReadonlyObservable<ConnectionState> {
    return this.#state;
  }

  protected get client(): PitonClient {
    return this.#client;
  }

  /** Makes one connection and reads it to its end. */
  protected abstract connect(signal: AbortSignal): Promise<void>;

  /** Whether the server's refusal is the end; by default every lasting one is. */
  protected isFinal(problem: ProblemError): boolean {
    return !problem.isTemporary && problem.status < 500;
  }

  start(): void {
    if (this.#abort) return;
    this.#wasLive = false;
    this.#backoff.reset();
    const abort = new AbortController();
    this.#abort = abort;
    const stopWake = this.#client.environment.watch((wake) => this.#woken(wake));
    let isFirst = true;
    const stopToken = this.#client.token.subscribe(() => {
      if (!isFirst) this.#reconnect();
      isFirst = false;
    });
    this.#stopWatching = () => {
      stopWake();
      stopToken();
    };
    void this.#run(abort.signal);
  }

  stop(): void {
    if (!this.#abort) return;
    this.#stopWatching?.();
    this.#stopWatching = null;
    const abort = this.#abort;
    this.#abort = null;
    abort.abort();
    this.#wake?.();
    this.#become("stopped");
  }

  /** The connection is made. */
  protected live(): void {
    this.heard();
    this.#wasLive = true;
    this.#become("live");
  }

  /** Something came that was worth the connection: later attempts begin with a short delay again. */
  protected progressed(): void {
    this.#backoff.reset();
  }

  /** Something came, if only a heartbeat. */
  protected heard(): void {
    this.#heardAt = this.#client.environment.now();
  }

  #attempt: AbortController | null = null;

  #reconnect(): void {
    this.#backoff.reset();
    this.#attempt?.abort();
    this.#wake?.();
  }

  #woken(wake: Wake): void {
    const { environment } = this.#client;
    if (wake === "offline") {
      this.#attempt?.abort();
      this.#become(this.#phaseBefore());
    } else if (wake === "online") {
      this.#reconnect();
    } else if (wake === "visible") {
      const isStale = environment.now() - this.#heardAt > STALE_MS;
      if (this.#state.value.phase !== "live" || isStale) this.#reconnect();
    }
  }

  #phaseBefore(): ConnectionPhase {
    return this.#wasLive || this.#backoffBegan ? "reconnecting" : "connecting";
  }

  #backoffBegan = false;

  #become(phase: ConnectionPhase, problem: ProblemError | null = null): void {
    const { environment } = this.#client;
    const isOffline = !environment.isOnline();
    const now = this.#state.value;
    if (now.phase === phase && now.isOffline === isOffline && now.problem === problem) return;
    const since = now.phase === phase ? now.since : environment.now();
    this.#state.set({ phase, since, isOffline, problem });
  }

  async #run(stopped: AbortSignal): Promise<void> {
    while (!stopped.aborted) {
      if (this.#client.token.value === null) {
        this.#become("signed_out");
        await this.#sleep(null, stopped);
        continue;
      }
      this.#become(this.#phaseBefore());
      const problem = await this.#once(stopped);
      if (stopped.aborted) return;
      if (problem?.isSignedOut) {
        this.#become("signed_out", problem);
        const refused = this.#client.token.value;
        while (!stopped.aborted && this.#client.token.value === refused) await this.#sleep(null, stopped);
        continue;
      }
      if (problem && this.isFinal(problem)) {
        this.#become("refused", problem);
        return;
      }
      this.#backoffBegan = true;
      this.#become("reconnecting", problem);
      await this.#sleep(Math.max(this.#backoff.nextMs(), problem?.retryAfterMs ?? 0), stopped);
    }
  }

  /** One connection; returns the server's refusal, if that ended it. */
  async #once(stopped: AbortSignal): Promise<ProblemError | null> {
    const attempt = new AbortController();
    this.#attempt = attempt;
    const onStop = () => attempt.abort();
    stopped.addEventListener("abort", onStop, { once: true });
    this.heard();
    const endWatchdog = this.#watchdog(attempt);
    try {
      await this.connect(attempt.signal);
      return null;
    } catch (error) {
      return error instanceof ProblemError ? error : null;
    } finally {
      endWatchdog();
      stopped.removeEventListener("abort", onStop);
      attempt.abort();
      if (this.#attempt === attempt) this.#attempt = null;
    }
  }

  #watchdog(attempt: AbortController): () => void {
    const { environment } = this.#client;
    let end = () => {};
    const look = (ms: number) => {
      end = environment.setTimeout(() => {
        const silent = environment.now() - this.#heardAt;
        if (silent >= SILENCE_MAX_MS) attempt.abort();
        else look(SILENCE_MAX_MS - silent);
      }, ms);
    };
    look(SILENCE_MAX_MS);
    return () => end();
  }

  /** Until the time has passed, or something woke it. */
  async #sleep(ms: number | null, stopped: AbortSignal): Promise<void> {
    if (stopped.aborted) return;
    await new Promise<void>((resolve) => {
      const end = ms === null ? () => {} : this.#client.environment.setTimeout(resolve, ms);
      this.#wake = () => {
        end();
        resolve();
      };
    });
    this.#wake = null;
  }
}
