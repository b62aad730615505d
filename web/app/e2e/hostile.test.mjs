// Nothing that an agent says runs, loads, hides or breaks anything.
import assert from "node:assert/strict";
import { card, noErrors, send, session } from "./lib/page.mjs";
import { test } from "./lib/runner.mjs";

const HOSTILE = [
  "<img src=x onerror=\"window.pwned = 'img'\"><script>window.pwned = 'script'</script><svg onload=\"window.pwned = 'svg'\"></svg>",
  "[click](javascript:window.pwned='link') [data](data:text/html,<script>window.pwned='data'</script>) <a href=\"javascript:window.pwned='a'\">a</a>",
  "![remote](http://127.0.0.1:9/track.png) ![svg](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9IndpbmRvdy5wd25lZD0nc3ZnJyIvPg==)",
  "\u001b[31mred\u001b[0m \u001b]0;title\u0007 bell\u0007 \u202egnp.exe\u202c",
  "<iframe srcdoc=\"<script>parent.window.pwned='frame'</script>\"></iframe><style>body{display:none}</style><meta http-equiv=refresh content=\"0;url=http://127.0.0.1:9\">",
  "```js\nwindow.pwned = 'code'\n```\n\n| a | <b onclick=\"window.pwned='td'\">b</b> |\n|---|---|\n| 1 | 2 |",
];

test("hostile text is readable and inert under the strict policy", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "demo" });
  const page = await pages.open(session(id));
  const policy = (await page.request.get(`${pages.address}/`)).headers()["content-security-policy"];
  assert.ok(policy && !policy.includes("unsafe-inline") && !policy.includes("unsafe-eval"), `the policy is ${policy}`);
  const requests = [];
  page.on("request", (request) => !request.url().startsWith(pages.address) && !/^(data|blob):/.test(request.url()) && requests.push(request.url()));
  page.on("dialog", () => requests.push("a dialog"));
  await send(page, HOSTILE.map((text) => `markdown ${JSON.stringify(text)}`).join("\n"));
  await server.until(id, (status) => status.status === "idle");
  await page.locator('.message[data-role="agent"]').nth(5).waitFor();
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  assert.deepEqual(requests, []);
  const found = await page.evaluate(() => {
    const list = document.querySelector(".virtual");
    const links = [...list.querySelectorAll("a")].map((link) => link.protocol);
    const text = [...list.querySelectorAll(".md")].map((block) => block.textContent).join("\n");
    return { elements: list.querySelectorAll("script, iframe, style, meta, object, embed, form").length, links, text, handlers: list.querySelectorAll("[onerror], [onload], [onclick]").length };
  });
  assert.equal(found.elements, 0);
  assert.equal(found.handlers, 0);
  assert.ok(found.links.every((protocol) => /^https?:$/.test(protocol)));
  assert.match(found.text, /<script>window\.pwned = 'script'<\/script>/);
  assert.doesNotMatch(found.text, /[\u001b\u0007\u202e\u202c]/);
  noErrors(page);
});

test("markdown bombs and a message of 5 MB do not hold the page up", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "demo" });
  const page = await pages.open(session(id));
  const bombs = ["[".repeat(20_000), `${"> ".repeat(3_000)}deep`, "*a ".repeat(8_000), `${"- ".repeat(2_000)}x`, "`".repeat(9_999), "![[".repeat(5_000), "<".repeat(20_000), `|${"a|".repeat(4_000)}\n|${"-|".repeat(4_000)}`, "x\u0301".repeat(20_000)];
  await send(page, bombs.map((text) => `markdown ${JSON.stringify(text)}`).join("\n"));
  await server.until(id, (status) => status.status === "idle", 30_000);
  const echo = await server.session({ agent_profile_id: "echo" });
  await server.prompt(echo, "huge 5000000");
  await server.until(echo, (status) => status.status === "idle", 30_000);
  await page.goto(`${pages.address}/${session(echo)}`);
  await page.getByRole("button", { name: "Show more" }).waitFor();
  // The page answers within a moment.
  const took = await page.evaluate(() => new Promise((done) => { const at = performance.now(); setTimeout(() => done(performance.now() - at), 0); }));
  assert.ok(took < 1_000, `${took} ms`);
  assert.ok((await page.evaluate(() => document.body.textContent.length)) < 200_000);
  noErrors(page);
});

test("a permission shows what cannot be seen, and all of a long command", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "demo", title: "Push what is long" });
  const page = await pages.open(session(id));
  const long = `echo ${"a".repeat(3_000)} && rm -rf \u202e/ end`;
  await send(page, `push ${long}`);
  const command = card(page, "permission").locator("pre.command");
  await command.waitFor();
  const shown = await command.textContent();
  assert.ok(shown.includes("⟨U+202E⟩"), "the direction override is named");
  assert.ok(shown.endsWith("/ end"));
  const home = await pages.open("#/", { context: page.context() });
  const row = home.locator(".home-row", { hasText: "Push what is long" }).filter({ has: home.getByRole("link", { name: "Review" }) }).first();
  await row.waitFor();
  assert.equal(await row.getByRole("button", { name: "Allow once" }).count(), 0, "a row that cannot show all of it grants nothing");
  await server.call("POST", `/sessions/${id}/cancel`);
});

test("what cannot be seen is shown wherever a text of an agent is drawn, not only in messages", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "demo", title: "fix \u202egnp.exe" });
  const page = await pages.open(session(id));
  const update = { sessionUpdate: "tool_call", toolCallId: "call-bidi", title: "read \u202eterces\u202c", kind: "other", status: "completed", rawInput: {} };
  const commands = { sessionUpdate: "available_commands_update", availableCommands: [{ name: "de\u202eploy", description: "to\u0007 production" }] };
  await send(page, `update ${JSON.stringify(commands)}\nupdate ${JSON.stringify(update)}\npush ls`);
  await card(page, "permission").waitFor();
  await page.getByText("terces").first().waitFor();
  await page.locator(".composer textarea").fill("/");
  await page.getByRole("option").first().waitFor();
  const { text, attributes, title } = await page.evaluate(() => ({
    text: document.body.textContent,
    attributes: [...document.querySelectorAll("[title], [aria-label], [placeholder]")].map((node) => `${node.title} ${node.getAttribute("aria-label")} ${node.getAttribute("placeholder")}`).join("\n"),
    title: document.title,
  }));
  const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/;
  for (const shown of [text, attributes, title]) {
    assert.doesNotMatch(shown, UNSEEN);
    assert.ok(shown.includes("⟨U+202E⟩"), "and its name is there");
  }
  await server.call("POST", `/sessions/${id}/cancel`);
  noErrors(page);
});

test("a permission on the list: nothing answers while the rows move", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "demo", title: "guarded" });
  await server.prompt(id, "push ls -la");
  await server.until(id, (status) => status.status === "waiting");
  const page = await pages.open("#/");
  // Every moment in which the button is there and on is written down, with the time since the rows moved last.
  await page.evaluate(() => {
    window.early = [];
    window.on = 0;
    let moved = performance.now();
    let before = "";
    const look = () => {
      const key = [...document.querySelectorAll('[data-group="needs_you"] .home-row')].map((row) => row.querySelector("a").href).join();
      if (key !== before) [before, moved] = [key, performance.now()];
      const allow = [...document.querySelectorAll(".home-actions button")].find((button) => button.textContent === "Allow once");
      if (allow && !allow.disabled) {
        window.on += 1;
        // A frame of grace: what is looked at was drawn before.
        if (performance.now() - moved < 250) window.early.push(performance.now() - moved);
      }
      requestAnimationFrame(look);
    };
    look();
  });
  await page.waitForFunction(() => window.on > 3);
  const other = await server.session({ agent_profile_id: "demo", title: "pushes itself above" });
  await server.prompt(other, "push pwd");
  await server.until(other, (status) => status.status === "waiting");
  await page.waitForFunction(() => document.querySelectorAll('[data-group="needs_you"] .home-row').length >= 2);
  await page.waitForTimeout(500);
  assert.deepEqual(await page.evaluate(() => window.early), []);
  for (const one of [id, other]) await server.call("POST", `/sessions/${one}/cancel`);
  noErrors(page);
});
