// The demo of a run in a page, and a run that the server owns.
import assert from "node:assert/strict";
import { IDBFactory } from "fake-indexeddb";
import { PitonClient } from "../../client/dist/index.js";
import { browserStorage, createRun, tabLock } from "../../client/dist/run/index.js";
import { joinJob, pitonSandbox, recordJob } from "../../client/dist/run/piton.js";
import { test } from "./lib/runner.mjs";
import { noErrors } from "./lib/page.mjs";

test("demo of a browser run: closed in the middle, resumed, each note once", async ({ server, pages }) => {
  const page = await pages.open("demo/browser-run");
  await page.getByRole("button", { name: "Start" }).click();
  await page.getByText("monday.md is written").waitFor({ timeout: 30_000 });
  await page.getByText("The first note is in the workspace").waitFor({ timeout: 20_000 });
  const context = page.context();
  noErrors(page);
  await page.close({ runBeforeUnload: false });
  const again = await pages.open("demo/browser-run", { context });
  await again.getByText("Resume where you left off?").waitFor();
  await again.getByRole("button", { name: "Resume" }).click();
  await again.getByText("I was interrupted. The workspace has monday.").waitFor({ timeout: 20_000 });
  await again.getByText("All three notes are in the workspace").first().waitFor({ timeout: 40_000 });
  const id = await again.evaluate(() => localStorage.getItem("piton.demo.session"));
  const { files } = await server.call("GET", `/sessions/${id}/files`);
  assert.deepEqual(files.map((file) => file.name).filter((name) => name.endsWith(".md")).sort(), ["monday.md", "tuesday.md", "wednesday.md"]);
  assert.equal(await again.getByText("monday.md is written").count(), 1, "written once");
  noErrors(again);
});

test("demo of a run that the server owns: the page is closed, and joins the session when it is back", async ({ server, pages }) => {
  const page = await pages.open("demo/browser-run");
  await page.getByRole("button", { name: "Run on the server" }).click();
  await page.locator("#job-answer", { hasText: "chunk 3" }).waitFor({ timeout: 30_000 });
  assert.ok(await page.getByRole("button", { name: "Start" }).isDisabled(), "no second owner");
  const context = page.context();
  noErrors(page);
  await page.close({ runBeforeUnload: false });
  const again = await pages.open("demo/browser-run", { context });
  await again.getByText("The run continues on the server", { exact: false }).first().waitFor({ timeout: 20_000 });
  assert.equal(await again.getByRole("button", { name: "Resume" }).count(), 0, "nothing to resume here");
  await again.getByText("The run has ended on the server").waitFor({ timeout: 30_000 });
  assert.match(await again.locator("#job-answer").textContent(), /chunk 60/);
  assert.ok(await again.getByRole("button", { name: "Start" }).isEnabled());
  const { sessions } = await server.call("GET", "/sessions?limit=50");
  const id = sessions.find((session) => session.title === "Browser run demo on the server").session_id;
  const answers = (await server.records(id)).filter((record) => record.kind === "run.completed");
  assert.equal(answers.length, 1, "done once");
  noErrors(again);
});

test("demo of a run on the server that cannot begin: refused, the chat is free; without an answer, it can be dismissed", async ({ pages }) => {
  const page = await pages.open("demo/browser-run");
  const start = page.getByRole("button", { name: "Start" });
  const toServer = page.getByRole("button", { name: "Run on the server" });
  const problem = { type: "about:blank", title: "Refused", status: 409, code: "session_closed", detail: "not now", hint: "" };
  await page.route("**/api/v1/sessions/*/messages", (route) => route.fulfill({ status: 409, contentType: "application/problem+json", body: JSON.stringify(problem) }));
  await toServer.click();
  await page.getByRole("alert").getByText("Refused").waitFor({ timeout: 20_000 });
  assert.ok(await start.isEnabled(), "free");
  assert.equal(await page.locator("piton-resume-banner").isVisible(), false);
  await page.unroute("**/api/v1/sessions/*/messages");
  await page.route("**/api/v1/sessions/*/messages", (route) => route.abort());
  // The job is recorded before its prompt is sent: a reload before that would leave nothing to dismiss.
  const sent = page.waitForRequest("**/api/v1/sessions/*/messages");
  await toServer.click();
  await sent;
  const dismiss = page.getByRole("button", { name: "Dismiss" });
  await page.reload();
  await dismiss.waitFor({ timeout: 20_000 });
  assert.ok(await start.isDisabled(), "it is not known that nothing runs");
  await dismiss.click();
  await start.and(page.locator(":enabled")).waitFor();
  noErrors(page);
});

test("a run that the server owns is joined, not resumed", async ({ server }) => {
  const sessionId = await server.session();
  const client = new PitonClient({ address: server.address, token: server.token });
  const storage = browserStorage({ localStorage: null, indexedDB: new IDBFactory() });
  const lock = tabLock({ storage, locks: null, localStorage: null });
  await recordJob({ chatId: "chat", jobId: sessionId, storage, lock });
  await server.prompt(sessionId, "stream 20 20");
  const run = createRun({
    chatId: "chat", provider: "p", model: "m", storage, lock,
    sandbox: pitonSandbox({ baseUrl: server.address, token: server.token, sessionId }),
    async *stream() {
      throw new Error("the page must not run it");
    },
  });
  assert.equal((await run.open()).status, "job");
  await assert.rejects(run.send("me too"), { code: "owned_by_server" });
  const job = joinJob(client, run.recovery);
  const status = await job.ended;
  assert.equal(status.status, "idle");
  assert.match(JSON.stringify(job.store.view.value.items), /chunk 20/);
  assert.equal((await storage.load("chat")).checkpoint, null, "the chat is free again");
  job.close();
  run.close();
});
