/** A state that others watch. */
export class Observed<State> {
  #state: State;
  readonly #listeners = new Set<() => void>();

  constructor(state: State) {
    this.#state = state;
  }

  getState = (): State => this.#state;

  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  /** @internal */
  protected setState(state: State): State {
    this.#state = state;
    for (const listener of this.#listeners) listener();
    return state;
  }
}
