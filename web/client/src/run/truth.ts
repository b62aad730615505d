/** Where a run works, and what that place says of itself: `./git.ts` reads it through a shell, `./piton.ts` from a server. */
import type { Truth } from "./summary.js";
import type { RunIdentity } from "./types.js";

export interface Sandbox {
  /** What the page works with now; `null` for what it does not know. */
  identity(): NullableIdentity | Promise<NullableIdentity>;
  truth(signal?: AbortSignal): Promise<Truth>;
  /** It does not end while the user is away, so that a run in it can be resumed after any time. */
  isPersistent?: boolean;
  /** False: the sandbox is gone for good. Throws when that is not known. */
  isAlive?(): Promise<boolean>;
  /** Makes a new sandbox in the place of one that is gone. */
  create?(): Promise<void>;
}

export type NullableIdentity = { [Key in keyof RunIdentity]: RunIdentity[Key] | null };
