/** The loop: ask the model, run its tools, ask again; with a checkpoint at every step. */
import { withOpenCallsAnswered } from "./checkpoint.js";
import { follow, within } from "./limit.js";
import type { TabLock } from "./lock.js";
import { type Parts, partsOf, startOf } from "./parts.js";
import type { CoderState, RunRecorder } from "./recorder.js";
import type { Conversation, Recovery, RecoveryState, RestoredRun, ResumeEnd } from "./recovery.js";
import { Observed } from "./state.js";
import { lockLost, type RunStorage } from "./storage.js";
import { type Report, reporter, type RunTelemetry } from "./telemetry.js";
import type { Sandbox } from "./truth.js";
import {
  type Clock, codeOf, type LoopPhase, messageOf, RunError, type RunMessage, type ToolCall,
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

/** Which model is asked: that of the options, or the one that an interrupted run was begun with. */
type Asked = Pick<RunOptions, "provider" | "model">;

/** The code of an interruption by `close`. */
export const CLOSED = "run_closed";
const ROUNDS_MAX = 200;
const STREAM_TIMEOUT_MS = 120_000;
const TOOL_TIMEOUT_MS = 10 * 60_000;
const WAKE_TIMEOUT_MS = 20_000;

export function createRun(options: RunOptions): Run {
  return new Run(options);
}

export class Run extends Observed<RunState> {
  readonly recovery: Recovery;
  readonly #parts: Parts;
  readonly #clock: Clock;
  readonly #report: Report;
  #recorder: RunRecorder | null = null;
  #stopping: AbortController | null = null;

  readonly #options: RunOptions;

  constructor(options: RunOptions) {
    const parts = partsOf(options, (restored) => this.#continue(restored));
    super({
      status: "idle", phase: null, round: 0, messages: [], text: "", thinking: "", error: null, storageProblems: [],
      recovery: parts.recovery.getState(),
    });
    this.#options = options;
    this.#parts = parts;
    this.#clock = parts.clock;
    this.recovery = parts.recovery;
    this.#report = reporter(options.telemetry, options.chatId);
    parts.storage.onProblem((code, detail) => {
      this.#report.warn(code, detail);
      this.#set({ storageProblems: [...this.getState().storageProblems, code] });
    });
    this.recovery.subscribe(() => {
      const { recovery: before } = this.getState();
      const recovery = this.recovery.getState();
      this.#set({ recovery });
      // What was dismissed, or was ended in another tab, is in the conversation now.
      if (before.status !== "checking" && (recovery.status === "none" || recovery.status === "fresh")) void this.#load();
    });
  }

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
      const prompt = { role: "user", content };
      const messages = [...(await this.#parts.conversation.load())];
      recorder = await this.#parts.startRecorder(this.#options, { baseMessageCount: messages.length, deltaMessages: [prompt] });
      messages.push(prompt);
      await this.#persist(recorder, messages);
      return await this.#loop(stopping, recorder, messages, 1, this.#options);
    } catch (error) {
      await recorder?.end("keep");
      this.#finish("error", error);
      throw error;
    }
  }

  /** Ends the run. It is not offered again. */
  abort(): void {
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

  async #continue(restored: RestoredRun): Promise<ResumeEnd> {
    const stopping = this.#begin();
    let recorder: RunRecorder;
    try {
      recorder = await this.#parts.startRecorder(restored, startOf(restored));
    } catch (error) {
      this.#finish("interrupted", error);
      throw error;
    }
    const outcome = await this.#loop(stopping, recorder, [...restored.messages], restored.round, restored);
    const { outputAt } = recorder;
    const { error } = this.getState();
    if (outcome === "error" && outputAt === null && error) throw new RunError(error.code, error.message);
    return { outcome, outputAt };
  }

  #begin(): AbortController {
    if (this.#stopping) throw new RunError("run_in_progress", "The run is active.");
    this.#stopping = new AbortController();
    this.#set({ status: "running", error: null, text: "", thinking: "" });
    return this.#stopping;
  }

  async #loop(
    stopping: AbortController, recorder: RunRecorder, messages: RunMessage[], firstRound: number, asked: Asked,
  ): Promise<RunOutcome> {
    this.#recorder = recorder;
    // Stopped before there was a recorder to tell.
    if (codeOf(stopping.signal.reason) === "aborted") recorder.abort();
    recorder.onLost = () => stopping.abort(lockLost());
    try {
      const roundsMax = firstRound + (this.#options.limits?.roundsMax ?? ROUNDS_MAX);
      for (let round = firstRound; ; round++) {
        if (round >= roundsMax) throw new RunError("limit_reached", `The run ended after ${roundsMax} rounds.`);
        recorder.startRound(round);
        stopping.signal.throwIfAborted();
        this.#set({ messages: [...messages], phase: "streaming_llm", round, text: "", thinking: "" });
        const answer = await this.#ask(recorder, messages, asked, stopping.signal);
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
      return await this.#stopped(recorder, messages, error);
    } finally {
      this.#recorder = null;
    }
  }

  /** What an error means: the user's stop, another tab, an interruption, or an end. */
  async #stopped(recorder: RunRecorder, messages: RunMessage[], error: unknown): Promise<RunOutcome> {
    // First of all: the conversation and the checkpoint are another tab's by now, whatever ended the run here.
    const isLost = !(await recorder.isOwner());
    if (recorder.isAborted && !isLost) return this.#finish("aborted", null, await this.#endWithPartial(recorder, messages));
    const isLeft = isLost || codeOf(error) === CLOSED;
    if (isLeft || recorder.isResumeUnanswered) {
      await recorder.end("keep");
      return this.#finish(isLeft ? "interrupted" : "error", isLost ? lockLost() : error, messages);
    }
    // The page slept, and what it waited for is gone: that is an interruption, not the run's end.
    if (recorder.wasSuspended) {
      await recorder.end("keep");
      this.#finish("interrupted", error, messages);
      await this.recovery.check();
      return "interrupted";
    }
    return this.#finish("error", error, await this.#endWithPartial(recorder, messages));
  }

  /** The part of an answer that was received stays in the conversation; the run is over. */
  async #endWithPartial(recorder: RunRecorder, messages: RunMessage[]): Promise<RunMessage[]> {
    const { text } = this.getState();
    const partial = text ? [{ role: "assistant", content: text }] : [];
    const all = withOpenCallsAnswered(messages).concat(partial);
    await this.#end(recorder, all);
    return all;
  }

  async #end(recorder: RunRecorder, messages: RunMessage[]): Promise<void> {
    await recorder.end((await this.#persist(recorder, messages)) ? "clear" : "keep");
  }

  async #ask(recorder: RunRecorder, messages: RunMessage[], { provider, model }: Asked, stop: AbortSignal): Promise<RunMessage> {
    const { stream, tools = {}, limits } = this.#options;
    const timeoutMs = limits?.streamTimeoutMs ?? STREAM_TIMEOUT_MS;
    const wakeTimeoutMs = Math.min(timeoutMs, limits?.wakeTimeoutMs ?? WAKE_TIMEOUT_MS);
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
    const found = calls.findIndex((call) => kindOf(call) !== "read");
    const changeAt = found < 0 ? calls.length : found;
    const reads = calls.slice(0, changeAt);
    const change = calls[changeAt];
    const behind = calls.slice(changeAt + 1);
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
    const tool = this.#toolOf(call);
    if (!tool) return resultOf(call, `Error: there is no tool ${call.name}.`);
    const timeoutMs = tool.timeoutMs ?? this.#options.limits?.toolTimeoutMs ?? TOOL_TIMEOUT_MS;
    const { own: working, release } = follow(stop);
    const before = recorder.suspensionMark();
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
    let before = recorder.suspensionMark();
    const extendMs = () => {
      const hasSlept = recorder.suspensions > before;
      before = recorder.suspensions;
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
      this.#report.warn("conversation_not_saved", messageOf(error));
      return false;
    }
  }

  #finish(outcome: RunOutcome, error: unknown, messages: RunMessage[] = [...this.getState().messages]): RunOutcome {
    this.#stopping = null;
    const shown = error ? { code: codeOf(error) ?? "stream_failed", message: messageOf(error) } : null;
    this.#set({ status: outcome, phase: null, messages: [...messages], text: "", thinking: "", error: shown });
    return outcome;
  }

  #set(changes: Partial<RunState>): void {
    this.setState({ ...this.getState(), ...changes });
  }
}

function resultOf(call: ToolCall, content: string): RunMessage {
  return { role: "tool", content, toolCallId: call.id, toolName: call.name };
}
