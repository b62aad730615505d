/** What can be done with one session. Each method is one request of the API. */
import type { PitonClient } from "./client.js";
import type { AgentChoice, ContextChoice, GitDiff, GitStatus, IfBusy, PromptAccepted, PromptContent, Schemas, SessionStatus } from "./types.js";

export interface PromptOptions {
  /** By default `queue`: while a run is open the prompt waits for its end. */
  ifBusy?: IfBusy;
  /** Repeats under the same key are carried out once, also after a reload. */
  idempotencyKey?: string;
}

/** How one request is made. */
export interface RequestOptions {
  idempotencyKey?: string;
  signal?: AbortSignal;
}

export class SessionApi {
  readonly #client: PitonClient;
  readonly sessionId: string;

  constructor(client: PitonClient, sessionId: string) {
    this.#client = client;
    this.sessionId = sessionId;
  }

  get #path(): { session_id: string } {
    return { session_id: this.sessionId };
  }

  status(): Promise<SessionStatus> {
    return this.#client.call("get", "/api/v1/sessions/{session_id}", { path: this.#path });
  }

  /** All that a screen needs to begin with, as of one record. */
  bootstrap(limit = 200, options: Pick<RequestOptions, "signal"> = {}): Promise<Schemas["SessionBootstrap"]> {
    return this.#client.call("get", "/api/v1/sessions/{session_id}/bootstrap", { path: this.#path, query: { limit, abandoned: true }, ...options });
  }

  /** The last items that begin before a seq, whole. */
  messagesBefore(before: number, limit = 200): Promise<Schemas["MessagePage"]> {
    return this.#client.call("get", "/api/v1/sessions/{session_id}/messages", { path: this.#path, query: { before, limit, abandoned: true } });
  }

  prompt(content: PromptContent, options: PromptOptions = {}): Promise<PromptAccepted> {
    const body = { content: content as string | unknown[], if_busy: options.ifBusy ?? "queue" } as Schemas["PromptRequest"];
    const key = options.idempotencyKey ? { idempotencyKey: options.idempotencyKey } : {};
    return this.#client.call("post", "/api/v1/sessions/{session_id}/messages", { path: this.#path, body, ...key });
  }

  /** Opens the session as a person does: its agent is resumed if the server's policy says so. */
  open(options: RequestOptions = {}): Promise<SessionStatus> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/open", { path: this.#path, ...options });
  }

  start(context?: ContextChoice): Promise<Schemas["SessionRun"]> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/start", { path: this.#path, body: { fresh: false, ...(context ? { context } : {}) } });
  }

  /** Starts the agent again. `continue: true` also continues an interrupted run. */
  resume(options: { continue?: boolean; context?: ContextChoice } = {}): Promise<Schemas["SessionRun"]> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/resume", { path: this.#path, body: options });
  }

  cancel(runId?: string): Promise<Schemas["SessionRun"]> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/cancel", { path: this.#path, body: { run_id: runId ?? null } });
  }

  pause(runId?: string): Promise<Schemas["SessionRun"]> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/pause", { path: this.#path, body: { run_id: runId ?? null } });
  }

  /** Marks an interrupted run as handled without continuing it. */
  dismiss(runId?: string): Promise<Schemas["SessionRun"]> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/dismiss", { path: this.#path, body: { run_id: runId ?? null } });
  }

  /** Ends the agent, not the session. */
  stop(): Promise<Schemas["SessionRun"]> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/stop", { path: this.#path });
  }

  close(outcome: Schemas["RunOutcome"] = "completed"): Promise<Schemas["SessionRun"]> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/close", { path: this.#path, body: { outcome } });
  }

  /** Gives up an executor that does not respond; if it returns, its agent is ended. */
  abandon(executionId?: string): Promise<Schemas["SessionRun"]> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/abandon", { path: this.#path, body: executionId ? { agent_execution_id: executionId } : {} });
  }

  rename(title: string | null): Promise<Schemas["SessionRun"]> {
    return this.#client.call("patch", "/api/v1/sessions/{session_id}", { path: this.#path, body: { title } });
  }

  /** Chooses a mode, a model or options of the agent. */
  configure(choice: AgentChoice): Promise<Schemas["SessionRun"]> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/agent", { path: this.#path, body: choice });
  }

  logIn(authMethod?: string): Promise<Schemas["SessionRun"]> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/login", { path: this.#path, body: authMethod ? { auth_method: authMethod } : {} });
  }

  /** Of an agent's session: a copy of the conversation as it is now. Of a graph's: from a checkpoint, paused. */
  fork(options: Schemas["ForkRequest"] = {}): Promise<Schemas["SessionCreated"]> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/fork", { path: this.#path, body: options });
  }

  /** The checkpoints of an agent's turns, newest first, and whether the last rewind can be undone. */
  turnCheckpoints(): Promise<Schemas["TurnCheckpointList"]> {
    return this.#client.call("get", "/api/v1/sessions/{session_id}/turn-checkpoints", { path: this.#path });
  }

  /** Goes back to a checkpoint: files, conversation, or both. With `dry_run` it only says what would happen. */
  rewind(request: Schemas["RewindRequest"]): Promise<Schemas["RewindResult"]> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/rewind", { path: this.#path, body: request });
  }

  /** Takes the last rewind back. */
  undo(request: Schemas["UndoRequest"] = {}): Promise<Schemas["RewindResult"]> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/undo", { path: this.#path, body: request });
  }

  /** How the files differ between two checkpoints of turns; without a second one, from the files as they are. */
  filesDiff(from: string, to?: string): Promise<Schemas["FilesDiff"]> {
    return this.#client.call("get", "/api/v1/sessions/{session_id}/diff", { path: this.#path, query: { from, ...(to ? { to } : {}) } });
  }

  /** The graph that the session runs: nodes, edges, how far each came; its memory, if asked for. */
  graph(options: { memory?: boolean } = {}): Promise<Schemas["GraphView"]> {
    return this.#client.call("get", "/api/v1/sessions/{session_id}/graph", { path: this.#path, query: options.memory ? { include_memory: true } : {} });
  }

  /** Resumes a graph where it stood or from a checkpoint, with keys of its memory set first. */
  resumeGraph(request: Schemas["ResumeGraphRequest"] = {}): Promise<Schemas["GraphResumed"]> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/graph/resume", { path: this.#path, body: request });
  }

  /** The checkpoints of a graph, newest first. */
  checkpoints(limit?: number): Promise<Schemas["CheckpointPage"]> {
    return this.#client.call("get", "/api/v1/sessions/{session_id}/checkpoints", { path: this.#path, ...(limit ? { query: { limit } } : {}) });
  }

  /** A checkpoint of a graph; `latest` is the newest one. */
  checkpoint(checkpointId: string, options: { memory?: boolean } = {}): Promise<Schemas["CheckpointView"]> {
    return this.#client.call("get", "/api/v1/sessions/{session_id}/checkpoints/{checkpoint_id}", {
      path: { ...this.#path, checkpoint_id: checkpointId },
      query: options.memory ? { include_memory: true } : {},
    });
  }

  /** What changed in a graph's memory and outputs from one checkpoint to another. */
  memoryDiff(from: string, to: string): Promise<Schemas["CheckpointDiff"]> {
    return this.#client.call("get", "/api/v1/sessions/{session_id}/checkpoints/diff", { path: this.#path, query: { from, to } });
  }

  /** Answers a permission request with one of its options; `message` is a prompt to the agent, too. */
  answerPermission(waitId: string, optionId: string, message?: string): Promise<Schemas["AnswerAccepted"]> {
    return this.answer(waitId, { option_id: optionId }, message);
  }

  answer(waitId: string, answer: Record<string, unknown>, message?: string): Promise<Schemas["AnswerAccepted"]> {
    const body = { answer: answer as Record<string, never>, ...(message ? { message } : {}) };
    return this.#client.call("post", "/api/v1/waits/{wait_id}/answer", { path: { wait_id: waitId }, body });
  }

  queue(): Promise<Schemas["Queue"]> {
    return this.#client.call("get", "/api/v1/sessions/{session_id}/queue", { path: this.#path });
  }

  /** One queued prompt, whole: a list cuts its text and leaves large contents out. */
  queuedPrompt(messageId: string): Promise<Schemas["QueuedPrompt"]> {
    return this.#client.call("get", "/api/v1/sessions/{session_id}/queue/{message_id}", { path: { ...this.#path, message_id: messageId } });
  }

  /** A text: the prompt's attachments stay. Content blocks: they replace all of it. */
  editQueued(messageId: string, content: PromptContent, version?: number): Promise<Schemas["QueueChanged"]> {
    const edit = typeof content === "string" ? { text: content } : { content };
    const body = { ...edit, ...(version === undefined ? {} : { version }) } as Schemas["QueueEdit"];
    return this.#client.call("patch", "/api/v1/sessions/{session_id}/queue/{message_id}", { path: { ...this.#path, message_id: messageId }, body });
  }

  moveQueued(messageId: string, position: number): Promise<Schemas["QueueChanged"]> {
    return this.#client.call("patch", "/api/v1/sessions/{session_id}/queue/{message_id}", { path: { ...this.#path, message_id: messageId }, body: { position } });
  }

  removeQueued(messageId: string, version?: number): Promise<Schemas["QueueChanged"]> {
    const query = version === undefined ? {} : { query: { version } };
    return this.#client.call("delete", "/api/v1/sessions/{session_id}/queue/{message_id}", { path: { ...this.#path, message_id: messageId }, ...query });
  }

  releaseQueue(): Promise<Schemas["QueueChanged"]> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/queue/release", { path: this.#path });
  }

  files(path?: string): Promise<Schemas["FileList"]> {
    return this.#client.call("get", "/api/v1/sessions/{session_id}/files", { path: this.#path, ...(path ? { query: { path } } : {}) });
  }

  /** A file of the workspace, as bytes. */
  async readFile(path: string): Promise<Blob> {
    const response = await this.#client.callRaw("get", "/api/v1/sessions/{session_id}/files/content", { path: this.#path, query: { path } });
    return await response.blob();
  }

  gitStatus(): Promise<GitStatus> {
    return this.#client.call("get", "/api/v1/sessions/{session_id}/git/status", { path: this.#path });
  }

  gitDiff(options: { staged?: boolean; path?: string } = {}): Promise<GitDiff> {
    return this.#client.call("get", "/api/v1/sessions/{session_id}/git/diff", { path: this.#path, query: options });
  }

  gitLog(limit?: number): Promise<Schemas["GitLog"]> {
    return this.#client.call("get", "/api/v1/sessions/{session_id}/git/log", { path: this.#path, ...(limit ? { query: { limit } } : {}) });
  }

  /** How the session's branch stands to its base. */
  gitBranch(): Promise<Schemas["GitBranch"]> {
    return this.#client.call("get", "/api/v1/sessions/{session_id}/git/branch", { path: this.#path });
  }

  /** What the session's branch, with its uncommitted changes, adds to its base. */
  branchDiff(path?: string): Promise<GitDiff> {
    return this.#client.call("get", "/api/v1/sessions/{session_id}/git/diff", { path: this.#path, query: { branch: true, ...(path ? { path } : {}) } });
  }

  /** Commits everything that has changed. */
  commit(message: string): Promise<Schemas["Committed"]> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/git/commit", { path: this.#path, body: { message } });
  }

  /** Brings the branch into its base or another local branch; `merge_conflict` changes nothing. */
  merge(request: Schemas["MergeRequest"] = {}): Promise<Schemas["Merged"]> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/git/merge", { path: this.#path, body: request });
  }

  push(remote?: string): Promise<Schemas["Pushed"]> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/git/push", { path: this.#path, body: remote ? { remote } : {} });
  }

  shells(): Promise<Schemas["ShellList"]> {
    return this.#client.call("get", "/api/v1/sessions/{session_id}/shells", { path: this.#path });
  }

  openShell(options: Schemas["NewShell"]): Promise<Schemas["Shell"]> {
    return this.#client.call("post", "/api/v1/sessions/{session_id}/shells", { path: this.#path, body: options });
  }

  endShell(shellId: string): Promise<void> {
    return this.#client.call("delete", "/api/v1/sessions/{session_id}/shells/{shell_id}", { path: { ...this.#path, shell_id: shellId } }) as Promise<void>;
  }

  verify(): Promise<Schemas["Verification"]> {
    return this.#client.call("get", "/api/v1/sessions/{session_id}/verify", { path: this.#path });
  }
}
