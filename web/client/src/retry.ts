/** A request that is tried until the server answers it: over lost networks, restarts and overload. */
import { Backoff } from "./backoff.js";
import type { Environment } from "./environment.js";
import { ConnectionError, ProblemError } from "./errors.js";

/** Whether the same request may succeed later by itself. */
export function isPassing(error: unknown): error is ConnectionError | ProblemError {
  return error instanceof ConnectionError || (error instanceof ProblemError && error.isTemporary);
}

/**
 * Rejects with what lasts: the server's refusal, or the caller's abort. `onLost` is called after each failed attempt.
 * A device that gets its network back, and a page that is looked at again, try at once.
 */
export async function retryWhileLost<T>(
  environment: Environment,
  signal: AbortSignal,
  attempt: (signal: AbortSignal) => Promise<T>,
  onLost: (problem: ProblemError | null) => void,
): Promise<T> {
  const backoff = new Backoff(environment.random);
  for (;;) {
    const request = new AbortController();
    const woken = wakeUp(environment, signal, () => {
      backoff.reset();
      // What hangs on the network that was lost is not waited for.
      request.abort();
    });
    try {
      return await attempt(request.signal);
    } catch (error) {
      if (signal.aborted || (!request.signal.aborted && !isPassing(error))) throw error;
      const problem = error instanceof ProblemError ? error : null;
      onLost(problem);
      await woken.orAfter(Math.max(backoff.nextMs(), problem?.retryAfterMs ?? 0));
      if (signal.aborted) throw error;
    } finally {
      woken.stop();
    }
  }
}

/** Waits that end early when the network is back, the page is looked at, or the caller gives up. */
function wakeUp(environment: Environment, signal: AbortSignal, onOnline: () => void) {
  let isWoken = signal.aborted;
  let isWaiting = false;
  let end = () => {};
  const wake = () => {
    isWoken = true;
    end();
  };
  const stopWatching = environment.watch((event) => {
    if (event === "online") onOnline();
    // A request that was begun before is not over because the page is looked at.
    if (event === "online" || (event === "visible" && isWaiting)) wake();
  });
  const onAbort = () => {
    onOnline();
    wake();
  };
  signal.addEventListener("abort", onAbort, { once: true });
  return {
    orAfter: (ms: number) =>
      new Promise<void>((resolve) => {
        if (isWoken) return resolve();
        isWaiting = true;
        const endTimer = environment.setTimeout(resolve, ms);
        end = () => {
          endTimer();
          resolve();
        };
      }),
    stop: () => {
      stopWatching();
      signal.removeEventListener("abort", onAbort);
    },
  };
}
