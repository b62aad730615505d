/** What a person is notified of, and of what not. */
import type { SessionChange, SessionSummary } from "piton-client";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { agents } from "../src/data/agents.ts";
import { notificationFor, notificationSupport } from "../src/data/notifications.ts";

const session = (more: Partial<SessionSummary>) => ({ session_id: "sess_1", agent_profile_id: "echo", status: "idle", reason: "", sentence: "", ...more }) as unknown as SessionSummary;
const change = (before: Partial<SessionSummary> | null, after: Partial<SessionSummary>) => ({ before: before && session(before), after: session(after) }) as SessionChange;

beforeEach(() => {
  agents.value = [{ agent_profile_id: "echo", name: "Echo (built in)" }] as unknown as typeof agents.value;
  vi.unstubAllGlobals();
});

describe("notificationFor", () => {
  it.each([
    [{ status: "running" }, { status: "waiting", reason: "permission" }, "Echo asks for permission"],
    [{ status: "running" }, { status: "waiting", reason: "input" }, "Echo asks you something"],
    [null, { status: "waiting", reason: "input" }, "Echo asks you something"],
    [{ status: "running" }, { status: "interrupted_startup" }, "Echo was interrupted"],
    [{ status: "waiting" }, { status: "interrupted_waiting" }, "Echo was interrupted"],
    [{ status: "running" }, { status: "error", sentence: "The executor does not respond." }, "Echo: The executor does not respond."],
    [{ status: "running" }, { status: "idle", last_outcome: "completed" }, "Echo is done"],
    [{ status: "starting" }, { status: "idle", last_outcome: "failed" }, "Echo stopped"],
    [{ status: "running" }, { status: "idle", last_outcome: "cancelled" }, "Echo stopped"],
  ] as [Partial<SessionSummary> | null, Partial<SessionSummary>, string][])("%j to %j", (before, after, said) => {
    expect(notificationFor(change(before, after))).toBe(said);
  });

  it.each([
    // The same again, also with more in the log.
    [{ status: "waiting", last_seq: 1 }, { status: "waiting", last_seq: 2 }],
    [{ status: "idle" }, { status: "running" }],
    [{ status: "idle" }, { status: "starting" }],
    // A person did this.
    [{ status: "interrupted_startup" }, { status: "idle" }],
    [{ status: "idle" }, { status: "completed" }],
    [{ status: "running" }, { status: "paused" }],
    [null, { status: "idle", last_outcome: "completed" }],
  ] as [Partial<SessionSummary> | null, Partial<SessionSummary>][])("nothing of %j to %j", (before, after) => {
    expect(notificationFor(change(before, after))).toBeNull();
  });
});

it("says why this browser cannot notify", () => {
  const support = (isSecure: boolean, permission?: string) => {
    vi.stubGlobal("isSecureContext", isSecure);
    vi.stubGlobal("Notification", permission === undefined ? undefined : { permission });
    return notificationSupport();
  };
  expect([support(false, "granted"), support(true), support(true, "granted"), support(true, "denied"), support(true, "default")]).toEqual(["insecure", "missing", "allowed", "denied", "ask"]);
});
