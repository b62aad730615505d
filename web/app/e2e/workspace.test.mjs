// Files, changes, the terminal, the timeline, comparing agents.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { card, noErrors, session } from "./lib/page.mjs";
import { test } from "./lib/runner.mjs";

test("terminal: a shell under the strict policy, attached again after a reload and a restart", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "echo" });
  const page = await pages.open(session(id, "terminal"));
  await page.getByRole("button", { name: "Open a shell" }).click();
  await page.locator(".xterm-rows").waitFor();
  const screen = () => page.locator(".xterm-rows").textContent();
  await page.locator(".xterm-helper-textarea").pressSequentially("echo $((40+2))-answer\n");
  await page.locator(".xterm-rows", { hasText: "42-answer" }).waitFor();
  await page.reload();
  await page.locator(".xterm-rows", { hasText: "42-answer" }).waitFor();
  await server.kill();
  await page.getByText("Reconnecting to the shell").waitFor();
  await server.start();
  await page.locator(".xterm-rows", { hasText: "42-answer" }).waitFor({ timeout: 20_000 });
  await page.getByText("Reconnecting to the shell").waitFor({ state: "detached", timeout: 20_000 });
  await page.locator(".xterm-helper-textarea").pressSequentially("echo again-$((1+1))\n");
  await page.locator(".xterm-rows", { hasText: "again-2" }).waitFor();
  assert.ok((await screen()).length > 0);
  noErrors(page);
});

test("changes: a comment on a line goes to the agent as one prompt", async ({ server, pages }) => {
  const repo = await server.repository("review", { "a.txt": "one\ntwo\nthree\n" });
  const id = await server.session({ agent_profile_id: "demo", working_dir: repo });
  await server.prompt(id, "file a.txt one\\nTWO\\nthree\\n");
  await server.until(id, (status) => status.status === "idle" && status.last_outcome === "completed");
  const page = await pages.open(session(id, "changes"));
  await page.locator('tr[data-kind="add"]', { hasText: "TWO" }).getByRole("button", { name: /Comment on line/ }).click();
  await page.getByRole("dialog").getByLabel("Comment").fill("Keep it in lower case.");
  await page.getByRole("button", { name: "Save comment" }).click();
  await page.getByRole("button", { name: "Send 1 comment" }).click();
  await page.locator('.message[data-role="user"]', { hasText: "Keep it in lower case." }).waitFor();
  const prompt = (await server.records(id)).filter((record) => record.kind === "message.user").at(-1).content;
  assert.match(prompt, /a\.txt, line 2:\n> TWO\nKeep it in lower case\./);
  noErrors(page);
});

test("changes: what the agent committed, staged and added is all in the review", async ({ server, pages }) => {
  const repo = await server.repository("reviewed", { "a.txt": "one\n", "b.txt": "b\n" });
  const id = await server.session({ agent_profile_id: "demo", repo });
  await server.prompt(id, "file a.txt committed\\n");
  const { worktree_path } = await server.until(id, (status) => status.status === "idle" && status.last_outcome === "completed");
  const git = (...args) => execFileSync("git", args, { cwd: worktree_path, encoding: "utf8" });
  git("commit", "-qam", "By the agent");
  writeFileSync(join(worktree_path, "b.txt"), "staged\n");
  git("add", "b.txt");
  writeFileSync(join(worktree_path, "new.txt"), "never added\n");
  const page = await pages.open(session(id, "changes"));
  for (const text of ["committed", "staged", "never added"]) await page.locator('tr[data-kind="add"]', { hasText: text }).waitFor();
  await page.locator(".panel-bar").getByText("3 files").first().waitFor();
  await page.locator(".session-facts").getByText("+3").waitFor();
  await page.getByRole("button", { name: "Staged", exact: true }).click();
  await page.locator('tr[data-kind="add"]', { hasText: "committed" }).waitFor({ state: "detached" });
  await page.locator('tr[data-kind="add"]', { hasText: "staged" }).waitFor();
  await page.getByRole("button", { name: "Not staged", exact: true }).click();
  await page.locator('tr[data-kind="add"]', { hasText: "never added" }).waitFor();
  await page.locator('tr[data-kind="add"]', { hasText: "staged" }).waitFor({ state: "detached" });
  noErrors(page);
});

test("timeline: turns and the interruption are points that can be compared", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "echo" });
  await server.prompt(id, "say one");
  await server.until(id, (status) => status.status === "idle" && status.last_outcome === "completed");
  await server.prompt(id, "tool x\ncrash");
  await server.until(id, (status) => status.status.startsWith("interrupted"));
  const page = await pages.open(session(id, "timeline"));
  await page.locator('.timeline-dot[data-kind="interruption"]').waitFor();
  const turns = page.locator('.timeline-dot[data-kind="turn"]');
  assert.equal(await turns.count(), 2);
  await turns.first().click();
  await page.locator('.timeline-dot[data-kind="interruption"]').click();
  await card(page, "timeline-compare").getByText(/1 tool call/).waitFor();
  noErrors(page);
});

test("two agents on one task: started together, compared, one is kept", async ({ server, pages }) => {
  const repo = await server.repository("compare", { "a.txt": "one\n" });
  const page = await pages.open("#/");
  await page.getByRole("button", { name: "New", exact: true }).click();
  const dialog = page.getByRole("dialog", { name: "New session" });
  await dialog.getByLabel("What should be done?").fill("file a.txt two\\n");
  for (const box of await dialog.locator(".agent-choice input:checked").all()) await box.uncheck();
  await dialog.getByLabel("Demo", { exact: true }).check();
  await dialog.getByLabel("Second", { exact: true }).check();
  await dialog.locator("input.mono").first().fill(repo);
  await dialog.getByRole("button", { name: "Start" }).click();
  await page.getByRole("button", { name: "Keep this one" }).nth(1).waitFor({ timeout: 20_000 });
  await page.locator('.diff tr[data-kind="add"]', { hasText: "two" }).nth(1).waitFor({ timeout: 20_000 });
  await page.getByRole("button", { name: "Keep this one" }).first().click();
  await page.getByText("closed as cancelled").first().waitFor();
  noErrors(page);
});

test("two agents that stream: their diffs are shown, and git is asked only when an edit has ended", async ({ server, pages }) => {
  const repo = await server.repository("stream", { "a.txt": "one\n" });
  const { task_id } = await server.call("POST", "/tasks", { title: "Two that stream" });
  const ids = [];
  for (const agent_profile_id of ["demo", "second"]) {
    const id = await server.session({ agent_profile_id, title: "Streams", repo, task_id });
    await server.prompt(id, "file a.txt two\\n");
    await server.until(id, (status) => status.status === "idle" && status.last_outcome === "completed");
    ids.push(id);
  }
  const page = await pages.open("#/");
  const asked = [];
  page.on("request", (request) => /\/git\//.test(request.url()) && asked.push(request.url()));
  await page.goto(`${pages.address}/#/task/${task_id}`);
  await page.locator('.diff tr[data-kind="add"]', { hasText: "two" }).nth(1).waitFor();
  // They stream until they are cancelled, and each word is a change of the list: what is shown is shown meanwhile.
  for (const id of ids) await server.prompt(id, "stream 100 20\nfile a.txt three\\n\nstream 10000 20");
  await page.locator('.diff tr[data-kind="add"]', { hasText: "three" }).nth(1).waitFor({ timeout: 30_000 });
  const words = async () => (await Promise.all(ids.map((id) => server.status(id)))).map((status) => status.last_seq);
  const before = await words();
  const many = (now) => now.every((seq, at) => seq > before[at] + 20);
  for (const end = Date.now() + 20_000; !many(await words()); ) {
    assert.ok(Date.now() < end, "they still stream");
    await new Promise((done) => setTimeout(done, 200));
  }
  for (const id of ids) await server.call("POST", `/sessions/${id}/cancel`);
  for (const id of ids) await server.until(id, (status) => status.status === "idle");
  // For each: the first reading, the run's begin, the edit, its end; each reading is git's status and the diff.
  assert.ok(asked.length <= 30, `${asked.length} requests to git`);
  noErrors(page);
});

test("home is live: what needs me is first, and can be answered there", async ({ server, pages }) => {
  const page = await pages.open("#/");
  const id = await server.session({ agent_profile_id: "demo", title: "Live on the home screen" });
  await server.prompt(id, "push git push origin live");
  const row = page.locator('[data-group="needs_you"] .home-row', { hasText: "Live on the home screen" });
  await row.getByText("git push origin live").waitFor();
  await row.getByRole("button", { name: "Allow once" }).click();
  await page.locator('[data-group="recent"] .home-row', { hasText: "Live on the home screen" }).waitFor();
  await page.getByLabel("Search sessions").fill("live on the");
  await page.locator(".home-row").first().waitFor();
  assert.equal(await page.locator(".home-row").count(), 1);
  noErrors(page);
});
