/** Was a run of this chat interrupted, and may it be offered? Every refusal has its reason. */
import type { HeldLock, TabLock } from "./lock.js";
import type { RunStorage } from "./storage.js";
import { type Clock, type RunCheckpoint, RunError, type RunIdentity, systemClock } from "./types.js";

/** A checkpoint older than this belongs to a sandbox that has ended. */
export const MAX_AGE_MS = 25 * 60 * 1000;

export type RefusalReason =
  | "no_checkpoint"
  | "checkpoint_damaged"
  | "checkpoint_newer"
  | "storage_unavailable"
  | "too_old"
  | "sandbox_changed"
  | "branch_changed"
  | "repository_changed"
  | "user_aborted"
  | "owned_by_this_page"
  | "owned_by_other_tab";

export type Detection =
  | { offered: true; checkpoint: RunCheckpoint; ageMs: number }
  | { offered: false; reason: RefusalReason; sentence: string; checkpoint: RunCheckpoint | null };

export interface DetectOptions {
  chatId: string;
  storage: RunStorage;
  lock: TabLock;
  /** What the page works with now. An id that is unknown (`null`, `undefined`) is not compared. */
  current?: { [Key in keyof RunIdentity]?: RunIdentity[Key] | null };
  clock?: Clock;
  maxAgeMs?: number | undefined;
}

export async function detectInterruptedRun(options: DetectOptions): Promise<Detection> {
  const { chatId, storage, lock } = options;
  const loaded = await storage.load(chatId);
  const { checkpoint } = loaded;
  if (!checkpoint) {
    const { problems } = loaded;
    const found = (["checkpoint_newer", "checkpoint_damaged"] as const).find((problem) => problems.includes(problem));
    return refuse(found ?? (problems.includes("indexed_db_failed") ? "storage_unavailable" : "no_checkpoint"), null);
  }
  // What is active was not interrupted, on whatever branch it is.
  const owner = await lock.ownerOf(chatId);
  if (owner) return refuse(owner, checkpoint);
  const { current = {}, clock = systemClock, maxAgeMs = MAX_AGE_MS } = options;
  const ageMs = clock.now() - checkpoint.savedAt;
  const reason = refusalOf(checkpoint, current, ageMs, maxAgeMs);
  // A clock that was set back gives a negative age, which says nothing against the checkpoint.
  return reason ? refuse(reason, checkpoint) : { offered: true, checkpoint, ageMs: Math.max(0, ageMs) };
}

/** What the checkpoint alone says against a resume. */
function refusalOf(
  checkpoint: RunCheckpoint, current: NonNullable<DetectOptions["current"]>, ageMs: number, maxAgeMs: number,
): RefusalReason | null {
  if (checkpoint.userAborted) return "user_aborted";
  // A job runs on a server: no sandbox of this page ends with it.
  if (checkpoint.jobId !== null) return null;
  if (ageMs > maxAgeMs) return "too_old";
  const differs = (key: keyof RunIdentity) => {
    const saved = checkpoint[key];
    const known = current[key] ?? saved;
    // Neither an id that is unknown now nor one that was unknown then can be compared.
    return saved !== "" && known !== saved;
  };
  if (differs("sandboxSessionId")) return "sandbox_changed";
  if (differs("activeBranch")) return "branch_changed";
  return differs("repoId") ? "repository_changed" : null;
}

const SENTENCES: Record<RefusalReason, string> = {
  no_checkpoint: "No run was interrupted.",
  checkpoint_damaged: "The saved run was damaged and set aside. The conversation is kept.",
  checkpoint_newer: "The run was saved by a newer version of this app. Reload the page.",
  storage_unavailable: "The browser's storage cannot be read. Allow it for this site and reload.",
  too_old: "The run was interrupted too long ago. The conversation is kept.",
  sandbox_changed: "The run belongs to another sandbox. The conversation is kept.",
  branch_changed: "The run belongs to another branch. Switch back to resume it.",
  repository_changed: "The run belongs to another repository. Switch back to resume it.",
  user_aborted: "You stopped this run.",
  owned_by_this_page: "The run is active in this page.",
  owned_by_other_tab: "The run is active in another tab.",
};

export function refuse(reason: RefusalReason, checkpoint: RunCheckpoint | null): Extract<Detection, { offered: false }> {
  return { offered: false, reason, sentence: SENTENCES[reason], checkpoint };
}

/** Takes the run of a chat. Throws `owned_by_this_page` or `owned_by_other_tab`. */
export async function takeRun(lock: TabLock, chatId: string): Promise<HeldLock> {
  const held = await lock.acquire(chatId);
  if (held) return held;
  throw errorOf((await lock.ownerOf(chatId)) ?? "owned_by_other_tab");
}

export function errorOf(reason: RefusalReason): RunError {
  return new RunError(reason, SENTENCES[reason]);
}
