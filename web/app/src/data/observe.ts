import { type Signal, signal } from "@preact/signals";
import type { ReadonlyObservable } from "piton-client";

/** A signal that follows an observable of the client for the page's life. */
export function toSignal<T>(observable: ReadonlyObservable<T>): Signal<T> {
  const out = signal(observable.value);
  observable.subscribe((value) => {
    out.value = value;
  });
  return out;
}
