/** Delays between attempts: doubling from 0.5 s to 30 s, each with jitter, for ever. */

export const DELAY_MIN_MS = 500;
export const DELAY_MAX_MS = 30_000;

export class Backoff {
  #attempts = 0;
  readonly #random: () => number;

  constructor(random: () => number = Math.random) {
    this.#random = random;
  }

  /** Between half of the step and the step, so that clients that lost one server do not return at once. */
  nextMs(): number {
    const step = Math.min(DELAY_MIN_MS * 2 ** this.#attempts, DELAY_MAX_MS);
    this.#attempts = Math.min(this.#attempts + 1, 16);
    return Math.round(step / 2 + (step / 2) * this.#random());
  }

  reset(): void {
    this.#attempts = 0;
  }
}
