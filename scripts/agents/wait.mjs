// Waiting for something to be so, with an end to the patience. Nothing here sleeps and hopes.

import { setTimeout as sleep } from "node:timers/promises";

const POLL_MS = 50;

/** Asks until the answer is one; the error says what was waited for, and what was seen instead. */
export async function until(what, waitMs, probe, seen = () => "") {
  const end = Date.now() + waitMs;
  for (;;) {
    const found = await probe();
    if (found) return found;
    if (Date.now() > end) {
      throw new Error(`Waited ${waitMs / 1000} s in vain until ${what}. ${await seen()}`.trim());
    }
    await sleep(POLL_MS);
  }
}
