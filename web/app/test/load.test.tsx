/** What is read again and again while agents work: one request at a time, and what comes is shown. */
import { render } from "preact";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { homeConnection } from "../src/data/home.ts";
import { type Loaded, useLoaded } from "../src/screens/workspace/load.ts";

type Pending = { resolve: (value: string) => void; reject: (error: Error) => void };
let pending: Pending[] = [];
let shown: Loaded<string>;
let root: HTMLElement;

function Reader({ name, version }: { name: string; version: string }) {
  shown = useLoaded(name, () => new Promise<string>((resolve, reject) => void pending.push({ resolve, reject })), version);
  return null;
}

/** Effects run after a frame; in a hidden page after a while. */
const drawn = () => new Promise((done) => setTimeout(done, 60));
async function show(name: string, version: string): Promise<void> {
  render(<Reader name={name} version={version} />, root);
  await drawn();
}

beforeEach(() => {
  pending = [];
  root = document.createElement("div");
});
afterEach(() => render(null, root));

describe("useLoaded", () => {
  it("has one request in flight, and one more for all that changed meanwhile", async () => {
    for (const version of ["1", "2", "3", "4"]) await show("a", version);
    expect(pending.length).toBe(1);
    pending[0]?.resolve("first");
    await drawn();
    // What came is shown, although it may have changed since.
    expect([shown.value, shown.isLoading, pending.length]).toEqual(["first", true, 2]);
    pending[1]?.resolve("second");
    await drawn();
    expect([shown.value, shown.isLoading, pending.length]).toEqual(["second", false, 2]);
  });

  it("shows nothing of another key that comes late", async () => {
    await show("a", "1");
    await show("b", "1");
    expect(pending.length).toBe(2);
    pending[1]?.resolve("of b");
    await drawn();
    pending[0]?.resolve("of a");
    await drawn();
    expect([shown.value, shown.isLoading]).toEqual(["of b", false]);
  });

  it("says why it failed, keeps what it had, and reads again when asked", async () => {
    await show("a", "1");
    pending[0]?.resolve("first");
    await drawn();
    await show("a", "2");
    pending[1]?.reject(new Error("away"));
    await drawn();
    expect([shown.value, shown.error, shown.isLoading]).toEqual(["first", "away", false]);
    shown.reload();
    await drawn();
    pending[2]?.resolve("third");
    await drawn();
    expect([shown.value, shown.error]).toEqual(["third", null]);
  });

  it("reads again what failed while the server was away, when it is back", async () => {
    const phase = (is: "reconnecting" | "live") => { homeConnection.value = { ...homeConnection.value, phase: is }; };
    phase("reconnecting");
    await show("a", "1");
    pending[0]?.reject(new Error("away"));
    await drawn();
    expect([shown.error, pending.length]).toEqual(["away", 1]);
    phase("live");
    await drawn();
    pending[1]?.resolve("there");
    await drawn();
    expect([shown.value, shown.error]).toEqual(["there", null]);
    // What did not fail is not read again.
    phase("reconnecting");
    await drawn();
    phase("live");
    await drawn();
    expect(pending.length).toBe(2);
  });

  it("asks no more when it is gone", async () => {
    await show("a", "1");
    await show("a", "2");
    render(null, root);
    await drawn();
    pending[0]?.resolve("late");
    await drawn();
    expect(pending.length).toBe(1);
  });
});
