/** A Piton server: its workspaces as sandboxes of runs, its sessions as the jobs that own them. */
import { Backoff } from "../backoff.js";
import type { PitonClient } from "../client.js";
import { hasCode, type PitonError } from "../errors.js";
import { SessionStore } from "../session-store.js";
import type { SessionStatus } from "../types.js";
import type { TabLock } from "./lock.js";
import { RunRecorder } from "./recorder.js";
import type { Recovery } from "./recovery.js";
import type { RunStorage } from "./storage.js";
import { cutChanged, type Truth } from "./summary.js";
import type { Sandbox } from "./truth.js";
import { messageOf, RunError } from "./types.js";

export interface PitonServer {
  /** Where the server is; the page's own origin by default. */
  baseUrl?: string;
  /** An access token with the scope `read`. */
  token: string;
  fetch?: typeof fetch;
}

/** A request to a Piton server. Throws a `RunError` with the server's code. */
export async function pitonRequest(server: PitonServer, path: string, init: RequestInit = {}): Promise<Response> {
  const send = server.fetch ?? fetch;
  const headers = new Headers(init.headers);
  headers.set("Authorization", `Bearer ${server.token}`);
  let response: Response;
  try {
    response = await send(`${server.baseUrl ?? ""}/api/v1${path}`, { ...init, headers });
  } catch (error) {
    throw new RunError("server_unreachable", `The Piton server cannot be reached: ${messageOf(error)}`, { cause: error });
  }
  if (response.ok) return response;
  const problem = (await response.json().catch(() => ({}))) as { code?: string; detail?: string };
  throw new RunError(problem.code ?? "request_failed", problem.detail ?? `The Piton server answered ${response.status}`);
}

export interface PitonSandboxOptions extends PitonServer {
  sessionId: string;
  repoId?: string | null;
  /**
   * What a new session is made with when the one of the sandbox is gone, as the body of `POST /sessions`; `null`
   * makes none. Needs the scope `control`.
   */
  newSession?: Record<string, unknown> | null;
  /** The sandbox is another session from now on: keep its id for the next visit. */
  onCreated?: (sessionId: string) => void;
}

/** The workspace of a Piton session as the sandbox of a run. `sessionId` is the session's that it is now. */
export function pitonSandbox(options: PitonSandboxOptions): Sandbox & { readonly sessionId: string } {
  let sessionId = options.sessionId;
  const get = async <T>(path: string, signal?: AbortSignal) =>
    (await (await pitonRequest(options, `/sessions/${encodeURIComponent(sessionId)}${path}`, signal ? { signal } : {})).json()) as T;
  const { newSession = { title: "Sandbox of a browser run" } } = options;
  const create = async () => {
    const headers = { "Content-Type": "application/json" };
    const body = JSON.stringify({ start: false, mcp_servers: [], ...newSession });
    const response = await pitonRequest(options, "/sessions", { method: "POST", headers, body });
    ({ session_id: sessionId } = (await response.json()) as { session_id: string });
    options.onCreated?.(sessionId);
  };
  return {
    get sessionId() {
      return sessionId;
    },
    ...(newSession === null ? {} : { create }),
    // A session's workspace stays where it is.
    isPersistent: true,
    async identity() {
      const status = await get<GitStatus>("/git/status").catch(() => null);
      return { sandboxSessionId: sessionId, activeBranch: status?.branch ?? null, repoId: options.repoId ?? null };
    },
    async truth(signal) {
      const status = await get<GitStatus>("/git/status", signal);
      if (!status.repository) {
        // Nothing to compare with: whatever is in the folder may be the run's.
        const { files } = await get<FileList>("/files", signal);
        const found = files.map((file): [string, string] => ["??", file.name]);
        return { branch: null, head: null, ...cutChanged(found), stat: null };
      }
      const changed = status.changed.map((change): [string, string] => [change.status, change.path]);
      const diffs = await Promise.all(
        [true, false].map((staged) => get<GitDiff>(`/git/diff?staged=${staged}`, signal)),
      );
      // Half a count is none.
      const stat = diffs.some((diff) => diff.truncated) ? null : statOf(diffs.map((diff) => diff.diff).join(""));
      return { branch: status.branch, head: status.head, ...cutChanged(changed, status.truncated ? 1 : 0), stat };
    },
    async isAlive() {
      try {
        await get<unknown>("");
        return true;
      } catch (error) {
        if (error instanceof RunError && error.code === "session_not_found") return false;
        throw error;
      }
    },
  };
}

interface GitStatus {
  repository: boolean;
  branch: string | null;
  head: string | null;
  changed: Array<{ status: string; path: string }>;
  truncated: boolean;
}

interface FileList {
  files: Array<{ name: string }>;
}

interface GitDiff {
  diff: string;
  truncated: boolean;
}

/** Counts in a unified diff. */
export function statOf(diff: string): NonNullable<Truth["stat"]> {
  const stat = { files: 0, added: 0, removed: 0 };
  let inHunk = false;
  for (const line of diff.split("\n")) {
    if (line.startsWith("diff --git ")) {
      stat.files += 1;
      inHunk = false;
    } else if (line.startsWith("@@")) inHunk = true;
    else if (inHunk && line.startsWith("+")) stat.added += 1;
    else if (inHunk && line.startsWith("-")) stat.removed += 1;
  }
  return stat;
}

export interface JobOptions {
  chatId: string;
  /** The Piton session that does the work. */
  jobId: string;
  storage: RunStorage;
  lock: TabLock;
}

/**
 * A server owns the run of this chat from now on. A page that comes back joins the session; it neither
 * offers to resume nor begins a run of its own. Throws `owned_by_other_tab` while a page runs it, and
 * `run_interrupted` while it has an interrupted run: `recovery.dismiss()` puts what that said into the conversation.
 */
export async function recordJob({ chatId, jobId, storage, lock }: JobOptions): Promise<void> {
  const identity = { sandboxSessionId: "", activeBranch: "", repoId: "" };
  const recorder = new RunRecorder({ chatId, storage, lock, identity, provider: "piton", model: "" });
  await recorder.begin({ baseMessageCount: 0, deltaMessages: [], jobId });
  try {
    const { checkpoint } = await storage.load(chatId);
    if (checkpoint && checkpoint.jobId === null) {
      throw new RunError("run_interrupted", "The chat has an interrupted run. Resume or dismiss it first.");
    }
    await recorder.responseReceived();
  } finally {
    await recorder.end("keep");
  }
}

export interface JoinedJob {
  /** The session, live: its conversation, its waits, its status. */
  store: SessionStore;
  /**
   * Fulfilled when the session has no run any more; the chat is free then. Rejected with `session_not_found` when the
   * session was deleted: the chat is free, too.
   */
  ended: Promise<SessionStatus>;
  /** Stops following; the session goes its way. */
  close(): void;
}

const CLOSED: ReadonlySet<string> = new Set(["completed", "failed", "cancelled"]);

/**
 * Whether the session has done its job. One that is idle because nothing has begun yet, or between two queued
 * prompts, has not.
 */
function hasEnded(status: SessionStatus): boolean {
  if (CLOSED.has(status.status)) return true;
  if (status.status !== "idle" || (status.queue?.length ?? 0) > 0) return false;
  return status.run?.phase === "ended" || (status.last_outcome ?? null) !== null;
}

/** Follows the session that owns the run, and tries again until the server answers. `null`: no server owns it. */
export function joinJob(client: PitonClient, recovery: Recovery): JoinedJob | null {
  const state = recovery.getState();
  if (state.status !== "job") return null;
  const store = new SessionStore(client, state.jobId);
  const ends: Array<() => void> = [];
  const stop = () => {
    for (const end of ends.splice(0)) end();
  };
  const session = new Promise<SessionStatus>((resolve, reject) => {
    const backoff = new Backoff(client.environment.random);
    const look = (problem: PitonError | null) => {
      if (hasCode(problem, "session_not_found")) reject(new RunError("session_not_found", "The session that did the work was deleted."));
    };
    ends.push(
      store.status.subscribe((status) => {
        if (status && hasEnded(status)) resolve(status);
      }),
      store.connection.subscribe((connection) => look(connection.problem)),
      store.problem.subscribe(look),
      store.load.subscribe((load) => {
        if (load === "failed") ends.push(client.environment.setTimeout(() => void store.open(), backoff.nextMs()));
      }),
    );
  });
  const ended = session.finally(async () => {
    stop();
    // Dismissed meanwhile, or another job's: that is left alone.
    const now = await recovery.check();
    if (now.status === "job" && now.jobId === state.jobId) await recovery.dismiss();
  });
  // Who does not ask does not want to know.
  ended.catch(() => undefined);
  void store.open();
  return {
    store,
    ended,
    close() {
      stop();
      store.close();
    },
  };
}
