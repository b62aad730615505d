/**
 * From an interrupted run to a running one: found, offered, and only when the user asks for it compared
 * with the workspace and continued. Headless; the banner is one way to show it.
 */
import { openCalls, withOpenCallsAnswered } from "./checkpoint.js";
import { type Detection, detectInterruptedRun, MAX_AGE_MS, type RefusalReason, refuse, takeRun } from "./detect.js";
import { TRUTH_TIMEOUT_MS, within } from "./limit.js";
import type { LockOwner, TabLock } from "./lock.js";
import type { Fence, RunStorage } from "./storage.js";
import { Observed } from "./state.js";
import { interruptionSummary, type Truth } from "./summary.js";
import { type Report, reporter, type RunTelemetry } from "./telemetry.js";
import type { NullableIdentity, Sandbox } from "./truth.js";
import { type Clock, codeOf, type LoopPhase, messageOf, RunError, type RunCheckpoint, type RunMessage, systemClock } from "./types.js";

/** The conversation as the app keeps it. */
export interface Conversation {
  load(): RunMessage[] | Promise<RunMessage[]>;
  save(messages: RunMessage[]): void | Promise<void>;
}

/** What a resumed loop begins with. */
export interface RestoredRun {
  checkpoint: RunCheckpoint;
  /** `persisted.slice(0, baseMessageCount)`, the deltas, and the interruption summary. */
  messages: RunMessage[];
  /** The deltas with the summary: what the persisted conversation does not have. */
  deltaMessages: RunMessage[];
  summary: string;
  truth: Truth | null;
  provider: string;
  model: string;
  /** The round to continue with. */
  round: number;
}

/** How a resumed run came to its end. */
export interface ResumeEnd {
  outcome: string;
  /** When the model's first output came. */
  outputAt: number | null;
  /** Of the outcome `error`: what `resume` is rejected with, where nothing else shows it. */
  error?: unknown;
}

export type RecoveryState =
  | { status: "checking" }
  /** Nothing to resume. With a `reason` there was something. */
  | { status: "none"; reason: RefusalReason; sentence: string; checkpoint: RunCheckpoint | null }
  /** `problem`: why the last attempt did not succeed. */
  | { status: "offered"; sentence: string; checkpoint: RunCheckpoint; problem: RecoveryProblem | null }
  | { status: "resuming"; sentence: string; checkpoint: RunCheckpoint }
  | { status: "resumed"; checkpoint: RunCheckpoint }
  /** The sandbox was gone: a new one is there, the conversation is kept, the run is not continued. */
  | { status: "fresh"; sentence: string }
  /** A server owns the run. */
  | { status: "job"; jobId: string; sentence: string; checkpoint: RunCheckpoint };

export interface RecoveryProblem {
  code: string;
  sentence: string;
  /** The run can be resumed without the workspace's state: `resume({ withoutTruth: true })`. */
  canResumeWithoutTruth: boolean;
}

export interface RecoveryOptions {
  chatId: string;
  storage: RunStorage;
  lock: TabLock;
  sandbox: Sandbox;
  conversation: Conversation;
  /** Continues the run. Its promise is fulfilled when the run has ended, or given an error that keeps the checkpoint. */
  onResume: (restored: RestoredRun) => void | ResumeEnd | Promise<void | ResumeEnd>;
  clock?: Clock;
  telemetry?: RunTelemetry | undefined;
  maxAgeMs?: number | undefined;
  truthTimeoutMs?: number | undefined;
}

/** A container may have to be made. */
const CREATE_TIMEOUT_MS = 120_000;
/** What the model is asked behind the summary. */
const REQUEST = "Continue where you left off.";

const DOING: Record<LoopPhase, string> = {
  streaming_llm: "while the answer was being received",
  executing_tools: "while tools were running",
  delegating_coder: "while the coder was working",
};

export class Recovery extends Observed<RecoveryState> {
  readonly #clock: Clock;
  readonly #report: Report;
  #waiting: AbortController | null = null;
  /** The run whose interruption was reported last. */
  #counted = "";

  readonly #options: RecoveryOptions;

  constructor(options: RecoveryOptions) {
    super({ status: "checking" });
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#report = reporter(options.telemetry, options.chatId);
  }

  /** Looks for an interrupted run. Ask again when sandbox, branch or repository change. */
  async check(): Promise<RecoveryState> {
    this.#waiting?.abort();
    return this.#show(await this.#detect(await this.#identity()));
  }

  #detect(current: Partial<NullableIdentity> = {}): Promise<Detection> {
    const { chatId, storage, lock, sandbox } = this.#options;
    // A run is too old when its sandbox has ended: one that stays has no such limit.
    const maxAgeMs = sandbox.isPersistent ? Infinity : this.#options.maxAgeMs;
    return detectInterruptedRun({ chatId, storage, lock, current, clock: this.#clock, maxAgeMs });
  }

  #show(found: Detection): RecoveryState {
    if (!found.offered) return this.#refused(found.reason, found.checkpoint);
    const { checkpoint, ageMs } = found;
    const { jobId, phase, runId } = checkpoint;
    if (jobId !== null) return this.setState({ status: "job", jobId, sentence: "The run continues on the server.", checkpoint });
    // Once, however often this page looks for it.
    if (this.#counted !== runId) this.#report({ type: "interrupted", phase, ageMs, runId });
    this.#counted = runId;
    return this.#offer(checkpoint, null);
  }

  /**
   * Continues the run, on the user's word only. Rejected with the error of an app's own loop that ended with it: that
   * run is over, and not offered again.
   */
  async resume(how: { withoutTruth?: boolean } = {}): Promise<RecoveryState> {
    const { chatId, storage, conversation } = this.#options;
    const before = this.getState();
    if (before.status !== "offered") return before;
    const asked = this.#clock.now();
    const { phase, runId } = before.checkpoint;
    this.setState({ status: "resuming", sentence: "Comparing with the workspace …", checkpoint: before.checkpoint });
    let end: void | ResumeEnd;
    try {
      // Another tab may have ended the run since it was offered, and time has passed.
      const [current, isGone] = await Promise.all([this.#identity(), this.#isGone()]);
      const found = await this.#detect(current);
      if (!found.offered || found.checkpoint.runId !== runId) return this.#show(found);
      const { checkpoint } = found;
      if (isGone) return await this.#startFresh(checkpoint);
      const truth = how.withoutTruth ? null : await this.#truth();
      // While the workspace was asked, the user may have dismissed the run or begun another one.
      if ((await storage.load(chatId)).checkpoint?.writeSeq !== checkpoint.writeSeq) return await this.check();
      const persisted = await conversation.load();
      if (persisted.length < checkpoint.baseMessageCount) {
        throw new RunError("conversation_missing", "The conversation of the run is not complete in this browser.");
      }
      if (missingIn(persisted, checkpoint).isContinued) {
        throw new RunError("conversation_continued", "The conversation was continued elsewhere.");
      }
      const restored = restore(checkpoint, persisted, truth);
      this.#report({ type: "resumed", phase, ageMs: Math.max(0, asked - checkpoint.savedAt) });
      this.setState({ status: "resumed", checkpoint });
      end = await this.#options.onResume(restored);
    } catch (error) {
      return await this.#failed(before.checkpoint, error);
    }
    if (end) {
      const { outcome, outputAt, error } = end;
      const timeToResumeMs = outputAt === null ? null : Math.max(0, outputAt - asked);
      this.#report({ type: "resume_ended", phase, success: outcome === "completed", outcome, timeToResumeMs });
      if (outcome === "error" && error !== undefined) throw error;
    }
    return this.getState();
  }

  /** Gives the run up. What it had said is kept in the conversation. A job continues, but the chat is free. */
  async dismiss(): Promise<void> {
    await this.#alone(async (fence) => {
      const checkpoint = await this.#end(fence);
      if (checkpoint) this.#report({ type: "dismissed", phase: checkpoint.phase });
      this.#refused("no_checkpoint");
    });
  }

  /** What the run had said joins the conversation, and the run is over. */
  async #end(fence: Fence | undefined): Promise<RunCheckpoint | null> {
    const { chatId, storage } = this.#options;
    const { checkpoint, writeSeq } = await storage.load(chatId, "forWriting");
    if (checkpoint) await this.keep(checkpoint);
    await storage.clear(chatId, writeSeq + 1, fence);
    return checkpoint;
  }

  /** @internal Before a new run: an interrupted one is dismissed. */
  async giveUp(): Promise<void> {
    const { checkpoint } = await this.#options.storage.load(this.#options.chatId);
    // What a server owns is refused by the recorder, under the lock.
    if (checkpoint?.jobId) return;
    if (checkpoint) await this.dismiss();
    // What was said about the last run does not stay on the screen during the next one.
    else this.#refused("no_checkpoint");
  }

  /** As the owner of the run. Throws as `takeRun` does. */
  async #alone(act: (fence?: Fence) => Promise<void>): Promise<void> {
    const held = await takeRun(this.#options.lock, this.#options.chatId);
    try {
      await act(held.fence);
    } finally {
      await held.release();
    }
  }

  /** A resumed run did not come to an end: it is offered again, and why; if it is still there. */
  async #failed(checkpoint: RunCheckpoint, error: unknown): Promise<RecoveryState> {
    const code = codeOf(error) ?? "resume_failed";
    this.#report({ type: "resume_failed", phase: checkpoint.phase, reason: code });
    const found = await this.#detect();
    if (!found.offered || found.checkpoint.runId !== checkpoint.runId) return this.#show(found);
    return this.#offer(found.checkpoint, { code, sentence: messageOf(error), canResumeWithoutTruth: code === "truth_unavailable" });
  }

  /** Stops waiting for the end of a run that is active. */
  close(): void {
    this.#waiting?.abort();
  }

  /** An answer of the sandbox, which may be gone or behind a dead connection. */
  #ask<T>(question: () => T | Promise<T>): Promise<T> {
    return within(this.#clock, this.#options.truthTimeoutMs ?? TRUTH_TIMEOUT_MS, question);
  }

  /** What cannot be known now is not compared. */
  #identity(): Promise<Partial<NullableIdentity>> {
    return this.#ask<Partial<NullableIdentity>>(() => this.#options.sandbox.identity()).catch(() => ({}));
  }

  async #truth(): Promise<Truth> {
    const limit = new AbortController();
    try {
      return await this.#ask(() => this.#options.sandbox.truth(limit.signal));
    } catch (error) {
      limit.abort();
      throw new RunError("truth_unavailable", `The state of the workspace cannot be read: ${messageOf(error)}`, { cause: error });
    }
  }

  /** Only a sandbox that is known to be gone counts: one that cannot be reached may be back in a minute. */
  async #isGone(): Promise<boolean> {
    const { sandbox } = this.#options;
    return (await this.#ask(async () => sandbox.isAlive?.()).catch(() => true)) === false;
  }

  async #startFresh(checkpoint: RunCheckpoint): Promise<RecoveryState> {
    const { sandbox } = this.#options;
    await this.#alone(async (fence) => {
      await within(this.#clock, CREATE_TIMEOUT_MS, async () => sandbox.create?.());
      await this.#end(fence);
    });
    this.#report({ type: "resume_failed", phase: checkpoint.phase, reason: "sandbox_gone" });
    return this.setState({ status: "fresh", sentence: `Sandbox expired${sandbox.create ? ", starting fresh" : ""}. The conversation is kept.` });
  }

  /** @internal The messages of a run that is not continued, and the answer that was cut off, join the conversation. */
  async keep(checkpoint: RunCheckpoint): Promise<void> {
    const { conversation } = this.#options;
    const persisted = await conversation.load();
    // Without the messages that it builds on, the rest has no place in the conversation.
    if (persisted.length < checkpoint.baseMessageCount) return;
    const { messages } = missingIn(persisted, checkpoint);
    if (messages.length > 0) await conversation.save(persisted.concat(messages));
  }

  #offer(checkpoint: RunCheckpoint, problem: RecoveryProblem | null): RecoveryState {
    const { phase, savedAt } = checkpoint;
    const when = this.#clock.now() - savedAt > MAX_AGE_MS ? ` (${new Date(savedAt).toLocaleString()})` : "";
    const sentence = `The session was interrupted${when} ${DOING[phase]}. Resume where you left off?`;
    return this.setState({ status: "offered", sentence, checkpoint, problem });
  }

  #refused(reason: RefusalReason, checkpoint: RunCheckpoint | null = null): RecoveryState {
    if (reason !== "no_checkpoint") {
      this.#report({ type: "refused", phase: checkpoint?.phase ?? null, reason });
    }
    if (isOwned(reason)) this.#checkWhenFree();
    return this.setState({ status: "none", ...refuse(reason, checkpoint) });
  }

  /** Its owner may end without ending the run. */
  #checkWhenFree(): void {
    this.#waiting?.abort();
    const waiting = new AbortController();
    this.#waiting = waiting;
    this.#options.lock
      .whenFree(this.#options.chatId, waiting.signal)
      .then(() => this.check())
      .catch((error: unknown) => {
        if (!waiting.signal.aborted) console.error(error);
      });
  }
}

function isOwned(reason: string): reason is LockOwner {
  return reason === "owned_by_this_page" || reason === "owned_by_other_tab";
}

/**
 * What the conversation lacks of a run: its messages and the answer that was cut off. `isContinued`: it has others in
 * their place, of another device or a newer copy. Apps keep messages in forms of their own: only roles are compared.
 */
function missingIn(persisted: RunMessage[], checkpoint: RunCheckpoint): { messages: RunMessage[]; isContinued: boolean } {
  const { baseMessageCount, deltaMessages, accumulated, trimmedMessages } = checkpoint;
  const run = withOpenCallsAnswered(persisted.slice(0, baseMessageCount).concat(deltaMessages)).slice(baseMessageCount);
  if (accumulated) run.push({ role: "assistant", content: accumulated });
  const since = persisted.slice(baseMessageCount);
  // Rounds that were left out of the checkpoint are in the conversation of an app that saved them itself.
  if (trimmedMessages > 0 && since.length >= run.length) return { messages: [], isContinued: false };
  let same = 0;
  while (same < Math.min(since.length, run.length) && since[same]?.role === run[same]?.role) same++;
  const isContinued = same < since.length;
  // A result goes where its call is.
  while (isContinued && run[same]?.role === "tool") same--;
  return { messages: run.slice(same), isContinued };
}

/** The messages that a run is continued with. Pure. */
export function restore(
  checkpoint: RunCheckpoint,
  persisted: RunMessage[],
  truth: Truth | null,
): RestoredRun {
  const before = persisted.slice(0, checkpoint.baseMessageCount).concat(checkpoint.deltaMessages);
  const answered = withOpenCallsAnswered(before);
  const summary = interruptionSummary(
    {
      phase: checkpoint.phase,
      round: checkpoint.round,
      answer: checkpoint.accumulated,
      calls: openCalls(before),
      coderState: checkpoint.lastCoderState,
      truth,
      truthError: "it could not be read",
    },
    REQUEST,
  );
  const messages = answered.concat({ role: "user", content: summary });
  return {
    checkpoint,
    messages,
    deltaMessages: messages.slice(checkpoint.baseMessageCount),
    summary,
    truth,
    provider: checkpoint.provider,
    model: checkpoint.model,
    round: checkpoint.phase === "streaming_llm" ? checkpoint.round : checkpoint.round + 1,
  };
}
