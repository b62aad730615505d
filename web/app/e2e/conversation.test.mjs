// The conversation, the prompt box, the queue, permissions.
import assert from "node:assert/strict";
import { card, noErrors, picture, send, session } from "./lib/page.mjs";
import { PHONE } from "./lib/browser.mjs";
import { before, test } from "./lib/runner.mjs";

test("a turn with thought, tools, an edit, a plan, usage and a permission", async ({ server, pages }) => {
  const folder = await server.repository("story", { "tests/clock.rs": "use chrono::Local;\n" });
  const id = await server.session({ agent_profile_id: "demo", working_dir: folder, title: "Fix the clock test" });
  const page = await pages.open(session(id));
  await send(page, "story the clock test fails every night");
  await card(page, "permission").getByText("git push origin fix-clock").waitFor();
  await page.getByText("Thought", { exact: false }).first().waitFor();
  await page.locator(".tool", { hasText: "tests/clock.rs" }).first().waitFor();
  await page.locator('.diff tr[data-kind="add"]', { hasText: "use chrono::Utc;" }).waitFor();
  await page.locator(".plan", { hasText: "3/4" }).waitFor();
  await page.getByText("context 12 %").waitFor();
  await page.locator(".code-keyword").first().waitFor();
  await card(page, "permission").getByRole("button", { name: "Reject…" }).click();
  await page.getByLabel(/What should the agent do instead/).fill("open a pull request instead");
  await page.getByRole("button", { name: "Reject and send" }).click();
  await page.getByText("I left the branch unpushed.", { exact: true }).waitFor();
  await page.locator('.message[data-role="user"]', { hasText: "open a pull request instead" }).waitFor();
  noErrors(page);
});

test("queued prompts are the server's: shown, edited, removed, delivered in order", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "echo" });
  const page = await pages.open(session(id));
  await send(page, "wait 3000");
  await server.until(id, (status) => status.status === "running");
  for (const text of ["say first", "say second", "say third"]) await send(page, text);
  await page.getByText("3 queued prompts").waitFor();
  await page.reload();
  await page.getByText("3 queued prompts").waitFor();
  const row = (text) => page.locator(".queue-list li", { hasText: text });
  await row("say second").getByRole("button", { name: "Remove the queued prompt" }).click();
  await page.getByText("2 queued prompts").waitFor();
  await row("say third").getByRole("button", { name: "Edit the queued prompt" }).click();
  await page.getByRole("dialog").getByLabel("Prompt").fill("say edited");
  await page.getByRole("button", { name: "Save" }).click();
  await page.locator('.message[data-role="agent"]', { hasText: "edited" }).waitFor({ timeout: 15_000 });
  const said = (await server.records(id)).filter((record) => record.kind === "message.user").map((record) => record.content);
  assert.deepEqual(said, ["wait 3000", "say first", "say edited"]);
  noErrors(page);
});

test("a permission for an edit: every changed line is on the page before the buttons", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "demo" });
  const page = await pages.open(session(id), { viewport: PHONE });
  const lines = Array.from({ length: 30 }, (_, n) => `line ${n + 1}`);
  await send(page, `edit-ask src/clock.rs ${lines.join("\\n")}`);
  const asks = card(page, "permission");
  await asks.getByText("wants to change a file").waitFor();
  await asks.locator('.diff tr[data-kind="add"]', { hasText: "line 30" }).waitFor();
  assert.equal(await asks.locator('.diff tr[data-kind="add"]').count(), 30);
  await asks.getByText("src/clock.rs").waitFor();
  const [last, button] = [await asks.locator('.diff tr[data-kind="add"]').last().boundingBox(), await asks.getByRole("button", { name: "Allow once" }).boundingBox()];
  assert.ok(last.y + last.height <= button.y, "the diff ends before the buttons begin");
  await picture(page, "permission-diff");
  // On the list there is no room for it: it is reviewed in its session.
  await page.goto(`${pages.address}/#/`);
  const row = page.locator('[data-group="needs_you"] .home-row').filter({ has: page.locator(`a[href="${session(id)}"]`) });
  await row.getByRole("link", { name: "Review" }).click();
  await asks.getByRole("button", { name: "Allow once" }).click();
  await page.getByText("allowed", { exact: true }).waitFor();
  noErrors(page);
});

test("Replace run is a choice of its own: it cancels the run that waits; Send queues behind it", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "demo" });
  const page = await pages.open(session(id));
  await send(page, "push git push origin main");
  await card(page, "permission").waitFor();
  await send(page, "queued behind it");
  await page.getByText("1 queued prompt").waitFor();
  await page.locator(".composer textarea").fill("instead of it");
  const [sent] = await Promise.all([page.waitForRequest((request) => request.method() === "POST" && request.url().endsWith(`${id}/messages`)), page.getByRole("button", { name: "Replace run" }).click()]);
  assert.equal(sent.postDataJSON().if_busy, "supersede");
  await card(page, "permission").waitFor({ state: "detached" });
  await page.locator('.message[data-role="agent"]', { hasText: "instead of it" }).waitFor();
  const ended = (await server.records(id)).filter((record) => record.kind === "run.cancelled").map((record) => record.reason);
  assert.deepEqual(ended, ["superseded"]);
  noErrors(page);
});

test("a queued prompt with an image, and one of 10,000 characters: edited whole, the image stays", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "demo" });
  await server.prompt(id, "hello");
  await server.until(id, (status) => status.status === "idle" && status.last_outcome === "completed");
  await server.prompt(id, "wait 20000");
  await server.until(id, (status) => status.status === "running");
  const image = { type: "image", mimeType: "image/png", data: "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==" };
  const link = { type: "resource_link", name: "notes", uri: "file:///notes.md" };
  await server.prompt(id, [{ type: "text", text: "look at this" }, image, link]);
  const long = `${"0123456789".repeat(1_000)} the end`;
  await server.prompt(id, long);
  const page = await pages.open(session(id));
  const edit = (text) => page.locator(".queue-list li", { hasText: text }).getByRole("button", { name: "Edit the queued prompt" }).click();
  const dialog = page.getByRole("dialog");
  await edit("look at this");
  await dialog.getByText("2 attachments, kept as they are").waitFor();
  await picture(page, "queue-edit");
  await dialog.getByLabel("Prompt").fill("look closely");
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.waitFor({ state: "detached" });
  await edit("0123456789");
  await dialog.getByLabel("Prompt").waitFor();
  assert.equal(await dialog.getByLabel("Prompt").inputValue(), long);
  await dialog.getByLabel("Prompt").fill(`${long} of it`);
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.waitFor({ state: "detached" });
  const { prompts } = await server.call("GET", `/sessions/${id}/queue`);
  const contents = await Promise.all(prompts.map(async ({ message_id }) => (await server.call("GET", `/sessions/${id}/queue/${message_id}`)).content));
  assert.deepEqual(contents, [[{ type: "text", text: "look closely" }, image, link], `${long} of it`]);
  await server.call("POST", `/sessions/${id}/cancel`);
  noErrors(page);
});

test("a draft survives a reload; Up recalls what was sent", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "echo" });
  const page = await pages.open(session(id));
  await send(page, "say remembered");
  await page.locator('.message[data-role="agent"]').waitFor();
  const box = page.locator(".composer textarea");
  await box.press("ArrowUp");
  assert.equal(await box.inputValue(), "say remembered");
  await box.fill("half a thought");
  await page.reload();
  await page.locator(".composer textarea").waitFor();
  assert.equal(await page.locator(".composer textarea").inputValue(), "half a thought");
});

test("@ completes files, / completes the agent's commands, images can be pasted", async ({ server, pages }) => {
  const folder = await server.repository("complete", { "src/clock.rs": "fn main() {}\n" });
  const id = await server.session({ agent_profile_id: "demo", working_dir: folder });
  const page = await pages.open(session(id));
  await send(page, "hello");
  await page.locator('.message[data-role="agent"]').waitFor();
  const box = page.locator(".composer textarea");
  await box.pressSequentially("look at @sr");
  await page.getByRole("option", { name: /src/ }).waitFor();
  await box.press("Enter");
  await page.getByRole("option", { name: /clock\.rs/ }).waitFor();
  await box.press("Enter");
  assert.equal(await box.inputValue(), "look at @src/clock.rs ");
  await box.fill("/rev");
  await page.getByRole("option", { name: /review/ }).waitFor();
  await box.press("Tab");
  assert.equal(await box.inputValue(), "/review ");
  await box.fill("see this");
  await page.evaluate(() => {
    const png = Uint8Array.from(atob("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="), (char) => char.charCodeAt(0));
    const data = new DataTransfer();
    data.items.add(new File([png], "dot.png", { type: "image/png" }));
    document.querySelector(".composer textarea").dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
  });
  await page.locator(".attachments img").waitFor();
  await box.press("Enter");
  await page.locator('.message[data-role="user"] img.image-block').waitFor();
  await page.getByText("[image]", { exact: true }).waitFor();
  noErrors(page);
});

test("modes and models: chosen in the prompt box, kept by the server", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "demo" });
  const page = await pages.open(session(id));
  await send(page, "hello");
  await page.locator('.message[data-role="agent"]').waitFor();
  await page.locator(".composer").getByRole("button", { name: "Large 5" }).click();
  await page.getByRole("menuitemradio", { name: "Small 5" }).click();
  await page.locator(".session-facts", { hasText: "Small 5" }).waitFor();
  assert.equal((await server.call("GET", `/sessions/${id}/agent`)).chosen.model, "small");
});

/** Written while the other tests run. */
let large;
before(async ({ server, isChosen }) => {
  if (!isChosen("10,000 messages")) return;
  const lines = Array.from({ length: 2_500 }, (_, n) => `say message ${n + 1}`).join("\n");
  large = server.session({ agent_profile_id: "echo", title: "Ten thousand" });
  const id = await large;
  for (let n = 0; n < 4; n += 1) await server.prompt(id, lines);
});

test("opening is one request, as large for 10,000 messages as for 500", async ({ server, pages }) => {
  const small = await server.session({ agent_profile_id: "echo", title: "Five hundred" });
  await server.prompt(small, Array.from({ length: 500 }, (_, n) => `say message ${n + 1}`).join("\n"));
  const long = await large;
  for (const id of [small, long]) await server.until(id, (status) => status.status === "idle" && status.queue.length === 0 && status.last_seq > 1_000, 50_000);
  const opened = async (id) => {
    const page = await pages.open("#/");
    await page.getByLabel("Search sessions").waitFor();
    const answers = [];
    page.on("response", (response) => response.url().includes(`/sessions/${id}`) && answers.push(response));
    await page.goto(`${pages.address}/${session(id)}`);
    await page.locator('.message[data-role="agent"]').last().waitFor();
    await page.locator(".composer textarea").click();
    const bootstrap = answers.filter((answer) => answer.url().includes("/bootstrap"));
    return { bootstraps: bootstrap.length, pages: answers.filter((answer) => /\/(messages|records)\?/.test(answer.url())).length, bytes: (await bootstrap[0].body()).length };
  };
  const [few, many] = [await opened(small), await opened(long)];
  assert.deepEqual([few.bootstraps, many.bootstraps, few.pages, many.pages], [1, 1, 0, 0]);
  assert.ok(many.bytes < few.bytes * 1.2, `${many.bytes} bytes of 10,000 messages, ${few.bytes} bytes of 500`);
});

test("10,000 messages: a bounded number of nodes, at both ends", async ({ server, pages }) => {
  const id = await large;
  await server.until(id, (status) => status.status === "idle" && status.queue.length === 0 && status.last_seq > 20_000, 50_000);
  const at = Date.now();
  const page = await pages.open(session(id));
  await page.getByText("message 2500", { exact: true }).first().waitFor({ timeout: 20_000 });
  console.log(`      opened in ${Date.now() - at} ms`);
  const nodes = () => page.evaluate(() => document.querySelectorAll("*").length);
  const rows = () => page.locator(".virtual-row").count();
  const before = await nodes();
  assert.ok((await rows()) < 120 && before < 3_000, `${await rows()} rows, ${before} nodes`);
  // Earlier pages are loaded as the start comes near.
  const first = page.locator('.virtual-row[aria-posinset="1"] .message[data-role="user"]');
  for (let n = 0; n < 400 && (await page.locator(".older").count()) + Number((await first.count()) === 0) > 0; n += 1) {
    await page.locator(".virtual").evaluate((list) => { list.scrollTop = 0; });
    await page.waitForTimeout(25);
  }
  await page.getByText("message 1", { exact: true }).first().waitFor({ timeout: 20_000 });
  assert.ok((await rows()) < 120 && (await nodes()) < 3_000);
  await page.getByRole("button", { name: "Go to the newest message" }).click();
  await page.getByText("message 2500", { exact: true }).first().waitFor();
  noErrors(page);
});
