/** A value that can be watched. No framework: a few lines turn it into a signal, a store or a hook. */

export interface ReadonlyObservable<T> {
  readonly value: T;
  /** Calls `listener` with the value now and after each change; returns what ends that. */
  subscribe(listener: (value: T) => void): () => void;
}

export class Observable<T> implements ReadonlyObservable<T> {
  #value: T;
  readonly #listeners = new Set<(value: T) => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set(value: T): void {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    // A listener may subscribe or unsubscribe others.
    for (const listener of [...this.#listeners]) listener(value);
  }

  subscribe(listener: (value: T) => void): () => void {
    // Each subscription is its own, also with the same function.
    const own = (value: T) => listener(value);
    this.#listeners.add(own);
    own(this.#value);
    return () => void this.#listeners.delete(own);
  }
}
