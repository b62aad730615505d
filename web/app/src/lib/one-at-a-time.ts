// Reads one after the other. What is asked for while a read is under way is one more read after it, however often: a
// server that answers slowly is not asked faster, and what it answers is shown.
export type ReadListener<T> = {
  onBegin: () => void;
  /** `isLast`: nothing newer was asked for meanwhile. */
  onValue: (value: T, isLast: boolean) => void;
  onError: (error: unknown, isLast: boolean) => void;
};

export class OneAtATime<T> {
  #isReading = false;
  #isWanted = false;
  #isEnded = false;
  readonly #read: () => Promise<T>;
  readonly #listener: ReadListener<T>;

  constructor(read: () => Promise<T>, listener: ReadListener<T>) {
    this.#read = read;
    this.#listener = listener;
  }

  want(): void {
    this.#isWanted = true;
    if (!this.#isReading) void this.#run();
  }

  /** Nothing is read or said any more. */
  end(): void {
    this.#isEnded = true;
  }

  async #run(): Promise<void> {
    this.#isReading = true;
    while (this.#isWanted && !this.#isEnded) {
      this.#isWanted = false;
      this.#listener.onBegin();
      try {
        const value = await this.#read();
        if (!this.#isEnded) this.#listener.onValue(value, !this.#isWanted);
      } catch (error) {
        if (!this.#isEnded) this.#listener.onError(error, !this.#isWanted);
      }
    }
    this.#isReading = false;
  }
}
