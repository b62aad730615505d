// Finishing the work: commit, a conflict that changes nothing, merge, push.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { card, noErrors, session } from "./lib/page.mjs";
import { test } from "./lib/runner.mjs";

const git = (cwd, ...args) => execFileSync("git", args, { cwd, encoding: "utf8" }).trim();

test("finishing the work: commit, a conflict that changes nothing, merge, push", async ({ server, pages, skip }) => {
  const description = await (await fetch(`${server.address}/api/v1/openapi.json`)).json();
  if (!description.paths["/api/v1/sessions/{session_id}/git/branch"]) return skip("the server does not offer it");
  const repo = await server.repository("finish", { "a.txt": "one\n", "b.txt": "b\n" });
  const remote = server.workdir("finish-remote.git");
  git(remote, "init", "-q", "--bare");
  git(repo, "remote", "add", "origin", remote);
  const id = await server.session({ agent_profile_id: "demo", repo, title: "Finish the work" });
  await server.prompt(id, "file a.txt two\\n");
  await server.until(id, (status) => status.status === "idle" && status.last_outcome === "completed");
  // Meanwhile the base changes the same line.
  writeFileSync(join(repo, "a.txt"), "three\n");
  git(repo, "commit", "-qam", "Three");
  const page = await pages.open(session(id, "changes"));
  await page.getByRole("button", { name: "Commit…" }).click();
  await page.getByRole("button", { name: "Commit", exact: true }).click();
  const merge = page.getByRole("button", { name: "Merge into main…" });
  await page.locator('button:not([disabled])', { hasText: "Merge into main…" }).waitFor();
  const before = [git(repo, "rev-parse", "HEAD"), git(repo, "status", "--porcelain"), git(repo, "write-tree")];
  await merge.click();
  await page.getByRole("button", { name: "Merge", exact: true }).click();
  await card(page, "merge-conflict").getByText(/a\.txt/).waitFor();
  assert.deepEqual([git(repo, "rev-parse", "HEAD"), git(repo, "status", "--porcelain"), git(repo, "write-tree")], before);
  await card(page, "merge-conflict").getByRole("button", { name: "Close" }).click();
  // The base gives way, and the same merge succeeds.
  git(repo, "reset", "-q", "--hard", "HEAD~1");
  await page.getByRole("button", { name: "Refresh" }).click();
  await merge.click();
  await page.getByRole("button", { name: "Merge", exact: true }).click();
  await page.locator(".toast", { hasText: /main is at/ }).waitFor();
  assert.equal(git(repo, "show", "main:a.txt"), "two");
  await page.getByRole("button", { name: "Push" }).click();
  await page.locator(".toast", { hasText: /Pushed/ }).waitFor();
  assert.notEqual(git(remote, "branch", "--list"), "");
  noErrors(page);
});
