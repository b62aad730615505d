/** The samples of the README: each stands in this file, so `tsc` checks its types. */
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { PitonClient, SessionStore } from "../src/index.js";
import type { Item, ReadonlyObservable } from "../src/index.js";

interface Signal<T> {
  value: T;
}
declare function signal<T>(value: T): Signal<T>;
declare const token: string;
declare function render(items: readonly Item[]): void;

export async function firstSession() {
  const client = new PitonClient({ address: "http://127.0.0.1:7411", token });
  const { session_id } = await client.call("post", "/api/v1/sessions", { body: { agent_profile_id: "echo" } });
  const session = new SessionStore(client, session_id);
  await session.open();
  session.view.subscribe((view) => render(view.items));
  await session.api.prompt("say hello");
}

export function toSignal<T>(observable: ReadonlyObservable<T>): Signal<T> {
  const of = signal(observable.value);
  observable.subscribe((value) => (of.value = value));
  return of;
}

/** Without what differs between a page and a source. */
const dense = (code: string) => code.replaceAll('"piton-client"', '"../src/index.js"').replace(/\s+/g, "");

it("the samples of the README are code that is checked here", () => {
  const source = dense(readFileSync(new URL(import.meta.url), "utf8"));
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  const samples = [...readme.matchAll(/^```ts\n([\s\S]*?)^```$/gm)].map((match) => match[1] ?? "");
  expect(samples.length).toBeGreaterThanOrEqual(2);
  for (const sample of samples) {
    for (const part of sample.split("\n\n")) expect(source, part).toContain(dense(part));
  }
  expect(source).not.toContain(dense("await session.api." + "farewell()"));
});
