/** The loop: ask the model, run its tools, ask again; with a checkpoint at every step. */
import { withOpenCallsAnswered } from "./checkpoint.js";
import { follow, within } from "./limit.js";
import type { TabLock } from "./lock.js";
import { type Parts, partsOf } from "./parts.js";
import type { CoderState, RunRecorder } from "./recorder.js";
import type { Conversation, Recovery, RecoveryState, RestoredRun } from "./recovery.js";
import { lockLost, type RunStorage } from "./storage.js";
import { safely, type RunTelemetry } from "./telemetry.js";
import type { Sandbox } from "./truth.js";
import {
  type Clock, type LoopPhase, messageOf, RunError, type RunMessage, type ToolCall,
} from "./types.js";

export type StreamPart =
  | { type: "text"; text: string }
  | { type: "thinking"; text: string }
  | { type: "tool-call"; call: ToolCall };

export interface StreamRequest {
  messages: RunMessage[];
  tools: ToolDescription[];
  provider: string;
  model: string;
  signal: AbortSignal;
}

/** Asks a model. Throws when the answer is not whole. */
export type StreamFunction = (request: StreamRequest) => AsyncIterable<StreamPart>;

export interface ToolDescription {
  name: string;
  description: string;
  /** A JSON schema. */
  parameters: Record<string, unknown>;
}

export interface ToolContext {
  callId: string;
  signal: AbortSignal;
  /** Of a tool of the kind `delegate`: what the coder knows now. */
  onState: (state: CoderState | string) => void;
}

export interface Tool {
  description: string;
  parameters?: Record<string, unknown>;
  /** `read` runs beside others; `change` and `delegate` run alone, behind them, one in a round. */
  kind: "read" | "change" | "delegate";
  timeoutMs?: number;
  run(input: never, context: ToolContext): unknown;
}

export interface RunOptions {
  chatId: string;
  stream: StreamFunction;
  tools?: Record<string, Tool>;
  sandbox: Sandbox;
  provider: string;
  model: string;
  /** Where the app keeps the conversation; by default the run's own storage does. */
  conversation?: Conversation;
  storage?: RunStorage;
  lock?: TabLock;
  clock?: Clock;
  telemetry?: RunTelemetry;
  limits?: RunLimits;
}

export interface RunLimits {
  roundsMax?: number;
  /** Without a piece of the answer for so long, the provider counts as down. */
  streamTimeoutMs?: number;
  toolTimeoutMs?: number;
  truthTimeoutMs?: number;
  /** A page that comes back waits so long for the rest of an answer before it counts as cut off. */
  wakeTimeoutMs?: number;
  maxAgeMs?: number;
  warnBytes?: number;
  flushEveryMs?: number;
}

export interface RunState {
  status: "idle" | "running" | "completed" | "aborted" | "error" | "interrupted";
  phase: LoopPhase | null;
  round: number;
  messages: readonly RunMessage[];
  /** The answer that is being received. */
  text: string;
  thinking: string;
  error: { code: string; message: string } | null;
  /** What is wrong with the stores. With one of `local_storage_…` and one of `indexed_db_…` a reload loses the run. */
  storageProblems: readonly string[];
  recovery: RecoveryState;
}

export type RunOutcome = Exclude<RunState["status"], "idle" | "running">;

/** The code of an interruption by `close`. */
export const CLOSED = "run_closed";
const ROUNDS_MAX = 200;
const STREAM_TIMEOUT_MS = 120_000;
const TOOL_TIMEOUT_MS = 10 * 60_000;
const WAKE_TIMEOUT_MS = 20_000;

export function createRun(options: RunOptions): Run {
  return new Run(options);
}

export class Run {
  readonly recovery: Recovery;
  readonly #parts: Parts;
  readonly #clock: Clock;
  readonly #report: RunTelemetry;
  readonly #listeners = new Set<() => void>();
  #state: RunState;
  #recorder: RunRecorder | null = null;
  #stopping: AbortController | null = null;
  #isStopped = false;

  readonly #options: RunOptions;

  constructor(options: RunOptions) {
    this.#options = options;
    const parts = partsOf(options, (restored) => this.#continue(restored));
    this.#parts = parts;
    this.#clock = parts.clock;
    this.recovery = parts.recovery;
    this.#report = safely(options.telemetry);
    this.#state = {
      status: "idle", phase: null, round: 0, messages: [], text: "", thinking: "", error: null, storageProblems: [],
      recovery: this.recovery.getState(),
    };
    parts.storage.onProblem((code, detail) => {
      this.#warn(code, detail);
      this.#set({ storageProblems: [...this.#state.storageProblems, code] });
    });
    this.recovery.subscribe(() => {
      const { recovery: before } = this.#state;
      const recovery = this.recovery.getState();
      this.#set({ recovery });
      // What was dismissed, or was ended in another tab, is in the conversation now.
      if (before.status !== "checking" && (recovery.status === "none" || recovery.status === "fresh")) void this.#load();
    });
  }

  getState = (): RunState => this.#state;

  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  /**
   * Reads the conversation and looks for an interrupted run. Call it when the page is loaded. An active run is left
   * alone. A conversation that cannot be read is the `error` of the state.
   */
  async open(): Promise<RecoveryState> {
    if (this.#stopping) return this.recovery.getState();
    await this.#load();
    return this.recovery.check();
  }

  async #load(): Promise<void> {
    try {
      const messages = await this.#parts.conversation.load();
      if (!this.#stopping) this.#set({ messages });
    } catch (error) {
      if (!this.#stopping) this.#set({ error: { code: "conversation_unavailable", message: messageOf(error) } });
    }
  }

  /** Begins a run. An interrupted one is given up first; what it had said stays in the conversation. */
  async send(content: string): Promise<RunOutcome> {
    const stopping = this.#begin();
    let recorder: RunRecorder | null = null;
    try {
      await this.recovery.giveUp();
      const { provider, model } = this.#options;
      const messages = [...(await this.#parts.conversation.load())];
      recorder = await this.#parts.newRecorder(provider, model);
      await recorder.begin({ baseMessageCount: messages.length, deltaMessages: [{ role: "user", content }] });
      messages.push({ role: "user", content });
      await this.#persist(recorder, messages);
      return await this.#loop(stopping, recorder, messages, 1, provider, model);
    } catch (error) {
      await recorder?.end("keep");
      this.#finish("error", error);
      throw error;
    }
  }

  /** Ends the run. It is not offered again. */
  abort(): void {
    this.#isStopped = true;
    this.#recorder?.abort();
    this.#stopping?.abort(new RunError("aborted", "The run was stopped."));
  }

  /**
   * Lets go of the chat. A run that is active is interrupted: its checkpoint stays, and the next page or `Run` that
   * opens the chat is offered it.
   */
  close(): void {
    this.recovery.close();
    this.#stopping?.abort(new RunError(CLOSED, "The run was closed."));
  }

  async #continue(restored: RestoredRun): Promise<void> {
    const stopping = this.#begin();
    const asked = this.#clock.now();
    const { checkpoint, provider, model } = restored;
    let recorder: RunRecorder;
    let firstOutputAt: number | null = null;
    try {
      recorder = await this.#parts.newRecorder(provider, model);
      await recorder.begin({
        baseMessageCount: checkpoint.baseMessageCount,
        deltaMessages: restored.deltaMessages,
        resumes: checkpoint,
      });
    } catch (error) {
      this.#finish("interrupted", error);
      throw error;
    }
    const onOutput = () => {
      firstOutputAt ??= this.#clock.now();
    };
    const outcome = await this.#loop(stopping, recorder, [...restored.messages], restored.round, provider, model, onOutput);
    this.#report({
      type: "resume_ended",
      chatId: this.#options.chatId,
      phase: checkpoint.phase,
      success: outcome === "completed",
      outcome,
      timeToResumeMs: firstOutputAt === null ? null : Math.max(0, firstOutputAt - asked),
    });
    const { error } = this.#state;
    if (outcome === "error" && firstOutputAt === null && error) throw new RunError(error.code, error.message);
  }

  #begin(): AbortController {
    if (this.#stopping) throw new RunError("run_in_progress", "The run is active.");
    this.#isStopped = false;
    this.#stopping = new AbortController();
    this.#set({ status: "running", error: null, text: "", thinking: "" });
    return this.#stopping;
  }

  async #loop(
    stopping: AbortController, recorder: RunRecorder, messages: RunMessage[], firstRound: number, provider: string, model: string,
    onOutput: () => void = () => undefined,
  ): Promise<RunOutcome> {
    this.#recorder = recorder;
    // Stopped before there was a recorder to tell.
    if (this.#isStopped) recorder.abort();
    recorder.onLost = () => stopping.abort(lockLost());
    let suspensions = recorder.suspensions;
    try {
      const roundsMax = firstRound + (this.#options.limits?.roundsMax ?? ROUNDS_MAX);
      for (let round = firstRound; ; round++) {
        if (round >= roundsMax) throw new RunError("limit_reached", `The run ended after ${roundsMax} rounds.`);
        suspensions = recorder.suspensions;
        recorder.startRound(round);
        stopping.signal.throwIfAborted();
        this.#set({ messages: [...messages], phase: "streaming_llm", round, text: "", thinking: "" });
        const answer = await this.#ask(recorder, messages, provider, model, stopping.signal, onOutput);
        await recorder.responseReceived();
        stopping.signal.throwIfAborted();
        messages.push(answer);
        if (!answer.toolCalls) {
          recorder.push(answer);
          await this.#end(recorder, messages);
          return this.#finish("completed", null, messages);
        }
        await recorder.startTools(answer);
        stopping.signal.throwIfAborted();
        this.#set({ messages: [...messages], phase: "executing_tools", text: "", thinking: "" });
        await this.#runTools(recorder, messages, answer.toolCalls, stopping.signal);
        stopping.signal.throwIfAborted();
        await this.#persist(recorder, messages);
      }
    } catch (error) {
      return await this.#stopped(recorder, messages, error, recorder.suspensions > suspensions);
    } finally {
      this.#recorder = null;
    }
  }

  /** What an error means: the user's stop, another tab, an interruption, or an end. */
  async #stopped(
    recorder: RunRecorder, messages: RunMessage[], error: unknown, wasSuspended: boolean,
  ): Promise<RunOutcome> {
    if (this.#isStopped) return this.#finish("aborted", null, await this.#endWithPartial(recorder, messages));
    const isLost = error instanceof RunError && (error.code === "lock_lost" || error.code === CLOSED);
    if (isLost || recorder.isResumeUnanswered) {
      await recorder.end("keep");
      return this.#finish(isLost ? "interrupted" : "error", error, messages);
    }
    // The page slept, and what it waited for is gone: that is an interruption, not the run's end.
    if (wasSuspended) {
      await recorder.end("keep");
      this.#finish("interrupted", error, messages);
      await this.recovery.check();
      return "interrupted";
    }
    return this.#finish("error", error, await this.#endWithPartial(recorder, messages));
  }

  /** The part of an answer that was received stays in the conversation; the run is over. */
  async #endWithPartial(recorder: RunRecorder, messages: RunMessage[]): Promise<RunMessage[]> {
    const { text } = this.#state;
    const partial = text ? [{ role: "assistant", content: text }] : [];
    const all = withOpenCallsAnswered(messages).concat(partial);
    await this.#end(recorder, all);
    return all;
  }

  async #end(recorder: RunRecorder, messages: RunMessage[]): Promise<void> {
    await recorder.end((await this.#persist(recorder, messages)) ? "clear" : "keep");
  }

  async #ask(
    recorder: RunRecorder, messages: RunMessage[], provider: string, model: string, stop: AbortSignal, onOutput: () => void,
  ): Promise<RunMessage> {
    const { stream, tools = {}, limits = {} } = this.#options;
    const timeoutMs = limits.streamTimeoutMs ?? STREAM_TIMEOUT_MS;
    const wakeTimeoutMs = Math.min(timeoutMs, limits.wakeTimeoutMs ?? WAKE_TIMEOUT_MS);
    const { own: request, release } = follow(stop);
    const descriptions = Object.entries(tools).map(([name, tool]) => ({
      name, description: tool.description, parameters: tool.parameters ?? { type: "object", properties: {} },
    }));
    const parts = stream({ messages: [...messages], tools: descriptions, provider, model, signal: request.signal })[Symbol.asyncIterator]();
    let text = "";
    let thinking = "";
    const calls: ToolCall[] = [];
    try {
      for (;;) {
        const late = () => new RunError("provider_timeout", `The provider sent nothing for ${timeoutMs / 1000} s.`);
        const next = await this.#within(() => parts.next(), timeoutMs, wakeTimeoutMs, stop, late, recorder);
        if (next.done) break;
        const part = next.value;
        onOutput();
        if (part.type === "text") {
          text += part.text;
          recorder.text(part.text);
          this.#set({ text });
        } else if (part.type === "thinking") {
          thinking += part.text;
          recorder.reasoning(part.text);
          this.#set({ thinking });
        } else {
          recorder.outputReceived();
          calls.push(part.call);
        }
      }
    } catch (error) {
      request.abort(error);
      throw error;
    } finally {
      release();
    }
    return { role: "assistant", content: text, ...(calls.length > 0 ? { toolCalls: calls } : {}) };
  }

  async #runTools(recorder: RunRecorder, messages: RunMessage[], calls: ToolCall[], stop: AbortSignal): Promise<void> {
    const kindOf = (call: ToolCall) => this.#toolOf(call)?.kind ?? "read";
    const changeAt = calls.findIndex((call) => kindOf(call) !== "read");
    const reads = changeAt < 0 ? calls : calls.slice(0, changeAt);
    const change = calls[changeAt];
    const behind = changeAt < 0 ? [] : calls.slice(changeAt + 1);
    const add = async (results: RunMessage[]) => {
      messages.push(...results);
      await recorder.toolResults(results);
      this.#set({ messages: [...messages] });
    };
    if (reads.length > 0) {
      await add(await Promise.all(reads.map((call) => this.#runTool(recorder, call, stop))));
    }
    if (!change) return;
    stop.throwIfAborted();
    const result = await (kindOf(change) === "delegate"
      ? recorder.delegate(({ onState }) => {
          this.#set({ phase: "delegating_coder" });
          return this.#runTool(recorder, change, stop, onState);
        })
      : this.#runTool(recorder, change, stop));
    const left = behind.map((call) =>
      resultOf(call, "Not run: nothing follows a change in the same round. Make this call again if needed."),
    );
    await add([result, ...left]);
  }

  #toolOf({ name }: ToolCall): Tool | undefined {
    const { tools = {} } = this.#options;
    return Object.hasOwn(tools, name) ? tools[name] : undefined;
  }

  async #runTool(
    recorder: RunRecorder, call: ToolCall, stop: AbortSignal, onState: ToolContext["onState"] = () => undefined,
  ): Promise<RunMessage> {
    const { limits = {} } = this.#options;
    const tool = this.#toolOf(call);
    if (!tool) return resultOf(call, `Error: there is no tool ${call.name}.`);
    const timeoutMs = tool.timeoutMs ?? limits.toolTimeoutMs ?? TOOL_TIMEOUT_MS;
    const { own: working, release } = follow(stop);
    const before = recorder.suspensions;
    const late = () => new RunError("tool_timeout", `${call.name} did not return within ${timeoutMs / 1000} s. Its outcome is unknown.`);
    try {
      const context: ToolContext = { callId: call.id, signal: working.signal, onState };
      const result = await this.#within(() => tool.run(call.arguments as never, context), timeoutMs, timeoutMs, stop, late, recorder);
      return resultOf(call, typeof result === "string" ? result : (JSON.stringify(result) ?? "done"));
    } catch (error) {
      if (stop.aborted) throw error;
      working.abort(error);
      // A request that died while the page slept may have been carried out: the workspace is asked.
      if (recorder.suspensions > before && !(error instanceof RunError)) throw error;
      return resultOf(call, `Error: ${messageOf(error)}`);
    } finally {
      release();
    }
  }

  /** Waits with a limit, and with another one once the page has slept: that time does not count. */
  #within<T>(
    work: () => T | Promise<T>, ms: number, wakeMs: number, stop: AbortSignal, late: () => Error, recorder: RunRecorder,
  ): Promise<T> {
    let { suspensions } = recorder;
    const extendMs = () => {
      const hasSlept = recorder.suspensions > suspensions;
      ({ suspensions } = recorder);
      return hasSlept ? wakeMs : 0;
    };
    return within(this.#clock, ms, work, { late, extendMs, stop });
  }

  /** The conversation first, then the checkpoints that rely on it. */
  async #persist(recorder: RunRecorder, messages: RunMessage[]): Promise<boolean> {
    try {
      await this.#parts.conversation.save([...messages]);
      recorder.persisted(messages.length);
      return true;
    } catch (error) {
      // The checkpoint keeps the messages as deltas.
      this.#warn("conversation_not_saved", messageOf(error));
      return false;
    }
  }

  #finish(outcome: RunOutcome, error: unknown, messages: RunMessage[] = [...this.#state.messages]): RunOutcome {
    this.#stopping = null;
    const shown = error ? { code: error instanceof RunError ? error.code : "stream_failed", message: messageOf(error) } : null;
    this.#set({ status: outcome, phase: null, messages: [...messages], text: "", thinking: "", error: shown });
    return outcome;
  }

  #warn(code: string, detail: string): void {
    this.#report({ type: "warning", chatId: this.#options.chatId, code, detail });
  }

  #set(changes: Partial<RunState>): void {
    this.#state = { ...this.#state, ...changes };
    for (const listener of this.#listeners) listener();
  }
}

function resultOf(call: ToolCall, content: string): RunMessage {
  return { role: "tool", content, toolCallId: call.id, toolName: call.name };
}
