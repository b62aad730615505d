import { expect, test } from "vitest";

import { type DetectOptions, detectInterruptedRun, type RunCheckpoint } from "../../src/run/index.js";
import { Browser, checkpoint, NOW } from "./helpers.js";

async function detect(saved: Partial<RunCheckpoint>, options: Partial<DetectOptions> = {}, browser = new Browser()) {
  const storage = browser.storage();
  await storage.save(checkpoint(saved));
  return detectInterruptedRun({ chatId: "chat", storage, lock: browser.locks.tab(), clock: browser.clock, ...options });
}

const CURRENT = { sandboxSessionId: "box", activeBranch: "main", repoId: "repo" };

test("an interrupted run is offered", async () => {
  expect(await detect({ savedAt: NOW - 1_000 }, { current: CURRENT })).toMatchObject({ offered: true, ageMs: 1_000 });
});

test.each([
  ["too_old", { savedAt: NOW - 25 * 60_000 - 1 }, CURRENT],
  ["sandbox_changed", { sandboxSessionId: "old" }, CURRENT],
  ["branch_changed", { activeBranch: "feature" }, CURRENT],
  ["repository_changed", { repoId: "other" }, CURRENT],
  ["user_aborted", { userAborted: true }, CURRENT],
] as const)("is refused: %s", async (reason, saved, current) => {
  const found = await detect(saved, { current });
  expect(found).toMatchObject({ offered: false, reason });
  expect(found.offered ? "" : found.sentence).toMatch(/\w+\.$/);
});

test("25 minutes are not too old", async () => {
  expect((await detect({ savedAt: NOW - 25 * 60_000 }, { current: CURRENT })).offered).toBe(true);
});

test.each(["sandboxSessionId", "activeBranch", "repoId"] as const)("%s is not compared when it is unknown", async (key) => {
  const other = { sandboxSessionId: "x", activeBranch: "x", repoId: "x" };
  const unknown = await detect({ [key]: "other" }, { current: { ...CURRENT, [key]: null } });
  expect(unknown.offered).toBe(true);
  expect((await detect(other, {})).offered).toBe(true);
});

test("a clock that was set back does not refuse a run", async () => {
  expect(await detect({ savedAt: NOW + 3_600_000 })).toMatchObject({ offered: true, ageMs: 0 });
});

test("a run of another tab is refused", async () => {
  const browser = new Browser();
  await browser.locks.tab().acquire("chat");
  expect(await detect({}, {}, browser)).toMatchObject({ offered: false, reason: "owned_by_other_tab" });
});

test("nothing, damaged, and newer have reasons of their own", async () => {
  const browser = new Browser();
  const storage = browser.storage();
  const lock = browser.locks.tab();
  const reason = async () => {
    const found = await detectInterruptedRun({ chatId: "chat", storage, lock });
    return found.offered ? "offered" : found.reason;
  };
  expect(await reason()).toBe("no_checkpoint");
  browser.local.setItem("run_checkpoint_chat", "{");
  expect(await reason()).toBe("checkpoint_damaged");
  expect(browser.local.getItem("run_checkpoint_chat")).toBeNull();
  expect(browser.local.getItem("run_checkpoint_chat.aside")).toBe("{");
  browser.local.setItem("run_checkpoint_chat", '{"version":2}');
  expect(await reason()).toBe("checkpoint_newer");
  expect(browser.local.getItem("run_checkpoint_chat")).toBe('{"version":2}');
});
