/** What a run is doing. A note in the checkpoint that makes the interruption summary specific, not a state machine. */
export type LoopPhase = "streaming_llm" | "executing_tools" | "delegating_coder";

/** A tool call as the model made it. Plain data, so that a server can take a run over. */
export interface ToolCall {
  id: string;
  name: string;
  arguments: unknown;
}

/** One message of the conversation. `content` is always text. */
export interface RunMessage {
  role: string;
  content: string;
  /** Of an assistant's message: the calls that it made. */
  toolCalls?: ToolCall[];
  /** Of a tool's message: the call that it answers. */
  toolCallId?: string;
  toolName?: string;
}

/** The version of the checkpoint's format. A newer one is left alone. */
export const CHECKPOINT_VERSION = 1;

/** Where a run was, small enough to be written while a page is being hidden. */
export interface RunCheckpoint {
  version: number;
  chatId: string;
  round: number;
  phase: LoopPhase;
  /** On resume: `persisted.slice(0, baseMessageCount).concat(deltaMessages)`. */
  baseMessageCount: number;
  /** Messages of this run that the persisted conversation does not have. */
  deltaMessages: RunMessage[];
  /** The answer of the current round, as far as it was received. */
  accumulated: string;
  /** Of a copy in localStorage: characters before `accumulated` that are in IndexedDB alone. */
  accumulatedFrom?: number;
  thinkingAccumulated: string;
  coderDelegationActive: boolean;
  lastCoderState: string | null;
  /** Milliseconds since 1970, by the page's clock. */
  savedAt: number;
  provider: string;
  model: string;
  sandboxSessionId: string;
  activeBranch: string;
  repoId: string;
  /** The user ended the run: it is not offered again. */
  userAborted: boolean;
  /** A server owns the run: the id of its Piton session. */
  jobId: string | null;
  runId: string;
  /** Counts up with every write of a chat: says which of two copies is newer, also when the clock jumps. */
  writeSeq: number;
  /** Messages that were dropped from the front of `deltaMessages` to keep the checkpoint small. */
  trimmedMessages: number;
}

/** Which sandbox, branch and repository a run belongs to. */
export interface RunIdentity {
  sandboxSessionId: string;
  activeBranch: string;
  repoId: string;
}

export interface Clock {
  now(): number;
  setTimeout(run: () => void, ms: number): unknown;
  clearTimeout(timer: unknown): void;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  setTimeout: (run, ms) => setTimeout(run, ms),
  clearTimeout: (timer) => clearTimeout(timer as ReturnType<typeof setTimeout>),
};

/** An error with a code that a program can act on. */
export class RunError extends Error {
  constructor(
    readonly code: string,
    message: string,
    options?: { cause?: unknown },
  ) {
    super(message, options);
    this.name = "RunError";
  }
}

/** The code of anything that was thrown, if it has one of ours. */
export function codeOf(error: unknown): string | null {
  return error instanceof RunError ? error.code : null;
}

/** The message of anything that was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** `randomUUID` is missing where Web Locks are: outside of a secure context. */
export function newId(): string {
  return crypto.getRandomValues(new Uint32Array(3)).join("-");
}
