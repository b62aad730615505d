/**
 * Keeps the checkpoint of one run. The answer is gathered in plain fields that are current at every
 * moment, so that a page that is being hidden can write them before it is suspended.
 */
import { trimMessages, type TrimmedMessages, WARN_BYTES } from "./checkpoint.js";
import { takeRun } from "./detect.js";
import type { HeldLock, TabLock } from "./lock.js";
import { lockLost, type RunStorage } from "./storage.js";
import { type Report, reporter, type RunTelemetry } from "./telemetry.js";
import {
  CHECKPOINT_VERSION, type Clock, codeOf, type LoopPhase, messageOf, newId, RunError, type RunCheckpoint, type RunIdentity,
  type RunMessage, systemClock,
} from "./types.js";

export interface RecorderOptions {
  chatId: string;
  provider: string;
  model: string;
  identity: RunIdentity;
  storage: RunStorage;
  lock: TabLock;
  clock?: Clock;
  telemetry?: RunTelemetry | undefined;
  /** While an answer streams, it is saved at least this often. */
  flushEveryMs?: number | undefined;
  /** A larger checkpoint is warned of, and loses its oldest rounds. */
  warnBytes?: number | undefined;
}

export interface RecorderStart {
  baseMessageCount: number;
  deltaMessages: RunMessage[];
  jobId?: string;
  /**
   * The checkpoint that the run is resumed from. It stays as it is until the model answers, so that nothing
   * is lost when the provider is down.
   */
  resumes?: RunCheckpoint;
}

/** What a delegated coder knows; any part of it may be missing. */
export interface CoderState {
  plan?: string;
  tasks?: string[];
  files?: string[];
  assumptions?: string[];
  errors?: string[];
}

const FLUSH_EVERY_MS = 400;

export class RunRecorder {
  readonly runId = newId();
  /** How often the page was hidden or frozen since the run began. */
  suspensions = 0;
  /** When the model's first output came. */
  outputAt: number | null = null;
  /** Set when another tab has taken the run over. */
  onLost: (() => void) | null = null;

  readonly #clock: Clock;
  readonly #report: Report;
  readonly #flushEveryMs: number;
  readonly #warnBytes: number;
  #held: HeldLock | null = null;
  /** From `begin` until the end, or until another tab has taken the run over. */
  #isOwner = false;
  #writeSeq = 0;
  #round = 0;
  #phase: LoopPhase = "streaming_llm";
  #baseMessageCount = 0;
  #delta: RunMessage[] = [];
  /** What is written of `delta`, until it changes. */
  #written: TrimmedMessages | null = null;
  #accumulated = "";
  #thinking = "";
  #coderActive = false;
  #coderState: string | null = null;
  #userAborted = false;
  #jobId: string | null = null;
  #isResumed = false;
  #isDirty = false;
  #hasWarned = false;
  #lastSaveAt = 0;
  #timer: unknown = null;
  readonly #listening = new AbortController();
  #suspensionsBeforeRound = 0;

  readonly #options: RecorderOptions;

  constructor(options: RecorderOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#report = reporter(options.telemetry, options.chatId);
    this.#flushEveryMs = options.flushEveryMs ?? FLUSH_EVERY_MS;
    this.#warnBytes = options.warnBytes ?? WARN_BYTES;
  }

  /** Takes the run. Throws `owned_by_this_page`, `owned_by_other_tab` or `owned_by_server`. */
  async begin(start: RecorderStart): Promise<void> {
    const { chatId, storage, lock } = this.#options;
    this.#held = await takeRun(lock, chatId);
    try {
      const loaded = await storage.load(chatId, start.resumes ? undefined : "forWriting");
      if (start.resumes && loaded.checkpoint?.writeSeq !== start.resumes.writeSeq) {
        throw new RunError("run_changed", "The run was continued or ended in another tab.");
      }
      // A server owns the run until it has ended and the page was told: never two owners.
      const owner = start.resumes ? null : (loaded.checkpoint?.jobId ?? null);
      if (owner !== null && owner !== start.jobId) throw new RunError("owned_by_server", "The run continues on the server.");
      this.#writeSeq = loaded.writeSeq;
    } catch (error) {
      await this.#held.release();
      throw error;
    }
    this.#isOwner = true;
    this.#baseMessageCount = start.baseMessageCount;
    this.#delta = [...start.deltaMessages];
    this.#jobId = start.jobId ?? null;
    this.#isResumed = start.resumes !== undefined;
    this.#listen();
    this.#suspensionsBeforeRound = this.suspensionMark();
  }

  /** The checkpoint that the run was resumed from is still the one that counts. */
  get isResumeUnanswered(): boolean {
    return this.#isResumed && this.outputAt === null && !this.#userAborted;
  }

  get isAborted(): boolean {
    return this.#userAborted;
  }

  /** The page was hidden or frozen in this round: what fails now may have failed for that. */
  get wasSuspended(): boolean {
    return this.suspensions > this.#suspensionsBeforeRound;
  }

  /**
   * What `suspensions` is compared with later. A page that is hidden already counts: it may be suspended at any
   * moment, on some systems without another event.
   */
  suspensionMark(): number {
    return this.suspensions - (isHidden() ? 1 : 0);
  }

  /** False: another tab has taken the run over, and what this one knows of it is old. */
  async isOwner(): Promise<boolean> {
    // Only a write is checked against the lease.
    if (this.#held?.fence) await this.#save();
    return this.#isOwner;
  }

  /** Before the model is asked. */
  startRound(round: number): void {
    this.#round = round;
    this.#suspensionsBeforeRound = this.suspensionMark();
    this.#phase = "streaming_llm";
    this.#accumulated = "";
    this.#thinking = "";
    void this.#save();
  }

  /** With every piece of the answer, at once. */
  text(piece: string): void {
    this.#accumulated += piece;
    this.#touch();
  }

  reasoning(piece: string): void {
    this.#thinking += piece;
    this.#touch();
  }

  /** The first output of the model: from here on the run's own checkpoints count. */
  outputReceived(): void {
    this.outputAt ??= this.#clock.now();
  }

  /**
   * The answer is whole; before its tool calls are looked at. This and the steps below throw `lock_lost` when another
   * tab has the run: then nothing may be run, and nothing saved.
   */
  async responseReceived(): Promise<void> {
    this.outputReceived();
    await this.#saveOwned();
  }

  /** Before the tools are run: the calls are on the disk before anything happens. */
  async startTools(assistant: RunMessage): Promise<void> {
    this.outputReceived();
    this.#phase = "executing_tools";
    this.push(assistant);
    await this.#saveOwned();
  }

  /** All results of the parallel calls, or that of the change behind them. */
  async toolResults(results: RunMessage[]): Promise<void> {
    this.#phase = "executing_tools";
    this.push(...results);
    await this.#saveOwned();
  }

  /** Runs a delegated coder. What it reports of its state is kept; its own loop is not resumed. */
  async delegate<T>(work: (context: { onState: (state: CoderState | string) => void }) => Promise<T>): Promise<T> {
    this.#phase = "delegating_coder";
    this.#coderActive = true;
    this.#coderState = null;
    await this.#saveOwned();
    try {
      return await work({
        onState: (state) => {
          this.#coderState = typeof state === "string" ? state : formatCoderState(state);
          void this.#save();
        },
      });
    } finally {
      this.#coderActive = false;
      // The phase stays until the result is there: what the coder reported is all that is known of its work.
      await this.#save();
    }
  }

  /** Messages of the run. An answer that is whole is one of them, and no partial answer any more. */
  push(...messages: RunMessage[]): void {
    this.#delta.push(...messages);
    if (messages.some((message) => message.role === "assistant")) this.#accumulated = this.#thinking = "";
    this.#written = null;
    this.#isDirty = true;
  }

  /**
   * The app's own conversation has this many messages now: the next checkpoint does without them. One that
   * was written before names fewer, and is as right.
   */
  persisted(messageCount: number): void {
    const added = Math.min(Math.max(0, messageCount - this.#baseMessageCount), this.#delta.length);
    this.#delta.splice(0, added);
    this.#baseMessageCount += added;
    this.#written = null;
  }

  /** The user stops the run: written at once, so that it is not offered if the page dies right now. */
  abort(): void {
    this.#userAborted = true;
    this.flush();
  }

  /** Writes what is current; localStorage has it when this returns. */
  flush(): void {
    void this.#save();
  }

  /** The run is over. `keep` leaves the checkpoint for a resume. */
  async end(how: "clear" | "keep"): Promise<void> {
    this.#clock.clearTimeout(this.#timer);
    this.#listening.abort();
    try {
      if (how === "clear") await this.#options.storage.clear(this.#options.chatId, ++this.#writeSeq, this.#held?.fence);
      else if (this.#isDirty) await this.#save();
    } catch (error) {
      this.#report.warn("not_cleared", messageOf(error));
    } finally {
      this.#isOwner = false;
      await this.#held?.release();
    }
  }

  checkpoint(): RunCheckpoint {
    const { chatId, provider, model, identity } = this.#options;
    const delta = this.#smallDelta();
    return {
      version: CHECKPOINT_VERSION,
      chatId,
      round: this.#round,
      phase: this.#phase,
      baseMessageCount: this.#baseMessageCount,
      deltaMessages: delta.messages,
      accumulated: this.#accumulated,
      thinkingAccumulated: this.#thinking,
      coderDelegationActive: this.#coderActive,
      lastCoderState: this.#coderState,
      savedAt: this.#clock.now(),
      provider,
      model,
      ...identity,
      userAborted: this.#userAborted,
      jobId: this.#jobId,
      runId: this.runId,
      writeSeq: this.#writeSeq,
      trimmedMessages: delta.trimmed,
    };
  }

  /** Nothing is left out of it, however large it is. */
  wholeCheckpoint(): RunCheckpoint {
    return { ...this.checkpoint(), deltaMessages: [...this.#delta], trimmedMessages: 0 };
  }

  async #save(): Promise<void> {
    if (this.isResumeUnanswered || !this.#isOwner) return;
    this.#isDirty = false;
    this.#writeSeq += 1;
    this.#lastSaveAt = this.#clock.now();
    try {
      await this.#options.storage.save(this.checkpoint(), this.#held?.fence);
    } catch (error) {
      if (codeOf(error) === "lock_lost") {
        this.#isOwner = false;
        this.onLost?.();
      } else this.#report.warn("not_saved", messageOf(error));
    }
  }

  async #saveOwned(): Promise<void> {
    await this.#save();
    if (!this.#isOwner) throw lockLost();
  }

  /** Timers of hidden pages are held back, so the pieces themselves look at the clock, too. */
  #touch(): void {
    this.#isDirty = true;
    this.outputReceived();
    if (this.#clock.now() - this.#lastSaveAt >= this.#flushEveryMs) this.flush();
    else this.#timer ??= this.#clock.setTimeout(() => {
      this.#timer = null;
      if (this.#isDirty) this.flush();
    }, this.#flushEveryMs);
  }

  #smallDelta(): TrimmedMessages {
    if (this.#written) return this.#written;
    this.#written = trimMessages([...this.#delta], this.#warnBytes);
    const { bytes } = this.#written;
    if (bytes > this.#warnBytes && !this.#hasWarned) {
      this.#hasWarned = true;
      this.#report.warn("checkpoint_large", `${bytes} bytes`);
    }
    return this.#written;
  }

  #listen(): void {
    if (typeof document === "undefined") return;
    const { signal } = this.#listening;
    const suspend = (event: Event) => {
      if (event.type === "visibilitychange" && !isHidden()) return;
      this.suspensions += 1;
      this.flush();
    };
    document.addEventListener("visibilitychange", suspend, { signal });
    document.addEventListener("freeze", suspend, { signal });
    window.addEventListener("pagehide", suspend, { signal });
  }
}

function isHidden(): boolean {
  return typeof document !== "undefined" && document.visibilityState === "hidden";
}

function formatCoderState({ plan, tasks, files, assumptions, errors }: CoderState): string {
  const lists = { "Open tasks": tasks, "Files touched": files, Assumptions: assumptions, Errors: errors };
  const lines = Object.entries(lists).flatMap(([title, items = []]) => (items.length > 0 ? [`${title}:`, ...items.map((item) => `- ${item}`)] : []));
  return ["[CODER_STATE]", ...(plan ? [`Plan: ${plan}`] : []), ...lines].join("\n");
}
