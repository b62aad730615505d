// Waiting for something to be so, with a deadline. Nothing here sleeps and hopes.

import { setTimeout as sleep } from "node:timers/promises";

const POLL_MS = 50;

/** Asks until the answer is one; the error says what was waited for, and what was seen instead. */
export async function until(what, waitMs, probe, seen = () => "") {
  const end = Date.now() + waitMs;
  for (;;) {
    const found = await probe();
    if (found) return found;
    if (Date.now() > end) {
      throw new Error(`Not within ${waitMs / 1000} s: ${what}. ${await seen()}`.trim());
    }
    await sleep(POLL_MS);
  }
}
