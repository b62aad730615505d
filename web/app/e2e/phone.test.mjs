// A phone in the same network: the address of this machine there, plain HTTP, a QR code, a webhook.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { networkInterfaces } from "node:os";
import { PHONE } from "./lib/browser.mjs";
import { Front } from "./lib/front.mjs";
import { card, noErrors, picture, send, session } from "./lib/page.mjs";
import { hasApp, test } from "./lib/runner.mjs";
import { Server } from "./lib/server.mjs";

/** An address of this machine that other devices use. */
function networkAddress() {
  return Object.values(networkInterfaces()).flat().find((one) => one && one.family === "IPv4" && !one.internal)?.address ?? null;
}

/** A server that a phone reaches, at `address`. */
async function withServer(options, run) {
  const server = new Server(options);
  try {
    await server.start();
    await run(server);
  } finally {
    await server.remove();
  }
}

test("a QR code signs a phone in; on plain HTTP the app works, and says what is missing", async ({ pages, skip }) => {
  const host = networkAddress();
  if (!host) return skip("this machine has no address but its own");
  await withServer({ listen: host, args: ["--insecure"] }, async (server) => {
    const shown = await server.cli("open", "--qr");
    // Two modules in the height of a character: a square has half as many lines as columns.
    const drawn = shown.split("\n").filter((line) => /[█▀▄]/.test(line));
    assert.ok(drawn.length > 12 && Math.abs(drawn[0].length - drawn.length * 2) <= 2, `a QR code of ${drawn[0]?.length} by ${drawn.length}`);
    const link = new URL(/http:\/\/\S+#link=\S+/.exec(shown)[0]);
    assert.equal(link.hostname, host, "the code's address is one that a phone reaches");
    let front = null;
    // A binary without the app in it: the same address, with the built app in front.
    if (!(await hasApp(server.address))) {
      front = new Front(server.address, { serveApp: true });
      await front.listen(host);
    }
    try {
      const address = front?.address ?? link.origin;
      const page = await pages.open(link.hash, { address, isSignedIn: false, viewport: PHONE, isMobile: true });
      await page.getByLabel("Search sessions").waitFor();
      assert.equal(await page.evaluate(() => isSecureContext), false, "nothing is pretended here");
      assert.deepEqual(await page.evaluate(() => [typeof navigator.serviceWorker, typeof navigator.locks, typeof crypto.randomUUID]), ["undefined", "undefined", "undefined"]);
      assert.ok(!page.url().includes(link.hash.slice(6)), "the secret does not stay in the address");
      await card(page, "insecure-context").waitFor();
      await picture(page, "plain-http-home");
      const id = await server.session({ agent_profile_id: "echo", title: "From a phone" });
      await page.goto(`${address}/${session(id)}`);
      await send(page, "say over plain HTTP");
      await page.locator('.message[data-role="agent"]', { hasText: "over plain HTTP" }).waitFor();
      await page.goto(`${address}/#/settings/device`);
      await page.getByText("They need HTTPS").waitFor();
      // Once: the same code signs in no second time.
      const second = await pages.open(link.hash, { address, isSignedIn: false, viewport: PHONE });
      await second.getByRole("alert").waitFor();
      // The browser says that it ignores a header which only counts with HTTPS.
      page.errors = page.errors.filter((text) => !text.startsWith("The Cross-Origin-Opener-Policy header has been ignored"));
      noErrors(page);
    } finally {
      await front?.close();
    }
  });
});

test("a webhook is told that a session waits, again until it is heard, under one id; then the session is answered", async ({ pages }) => {
  const heard = [];
  const listener = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk) => { body += chunk; });
    request.on("end", () => {
      heard.push({ id: request.headers["idempotency-key"], body: JSON.parse(body) });
      // The first attempt is not taken.
      response.writeHead(heard.length === 1 ? 503 : 200).end();
    });
  });
  await new Promise((done) => listener.listen(0, "127.0.0.1", done));
  const until = async (wanted) => {
    const end = Date.now() + 20_000;
    while (!wanted()) {
      assert.ok(Date.now() < end, `heard only ${JSON.stringify(heard)}`);
      await new Promise((done) => setTimeout(done, 50));
    }
  };
  try {
    await withServer({ env: { PITON_NOTIFY_URL: `http://127.0.0.1:${listener.address().port}/`, PITON_NOTIFY_TOPIC: "phone" } }, async (server) => {
      const id = await server.session({ agent_profile_id: "demo", title: "Waits for somebody" });
      await server.prompt(id, "push git push origin main");
      await until(() => heard.length >= 2);
      const [first, again] = heard;
      assert.deepEqual([again.id, again.body], [first.id, first.body]);
      assert.ok(first.id && first.id === first.body.id);
      const { event, session_id, what, topic, title } = first.body;
      assert.deepEqual({ event, session_id, what, topic }, { event: "waiting", session_id: id, what: "permission", topic: "phone" });
      assert.match(title, /Waits for somebody/);
      assert.ok(!JSON.stringify(first.body).includes("git push"), "nothing of the conversation leaves the machine");
      // The person opens the session that it names.
      const front = new Front(server.address, { serveApp: !(await hasApp(server.address)) });
      await front.listen();
      try {
        const context = await pages.context({ isSignedIn: false, viewport: PHONE });
        await context.addInitScript((token) => localStorage.setItem("piton.token", token), server.token);
        const page = await pages.open(session(session_id), { context, address: front.address });
        await card(page, "permission").getByRole("button", { name: "Allow once" }).click();
        await page.getByText("allowed", { exact: true }).waitFor();
        noErrors(page);
        await until(() => heard.some((one) => one.body.event === "ended" && one.body.what === "completed"));
        await page.close();
      } finally {
        await front.close();
      }
    });
  } finally {
    listener.closeAllConnections();
    await new Promise((done) => listener.close(done));
  }
});
