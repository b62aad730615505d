// Each state of a session that a person may meet, by the rows of the requirement's tables.
import assert from "node:assert/strict";
import { appendFileSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { card, noErrors, picture, send, session } from "./lib/page.mjs";
import { test } from "./lib/runner.mjs";

/** Has the server read another setting for the time of a test. */
async function withSetting(server, text, run) {
  const before = readFileSync(server.config, "utf8");
  appendFileSync(server.config, `\n${text}\n`);
  await server.call("POST", "/reload");
  try {
    await run();
  } finally {
    writeFileSync(server.config, before);
    await server.call("POST", "/reload");
  }
}

/** An agent that ran and does not any more. */
async function stopped(server, options, prompt = "hello") {
  const id = await server.session(options);
  await server.prompt(id, prompt);
  await server.until(id, (status) => status.status === "idle" && status.last_outcome === "completed");
  await server.call("POST", `/sessions/${id}/stop`);
  await server.until(id, (status) => !status.is_agent_running);
  return id;
}

/** Answers of the server with some fields of the status changed: for states that last too short to be met. */
async function withStatus(page, id, fields) {
  const change = async (route) => {
    // The page may be closed meanwhile.
    const response = await route.fetch().catch(() => null);
    if (!response) return;
    if (!response.ok()) return await route.fulfill({ response });
    const body = await response.json();
    const status = body.status && typeof body.status === "object" ? body.status : body;
    Object.assign(status, fields);
    return await route.fulfill({ response, json: body });
  };
  const path = new RegExp(`/api/v1/sessions/${id}(/open|/bootstrap|/status)?(\\?.*)?$`);
  await page.route(path, change);
}

test("needs_resume and is_resumable: the session is resumed on open, once", async ({ server, pages }) => {
  const id = await stopped(server, { agent_profile_id: "echo" });
  const page = await pages.open("#/");
  const opened = [];
  page.on("request", (request) => request.url().endsWith(`${id}/open`) && opened.push(request.url()));
  await page.locator(`a[href="${session(id)}"]`).first().click();
  await server.until(id, (status) => status.is_agent_running);
  await page.locator(".composer textarea").waitFor();
  await card(page, "resume").waitFor({ state: "detached" });
  assert.equal(opened.length, 1);
  noErrors(page);
});

test("needs_resume and is_resumable, resumed by hand: 'Resume session'", async ({ server, pages }) => {
  const id = await stopped(server, { agent_profile_id: "echo" });
  await withSetting(server, '[resume]\nagent_restart = "manual"', async () => {
    const page = await pages.open(session(id));
    await page.getByRole("button", { name: "Resume session" }).click();
    await server.until(id, (status) => status.is_agent_running);
    await card(page, "resume").waitFor({ state: "detached" });
    noErrors(page);
  });
});

test("not is_resumable: 'Create new session' with the reason", async ({ server, pages }) => {
  const id = await stopped(server, { agent_profile_id: "echo" });
  const page = await pages.open("#/");
  await withStatus(page, id, { is_resumable: false, is_agent_running: false, needs_resume: false, resume_reason: "not_resumable", choices: [], status: "idle", sentence: "This agent cannot resume earlier sessions." });
  await page.goto(`${pages.address}/${session(id)}`);
  await card(page, "not-resumable").getByText("This agent cannot resume earlier sessions.").waitFor();
  await page.getByRole("button", { name: "Create new session" }).click();
  await page.getByRole("dialog", { name: "New session" }).waitFor();
});

test("executor_status=starting: elapsed time, shell and file panels off", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "echo" });
  const page = await pages.open("#/");
  await withStatus(page, id, { status: "starting", state: "STARTING", reason: "executor_starting", executor_status: "starting", active_at: new Date(Date.now() - 5_000).toISOString(), choices: [] });
  await page.goto(`${pages.address}/${session(id)}`);
  await card(page, "starting").getByText(/\d+ s/).waitFor();
  for (const tab of ["files", "terminal", "changes"]) {
    await page.goto(`${pages.address}/${session(id, tab)}`);
    await page.locator("[data-panel-off]").waitFor();
  }
});

test("executor_status=ready: shell, files and git work without an agent", async ({ server, pages }) => {
  const folder = await server.repository("ready", { "README.md": "# Ready\n" });
  const id = await server.session({ agent_profile_id: "missing", working_dir: folder });
  await server.prompt(id, "hello").catch(() => {});
  await server.until(id, (status) => status.status === "error");
  const page = await pages.open(session(id));
  await card(page, "agent-failed").waitFor();
  await page.goto(`${pages.address}/${session(id, "files")}`);
  await page.getByRole("button", { name: /README\.md/ }).click();
  await page.getByText("# Ready").waitFor();
  await page.goto(`${pages.address}/${session(id, "changes")}`);
  await page.getByText("Nothing changed").waitFor();
  noErrors(page);
});

test("agent failed to start: the cause, how to install it, retry", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "missing" });
  await server.prompt(id, "hello").catch(() => {});
  await server.until(id, (status) => status.status === "error");
  const page = await pages.open(session(id));
  const failed = card(page, "agent-failed");
  await failed.getByText("/nowhere/agent").first().waitFor();
  await failed.getByRole("button", { name: "Retry" }).click();
  await page.locator(".toast").getByText(/could not be started/).waitFor();
});

test("agent needs a login: the card says how", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "login" });
  await server.prompt(id, "hello").catch(() => {});
  await server.until(id, (status) => status.status === "error" || status.status.startsWith("interrupted"));
  const page = await pages.open(session(id));
  const status = await server.status(id);
  if (status.status === "error") {
    const logIn = card(page, "agent-failed").getByRole("button", { name: "Log in" });
    await logIn.click();
    // Opening the page starts the agent, too: a login that meets that start is refused, and can be tried again.
    await server.until(id, (after) => after.status !== "error", 4_000).catch(async () => {
      await logIn.click();
      await server.until(id, (after) => after.status !== "error");
    });
  } else await card(page, "interrupted").waitFor();
});

test("agent with several ways to log in: a button for each, and the chosen one is used", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "logins" });
  await server.prompt(id, "hello").catch(() => {});
  await server.until(id, (status) => status.status === "error");
  // Opening would start the agent again beside the login.
  await withSetting(server, '[resume]\nagent_restart = "manual"', async () => {
    const page = await pages.open(session(id));
    const failed = card(page, "agent-failed");
    await failed.getByRole("button", { name: "Log in: In a browser" }).waitFor();
    await picture(page, "logins");
    const [sent] = await Promise.all([page.waitForRequest((request) => request.url().endsWith(`${id}/login`)), failed.getByRole("button", { name: "Log in: With an API key" }).click()]);
    assert.deepEqual(sent.postDataJSON(), { auth_method: "api-key" });
    await failed.waitFor({ state: "detached", timeout: 20_000 });
    await send(page, "hello again");
    await page.locator('.message[data-role="agent"]', { hasText: "hello again" }).waitFor();
    noErrors(page);
  });
});

test("executor_status=error: not responding, with retry and abandon; it comes back by itself", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "demo" });
  await server.prompt(id, "stream 4000 50");
  const { agent_execution_id } = await server.until(id, (status) => status.status === "running" && status.is_agent_running);
  const page = await pages.open(session(id));
  await page.locator('.message[data-role="agent"]').waitFor();
  const pids = server.agentctlOf(agent_execution_id);
  assert.equal(pids.length, 1);
  await server.kill();
  for (const pid of pids) process.kill(pid, "SIGSTOP");
  await server.start();
  try {
    await card(page, "executor-unreachable").waitFor({ timeout: 30_000 });
    await card(page, "executor-unreachable").getByRole("button", { name: "Abandon the executor" }).waitFor();
    assert.equal(await card(page, "interrupted").count(), 0);
  } finally {
    for (const pid of pids) process.kill(pid, "SIGCONT");
  }
  await card(page, "executor-unreachable").waitFor({ state: "detached", timeout: 20_000 });
  await server.call("POST", `/sessions/${id}/cancel`);
});

test("executor_status=error: 'Abandon the executor' interrupts the run", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "demo" });
  await server.prompt(id, "stream 4000 50");
  const { agent_execution_id } = await server.until(id, (status) => status.status === "running" && status.is_agent_running);
  const page = await pages.open(session(id));
  const pids = server.agentctlOf(agent_execution_id);
  await server.kill();
  for (const pid of pids) process.kill(pid, "SIGSTOP");
  try {
    await server.start();
    await card(page, "executor-unreachable").getByRole("button", { name: "Abandon the executor" }).click({ timeout: 30_000 });
    await card(page, "interrupted").waitFor({ timeout: 20_000 });
    const kinds = (await server.records(id)).map((record) => record.kind);
    assert.ok(kinds.includes("executor.abandoned") && kinds.includes("run.interrupted"));
  } finally {
    for (const pid of pids) server.killProcess(pid);
  }
});

test("context lost, each of the four choices does what it says", async ({ server, pages }) => {
  const lostIn = async () => {
    const id = await stopped(server, { agent_profile_id: "forgetful" });
    const page = await pages.open(session(id));
    await card(page, "context-lost").waitFor();
    return { id, page, choose: (name) => card(page, "context-lost").getByRole("button", { name, exact: true }).click() };
  };
  const retried = await lostIn();
  await retried.choose("Retry");
  await card(retried.page, "context-lost").waitFor();
  const told = await lostIn();
  await told.choose("Continue with history");
  await server.until(told.id, (status) => status.is_agent_running && status.context === "injected");
  const another = await lostIn();
  await another.choose("New session");
  await another.page.getByRole("dialog", { name: /New session/ }).waitFor();
});

test("resume token refused: not failed, a message says so, four choices", async ({ server, pages }) => {
  const id = await stopped(server, { agent_profile_id: "forgetful" });
  const page = await pages.open(session(id));
  const lost = card(page, "context-lost");
  await lost.waitFor();
  for (const label of ["Retry", "Continue with history", "Continue without context", "New session"]) await lost.getByRole("button", { name: label }).waitFor();
  const status = await server.status(id);
  assert.equal(status.state, "WAITING_FOR_INPUT");
  await lost.getByRole("button", { name: "Continue without context" }).click();
  await server.until(id, (after) => after.is_agent_running);
  await send(page, "say fresh");
  await page.getByText("fresh", { exact: true }).first().waitFor();
});

test("executor failed: the cause, and Retry asks for it again", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "echo" });
  const page = await pages.open("#/");
  const cause = "No such image: nowhere/agent:latest";
  await withStatus(page, id, { status: "error", state: "ERROR", reason: "executor_error", executor_status: "error", error_message: cause, is_agent_running: false, needs_resume: false, choices: [] });
  await page.goto(`${pages.address}/${session(id)}`);
  const failed = card(page, "executor-failed");
  await failed.getByText(cause).waitFor();
  await picture(page, "executor-failed");
  const [asked] = await Promise.all([page.waitForRequest((request) => request.url().endsWith(`${id}/resume`)), failed.getByRole("button", { name: "Retry" }).click()]);
  assert.equal(asked.method(), "POST");
});

test("workspace missing: the cause, and the worktree is made again", async ({ server, pages }) => {
  const repo = await server.repository("lost-tree", { "a.txt": "one\n" });
  const id = await stopped(server, { agent_profile_id: "demo", repo }, "hello");
  const { worktree_path: tree } = await server.status(id);
  rmSync(tree, { recursive: true, force: true });
  const page = await pages.open(session(id));
  const missing = card(page, "workspace-failed");
  await missing.waitFor({ timeout: 20_000 });
  await missing.locator(".cause, p").first().waitFor();
  await missing.getByRole("button", { name: "Retry" }).waitFor();
  await picture(page, "workspace-failed");
  await missing.getByRole("button", { name: "Create the worktree again" }).click();
  await missing.waitFor({ state: "detached", timeout: 20_000 });
  await server.until(id, (status) => status.is_agent_running);
  assert.ok(existsSync(join(tree, "a.txt")));
  noErrors(page);
});

test("queued prompts that are held: the card says so, and delivers them on a click", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "demo" });
  await server.prompt(id, "wait 30000");
  await server.until(id, (status) => status.status === "running" && status.is_agent_running);
  await server.prompt(id, "held back");
  await server.call("POST", `/sessions/${id}/cancel`);
  await server.until(id, (status) => status.queue?.held === true);
  const page = await pages.open(session(id));
  const held = card(page, "queue-held");
  await held.waitFor();
  await page.getByText("1 queued prompt · held").waitFor();
  await picture(page, "queue-held");
  assert.equal(await page.locator('.message[data-role="user"]', { hasText: "held back" }).count(), 0);
  await held.getByRole("button", { name: "Deliver them" }).click();
  await page.locator('.message[data-role="agent"]', { hasText: "held back" }).waitFor();
  await held.waitFor({ state: "detached" });
  noErrors(page);
});

test("paused: continue", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "demo" });
  await server.prompt(id, "stream 2000 20");
  const { run_id: run } = await server.until(id, (status) => status.status === "running" && status.is_agent_running);
  const page = await pages.open(session(id));
  await page.locator('.message[data-role="agent"]').waitFor();
  await page.getByRole("button", { name: "Pause the run" }).click();
  await card(page, "paused").getByRole("button", { name: "Continue" }).click();
  await card(page, "paused").waitFor({ state: "detached" });
  // The same run goes to its end: the agent answers at once, so "running" may be over before it is looked at.
  await server.until(id, (status) => status.run_id === run && status.last_outcome === "completed");
});

test("read-only: a newer version wrote the session", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "echo" });
  const page = await pages.open("#/");
  await withStatus(page, id, { read_only: true, reason: "newer_version" });
  await page.goto(`${pages.address}/${session(id)}`);
  await card(page, "read-only").waitFor();
  assert.equal(await page.locator(".composer").count(), 0);
});

test("closed: says how, and offers a new session", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "echo" });
  await server.call("POST", `/sessions/${id}/close`, { outcome: "completed" });
  const page = await pages.open(session(id));
  await card(page, "closed").getByText("Closed as completed").waitFor();
  assert.equal(await page.locator(".composer").count(), 0);
  noErrors(page);
});

test("a session that was deleted elsewhere says so", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "echo" });
  const page = await pages.open(session(id));
  await page.locator(".composer").waitFor();
  await server.call("POST", `/sessions/${id}/close`, { outcome: "cancelled" });
  await server.call("DELETE", `/sessions/${id}?force=true`);
  await card(page, "refused").or(card(page, "gone")).first().waitFor({ timeout: 20_000 });
});
