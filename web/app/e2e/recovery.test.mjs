// The page stays open while the server, the agent or the network goes away and comes back.
import assert from "node:assert/strict";
import { soak, test } from "./lib/runner.mjs";
import { answers, card, noErrors, picture, sameAsLog, send, session, squeeze } from "./lib/page.mjs";

test("server killed and restarted during a turn: no reload, no duplicate, no gap", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "demo" });
  const page = await pages.open(session(id));
  await page.evaluate(() => { window.mark = "same page"; });
  await send(page, "stream 120 40");
  await page.getByText("word10 ").first().waitFor();
  await server.kill();
  await card(page, "reconnecting").waitFor({ timeout: 10_000 });
  assert.equal(await card(page, "interrupted").count(), 0, "a lost connection is no interruption");
  await server.start();
  await page.getByText("word120").first().waitFor({ timeout: 30_000 });
  await server.until(id, (status) => status.status === "idle");
  await card(page, "reconnecting").waitFor({ state: "detached" });
  assert.equal(await page.evaluate(() => window.mark), "same page");
  const words = squeeze((await answers(page)).join(" ")).split(" ");
  assert.deepEqual(words, Array.from({ length: 120 }, (_, n) => `word${n + 1}`));
  await sameAsLog(server, page, id);
  noErrors(page);
});

test("a session opened while the server is away: reconnecting, and it loads by itself", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "echo" });
  await server.prompt(id, "say already there");
  await server.until(id, (status) => status.status === "idle" && status.last_outcome === "completed");
  const page = await pages.open("#/");
  await page.getByLabel("Search sessions").waitFor();
  await server.kill();
  try {
    await page.evaluate((hash) => { location.hash = hash; }, session(id));
    await card(page, "reconnecting").locator("visible=true").waitFor({ timeout: 10_000 });
    await card(page, "away").waitFor();
    await picture(page, "opened-away");
    assert.equal(await card(page, "load-failed").count(), 0);
  } finally {
    await server.start();
  }
  await page.locator('.message[data-role="agent"]', { hasText: "already there" }).waitFor({ timeout: 40_000 });
  await page.locator(".composer textarea").waitFor();
  await card(page, "reconnecting").waitFor({ state: "detached" });
  assert.equal(await card(page, "away").count(), 0);
  noErrors(page);
});

test("reloaded while the server is away: the shell, reconnecting, and the session by itself", async ({ server, front, pages }) => {
  const id = await server.session({ agent_profile_id: "echo" });
  await server.prompt(id, "say before the reload");
  await server.until(id, (status) => status.status === "idle" && status.last_outcome === "completed");
  const page = await pages.open(session(id), { context: await pages.context({ serviceWorkers: "allow" }) });
  await page.locator(".composer textarea").waitFor();
  await page.evaluate(() => navigator.serviceWorker.ready);
  // The worker takes the page's files into its cache when it is asked for them.
  await page.reload();
  await page.locator(".composer textarea").waitFor();
  front.cut();
  try {
    await page.reload();
    await card(page, "reconnecting").locator("visible=true").waitFor({ timeout: 10_000 });
    assert.equal(await card(page, "load-failed").count(), 0);
  } finally {
    front.restore();
  }
  await page.locator('.message[data-role="agent"]', { hasText: "before the reload" }).waitFor({ timeout: 40_000 });
  noErrors(page);
});

test("the server was upgraded under the page: it says so, and a part that is gone can be tried again or reloaded", async ({ server, front, pages }) => {
  const folder = await server.repository("upgrade", { "a.txt": "one\n" });
  const id = await server.session({ agent_profile_id: "echo", working_dir: folder });
  const page = await pages.open(session(id));
  await page.locator(".composer textarea").fill("a draft that stays");
  // As after an upgrade: the page's script has another name, and the old parts are gone.
  await page.route(`${pages.address}/`, async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, body: (await response.text()).replace(/assets\/index-[\w-]+\.js/, "assets/index-Another1.js") });
  });
  await page.route(/\/assets\/Changes-/, (route) => route.fulfill({ status: 404, body: "" }));
  front.cut();
  await card(page, "reconnecting").locator("visible=true").waitFor({ timeout: 10_000 });
  front.restore();
  // The network is back: no backoff is waited for.
  await page.evaluate(() => dispatchEvent(new Event("online")));
  await card(page, "new-version").locator("visible=true").waitFor({ timeout: 40_000 });
  await picture(page, "new-version");
  await page.goto(`${pages.address}/${session(id, "changes")}`);
  await page.getByText("This part of the page could not be loaded").waitFor();
  await page.getByRole("button", { name: "Reload the page" }).waitFor();
  await picture(page, "chunk-gone");
  await page.unroute(/\/assets\/Changes-/);
  await page.unroute(`${pages.address}/`);
  await page.getByRole("button", { name: "Retry" }).click();
  await page.getByText("Nothing changed").waitFor();
  await card(page, "new-version").locator("visible=true").getByRole("button", { name: "Reload" }).click();
  await page.getByText("Nothing changed").waitFor();
  await card(page, "new-version").waitFor({ state: "detached" });
  await page.goto(`${pages.address}/${session(id)}`);
  await page.locator(".composer textarea").waitFor();
  assert.equal(await page.locator(".composer textarea").inputValue(), "a draft that stays");
});

test("agent killed during a turn: the interruption card, and Resume continues the run", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "echo" });
  const page = await pages.open(session(id));
  await send(page, "stream 20 10\nrun sleep 31");
  const { agent_execution_id } = await server.until(id, (status) => status.is_agent_running && status.status === "running");
  await page.getByText("chunk 20").waitFor();
  await page.locator('.tool[data-status="pending"]').waitFor();
  const agent = server.pidsOf(agent_execution_id).map((pid) => ({ pid, line: server.commandOf(pid) })).filter(({ line }) => line.includes("echo") || line.includes("sleep 31"));
  for (const { pid } of agent) server.killProcess(pid);
  const interrupted = card(page, "interrupted");
  await interrupted.getByText(/while Echo was running a tool/).waitFor({ timeout: 20_000 });
  await interrupted.getByText("sleep 31").waitFor();
  await interrupted.getByRole("button", { name: "Resume", exact: true }).click();
  await interrupted.waitFor({ state: "detached", timeout: 20_000 });
  await server.until(id, (status) => status.status === "idle" || status.status === "running");
  noErrors(page);
});

test("interruption card: Dismiss", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "echo" });
  await server.prompt(id, "say one\ncrash");
  await server.until(id, (status) => status.status.startsWith("interrupted"));
  const page = await pages.open(session(id));
  await card(page, "interrupted").getByRole("button", { name: "Dismiss" }).click();
  await card(page, "interrupted").waitFor({ state: "detached" });
});

test("network lost and back during a turn: reconnecting, then everything is there", async ({ server, front, pages }) => {
  const id = await server.session({ agent_profile_id: "demo" });
  const page = await pages.open(session(id));
  await send(page, "stream 60 50");
  await page.getByText("word5 ").first().waitFor();
  front.cut();
  await card(page, "reconnecting").waitFor({ timeout: 10_000 });
  assert.equal(await card(page, "interrupted").count(), 0);
  await server.until(id, (status) => status.status === "idle");
  front.restore();
  await page.getByText("word60").first().waitFor({ timeout: 40_000 });
  await sameAsLog(server, page, id);
  noErrors(page);
});

/** The device has no network for a while, in the middle of a turn: nothing reaches the page, and it knows. */
async function offline(server, front, pages, seconds) {
  const id = await server.session({ agent_profile_id: "demo" });
  const context = await pages.context();
  const page = await pages.open(session(id), { context });
  await page.evaluate(() => { window.mark = "same page"; });
  await send(page, "stream 60 50");
  await page.getByText("word5 ").first().waitFor();
  await context.setOffline(true);
  front.cut();
  const began = Date.now();
  await card(page, "reconnecting").getByText("this device is offline").waitFor({ timeout: 10_000 });
  await picture(page, `offline-${seconds}`);
  assert.equal(await card(page, "interrupted").count(), 0);
  await send(page, "written offline");
  await page.locator("[data-sending]", { hasText: "written offline" }).waitFor();
  await server.until(id, (status) => status.status === "idle");
  await page.waitForTimeout(Math.max(0, seconds * 1_000 - (Date.now() - began)));
  front.restore();
  await context.setOffline(false);
  const back = Date.now();
  await page.locator('.message[data-role="agent"]', { hasText: "word60" }).waitFor({ timeout: 20_000 });
  // The device's own event is the wake-up: no backoff is waited for.
  assert.ok(Date.now() - back < 10_000, `it took ${Date.now() - back} ms after the network was back`);
  await page.locator('.message[data-role="agent"]', { hasText: "written offline" }).waitFor({ timeout: 20_000 });
  await card(page, "reconnecting").waitFor({ state: "detached" });
  assert.equal(await page.evaluate(() => window.mark), "same page");
  const prompts = (await server.records(id)).filter((record) => record.kind === "message.user").map((record) => record.content);
  assert.deepEqual(prompts, ["stream 60 50", "written offline"]);
  await sameAsLog(server, page, id);
  noErrors(page);
}

test("the device is offline for a moment and back: it says so, loses nothing, and is back at once", ({ server, front, pages }) => offline(server, front, pages, 3));
soak("the device is offline for 30 seconds and back", ({ server, front, pages }) => offline(server, front, pages, 30));

test("a prompt sent without a network is kept over a reload and delivered once", async ({ server, front, pages }) => {
  const id = await server.session({ agent_profile_id: "echo" });
  const page = await pages.open(session(id));
  await page.locator(".composer").waitFor();
  front.cut();
  await send(page, "say delivered once");
  await page.locator("[data-sending]").waitFor();
  front.restore();
  await page.reload();
  await page.getByText("delivered once", { exact: true }).first().waitFor({ timeout: 30_000 });
  const prompts = (await server.records(id)).filter((record) => record.kind === "message.user");
  assert.equal(prompts.length, 1);
});

test("two tabs: a permission answered in one is seen in the other", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "demo" });
  const context = await pages.context();
  const [one, two] = [await pages.open(session(id), { context }), await pages.open(session(id), { context })];
  await send(one, "push git push origin main");
  for (const page of [one, two]) await card(page, "permission").getByText("git push origin main").waitFor();
  await card(two, "permission").getByRole("button", { name: "Allow once" }).click();
  for (const page of [one, two]) {
    await card(page, "permission").waitFor({ state: "detached" });
    await page.getByText("allowed", { exact: true }).waitFor();
    noErrors(page);
  }
});

test("two tabs and a terminal on one session: each sees the others' prompts", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "echo" });
  const tabs = [await pages.open(session(id)), await pages.open(session(id))];
  for (const page of tabs) await page.locator(".composer textarea").waitFor();
  const terminal = server.terminal("chat", "--resume", id);
  try {
    await terminal.until(/echo|enter/i);
    terminal.type("say from the terminal\r");
    for (const page of tabs) await page.locator('.message[data-role="agent"]', { hasText: "from the terminal" }).waitFor({ timeout: 20_000 });
    await send(tabs[0], "say from a tab");
    await tabs[1].locator('.message[data-role="agent"]', { hasText: "from a tab" }).waitFor();
    await terminal.until(/from a tab/);
  } finally {
    terminal.end();
  }
});

test("three tabs of one browser: each loads, follows and sends; one connection each", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "echo" });
  const context = await pages.context();
  const tabs = [];
  for (let at = 0; at < 4; at += 1) {
    const page = await pages.open(session(id), { context });
    await page.locator(".composer textarea").waitFor();
    tabs.push(page);
  }
  await send(tabs[3], "say seen in all tabs");
  for (const page of tabs) {
    await page.locator('.message[data-role="agent"]', { hasText: "seen in all tabs" }).waitFor();
    // A request that would hang behind streams if they held the connections.
    assert.equal(await page.evaluate(() => fetch("/health").then((answer) => answer.ok)), true);
    noErrors(page);
  }
});

test("prompts of two tabs, written while the server is away, all arrive, in order", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "echo" });
  const context = await pages.context();
  const one = await pages.open(session(id), { context });
  const two = await pages.open(session(id), { context });
  for (const page of [one, two]) await page.locator(".composer textarea").waitFor();
  await server.kill();
  for (const [page, text] of [[one, "say first"], [two, "say second"], [one, "say third"]]) {
    await send(page, text);
    await page.waitForFunction((wanted) => Object.values(localStorage).some((value) => value.includes(wanted)), text);
  }
  await one.close();
  await server.start();
  await two.locator('.message[data-role="agent"]', { hasText: "third" }).waitFor({ timeout: 30_000 });
  const prompts = (await server.records(id)).filter((record) => record.kind === "message.user").map((record) => record.content);
  assert.deepEqual(prompts, ["say first", "say second", "say third"]);
});
