// Signing in and out, a token that is revoked under the page, storage that is off.
import assert from "node:assert/strict";
import { card, noErrors, picture, send, session } from "./lib/page.mjs";
import { DESKTOP, PHONE } from "./lib/browser.mjs";
import { test } from "./lib/runner.mjs";

test("a sign-in link works once and does not stay in the address", async ({ server, pages }) => {
  const { token } = await server.call("POST", "/links", { name: "browser", scopes: ["read", "control"] });
  const page = await pages.open(`#link=${token}`, { isSignedIn: false });
  await page.getByRole("heading", { name: "Piton" }).waitFor();
  await page.getByLabel("Search sessions").waitFor();
  assert.ok(!page.url().includes(token));
  assert.equal(await page.evaluate(() => document.cookie), "");
  const again = await pages.open(`#link=${token}`, { isSignedIn: false });
  await again.getByRole("alert").waitFor();
  noErrors(page);
});

test("token revoked under the page: the sign-in page, and nothing is lost", async ({ server, pages }) => {
  const issue = () => server.call("POST", "/access-tokens", { name: "revoked", scopes: ["read", "control"] });
  const first = await issue();
  const id = await server.session({ agent_profile_id: "echo" });
  const page = await pages.open("#/", { isSignedIn: false });
  await page.getByLabel(/paste a sign-in link/).fill(first.token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByLabel("Search sessions").waitFor();
  await page.goto(`${pages.address}/${session(id)}`);
  await page.locator(".composer textarea").fill("a draft that must stay");
  await page.waitForFunction(() => Object.values(localStorage).includes("a draft that must stay"));
  await server.call("DELETE", `/access-tokens/${first.access_token_id}`);
  await card(page, "signed-out").getByText("You are signed out").waitFor({ timeout: 15_000 });
  await page.getByLabel(/paste a sign-in link/).fill((await issue()).token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.locator(".composer textarea").waitFor();
  assert.equal(await page.locator(".composer textarea").inputValue(), "a draft that must stay");
});

test("storage switched off: everything works for the page's life", async ({ server, pages }) => {
  const context = await pages.context({ isSignedIn: false });
  await context.addInitScript(() => Object.defineProperty(window, "localStorage", { get: () => { throw new DOMException("off", "SecurityError"); } }));
  const page = await pages.open("#/", { context });
  await page.getByLabel(/paste a sign-in link/).fill(server.token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByLabel("Search sessions").waitFor();
  const id = await server.session({ agent_profile_id: "echo" });
  await page.evaluate((hash) => { location.hash = hash; }, session(id));
  await send(page, "say without storage");
  await page.locator('.message[data-role="agent"]', { hasText: "without storage" }).waitFor();
  noErrors(page);
});

test("storage full: said so where the draft is typed, and the prompt is sent all the same", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "echo" });
  for (const viewport of [PHONE, DESKTOP]) {
    const context = await pages.context({ viewport });
    await context.addInitScript(() => {
      const setItem = Storage.prototype.setItem;
      Storage.prototype.setItem = function (key, value) {
        if (/^piton\.(draft|outbox)\./.test(key)) throw new DOMException("full", "QuotaExceededError");
        setItem.call(this, key, value);
      };
    });
    const page = await pages.open(session(id), { context });
    await page.locator(".composer textarea").waitFor();
    assert.equal(await card(page, "storage-full").count(), 0, "nothing is lost yet");
    await page.locator(".composer textarea").fill("typed into a full browser");
    await card(page, "storage-full").locator("visible=true").getByText("lost with this page").waitFor();
    if (viewport === PHONE) await picture(page, "storage-full");
    await page.locator(".composer textarea").fill("");
    await send(page, `say sent at ${viewport.width}`);
    await page.locator('.message[data-role="agent"]', { hasText: `sent at ${viewport.width}` }).waitFor();
    noErrors(page);
  }
});

test("a draft and its image survive a reload", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "demo" });
  const page = await pages.open(session(id));
  await page.locator(".composer textarea").fill("look at this");
  await page.evaluate(() => {
    const bytes = Uint8Array.from(atob("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="), (char) => char.charCodeAt(0));
    const data = new DataTransfer();
    data.items.add(new File([bytes], "dot.png", { type: "image/png" }));
    document.querySelector(".composer").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
  });
  await page.locator(".attachments img").waitFor();
  await page.waitForFunction(async () => (await indexedDB.databases()).some((one) => one.name === "piton.drafts"));
  await page.reload();
  await page.locator(".attachments img").waitFor();
  assert.equal(await page.locator(".composer textarea").inputValue(), "look at this");
  noErrors(page);
});

const DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const paste = (page, name = "dot.png") =>
  page.evaluate(([base64, file]) => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(atob(base64), (char) => char.charCodeAt(0))], file, { type: "image/png" }));
    document.querySelector(".composer textarea").dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
  }, [DOT, name]);

test("images for an agent that takes none: said so, edited with its image and without a reload, sent without it", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "blind" });
  await server.prompt(id, "hello");
  await server.until(id, (status) => status.status === "idle" && status.last_outcome === "completed");
  const page = await pages.open(session(id));
  const box = page.locator(".composer textarea");
  await box.fill("what is on this picture?");
  await page.evaluate(() => { window.mark = "same page"; });
  await paste(page);
  await page.locator(".attachments img").waitFor();
  await box.press("Enter");
  const refused = card(page, "refused-prompt");
  await refused.getByText("Blind takes no images").waitFor();
  await refused.locator("img").waitFor();
  assert.equal(await page.locator(".toast").count(), 0, "the card says it");
  await box.fill("typed meanwhile");
  await picture(page, "no-images");
  await refused.getByRole("button", { name: "Edit" }).click();
  await page.locator(".attachments img").waitFor();
  assert.equal(await box.inputValue(), "what is on this picture?\n\ntyped meanwhile");
  assert.equal(await page.evaluate(() => window.mark), "same page");
  await refused.waitFor({ state: "detached" });
  // From now on it is known, and not offered.
  await page.getByRole("button", { name: "Blind takes no images" }).waitFor();
  await paste(page);
  await page.locator(".toast", { hasText: "Blind takes no images" }).waitFor();
  await box.press("Enter");
  await refused.getByRole("button", { name: "Send without the image" }).click();
  await page.locator('.message[data-role="user"]:not([data-sending])', { hasText: "what is on this picture?" }).waitFor();
  await refused.waitFor({ state: "detached" });
  noErrors(page);
});

test("settings: tokens, executors, agents, verify", async ({ server, pages }) => {
  // One executor to be listed.
  const id = await server.session({ agent_profile_id: "echo" });
  await server.prompt(id, "hello");
  await server.until(id, (status) => status.status === "idle" && status.last_outcome === "completed");
  const page = await pages.open("#/settings", { context: await pages.context({ permissions: ["clipboard-read", "clipboard-write"] }) });
  await page.getByRole("button", { name: "Verify now" }).click();
  await card(page, "verify").getByText(/logs are whole/).waitFor({ timeout: 20_000 });
  await page.getByRole("link", { name: "Agents" }).click();
  const agent = (name) => page.locator("li.card").filter({ has: page.getByText(name, { exact: true }) });
  const missing = page.locator("li.card").filter({ has: page.getByText("not installed", { exact: true }) }).filter({ has: page.locator(".command") }).first();
  await missing.getByText("Install it, then it appears here").waitFor();
  await agent("Demo").getByText("Check it, log in").click();
  await agent("Demo").getByRole("button", { name: "Copy: Log in to Demo" }).click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "piton agents login demo");
  await picture(page, "agents");
  await page.getByRole("link", { name: "Executors" }).click();
  await page.getByText("standalone").first().waitFor();
  await page.getByRole("link", { name: "Access tokens" }).click();
  await page.getByLabel("For whom or what").fill("made in a test");
  await page.getByRole("button", { name: "Create" }).click();
  await page.getByLabel("The new token").waitFor();
  await page.locator("li.card", { hasText: "made in a test" }).getByRole("button", { name: "Revoke" }).click();
  await page.locator("li.card", { hasText: "made in a test" }).waitFor({ state: "detached" });
  noErrors(page);
});

test("without a secure context the app works and says what is missing", async ({ server, pages }) => {
  const context = await pages.context();
  await context.addInitScript(() => {
    Object.defineProperty(window, "isSecureContext", { value: false });
    for (const name of ["serviceWorker", "clipboard", "locks"]) Object.defineProperty(Navigator.prototype, name, { value: undefined });
    delete window.Notification;
    delete Crypto.prototype.randomUUID;
  });
  const page = await pages.open("#/", { context });
  await card(page, "insecure-context").getByRole("link", { name: "Why" }).click();
  await page.getByText("They need HTTPS").waitFor();
  const id = await server.session({ agent_profile_id: "echo" });
  await page.goto(`${pages.address}/${session(id)}`);
  await send(page, "say still works");
  await page.locator('.message[data-role="agent"]', { hasText: "still works" }).waitFor();
  noErrors(page);
});

test("the service worker keeps the shell and nothing of the API", async ({ server, front, pages }) => {
  const id = await server.session({ agent_profile_id: "echo", title: "Not to be kept" });
  const context = await pages.context({ serviceWorkers: "allow" });
  const page = await pages.open(session(id), { context });
  await page.locator(".composer").waitFor();
  await page.evaluate(() => navigator.serviceWorker.ready);
  await page.reload();
  await page.locator(".composer").waitFor();
  const kept = await page.evaluate(async () => {
    const urls = [];
    for (const name of await caches.keys()) for (const request of await (await caches.open(name)).keys()) urls.push(new URL(request.url).pathname);
    return urls;
  });
  assert.ok(kept.includes("/"));
  assert.deepEqual(kept.filter((path) => path !== "/" && !path.startsWith("/assets/")), []);
  front.cut();
  try {
    await page.reload();
    await page.getByRole("heading", { name: "Piton" }).waitFor();
    assert.equal(await page.getByText("Not to be kept").count(), 0);
  } finally {
    front.restore();
  }
});
