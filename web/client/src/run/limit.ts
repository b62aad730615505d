/** Limits on what others take: a request on a dead connection may never be answered. */
import { type Clock, RunError } from "./types.js";

export const TRUTH_TIMEOUT_MS = 15_000;

export interface Limit {
  /** What is thrown when there is no result in time. */
  late?: () => Error;
  /** Asked when the time is over: how much longer to wait; 0 for no longer. */
  extendMs?: () => number;
  stop?: AbortSignal;
}

/** The result of `work`, within `ms`. */
export async function within<T>(clock: Clock, ms: number, work: () => T | Promise<T>, limit: Limit = {}): Promise<T> {
  const { stop, late = () => new RunError("timeout", `no answer within ${ms / 1000} s`) } = limit;
  stop?.throwIfAborted();
  let timer: unknown;
  let onAbort: () => void = () => undefined;
  const over = new Promise<never>((_, reject) => {
    const arm = (waitMs: number) => {
      timer = clock.setTimeout(() => {
        const moreMs = limit.extendMs?.();
        if (moreMs) arm(moreMs);
        else reject(late());
      }, waitMs);
    };
    arm(ms);
    onAbort = () => reject(stop?.reason);
    stop?.addEventListener("abort", onAbort);
  });
  try {
    return await Promise.race([Promise.resolve().then(work), over]);
  } finally {
    clock.clearTimeout(timer);
    stop?.removeEventListener("abort", onAbort);
  }
}

export function pause(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => clock.setTimeout(resolve, ms));
}

/** A controller that is aborted with another's signal, until `release` is called. */
export function follow(stop: AbortSignal): { own: AbortController; release: () => void } {
  const own = new AbortController();
  const forward = () => own.abort(stop.reason);
  stop.addEventListener("abort", forward);
  return { own, release: () => stop.removeEventListener("abort", forward) };
}
