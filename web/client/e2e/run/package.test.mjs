// The package as its users get it: packed, installed into an empty Vite app and into a plain page, and run.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { access, cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { openPage, press, Profile, waitFor } from "./browser.mjs";
import { TestServer } from "./server.mjs";

const run = promisify(execFile);
const CLIENT = fileURLToPath(new URL("../../", import.meta.url));
const MODULES = fileURLToPath(new URL("../../../node_modules/", import.meta.url));
let folder;
let profile;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "piton-package-"));
  profile = new Profile();
  await profile.open();
});
after(async () => {
  await profile.remove();
  await rm(folder, { recursive: true, force: true });
});

const MAIN = (from) => `
import { createRun } from "${from("run")}";
import { gitTruth } from "${from("run/git")}";
import { defineResumeBanner } from "${from("run/banner")}";
import { openAiStream } from "${from("run/openai")}";
const chat = new URLSearchParams(location.search).get("chat");
const post = async (path, body) => (await fetch(path, { method: "POST", body: JSON.stringify({ chat, ...body }) })).json();
window.run = createRun({
  chatId: chat, provider: "p", model: "m",
  stream: openAiStream({ baseUrl: location.origin + "/v1", headers: { "x-chat": chat } }),
  sandbox: {
    identity: () => ({ sandboxSessionId: "box", activeBranch: "main", repoId: null }),
    truth: gitTruth((command) => post("/exec", { command })),
  },
  tools: { append: { description: "Adds a line", kind: "change", run: ({ line }) => post("/append", { line }) } },
});
defineResumeBanner();
document.querySelector("piton-resume-banner").recovery = run.recovery;
window.opened = run.open();
`;
const HTML = (script) => `<!doctype html><title>app</title><piton-resume-banner></piton-resume-banner><script type="module" src="${script}"></script>`;

/** What the guide leaves to the app, around its loop. */
const LOOP_BEFORE = `
import { browserStorage } from "piton-client/run";
import { gitTruth } from "piton-client/run/git";
import { openAiStream } from "piton-client/run/openai";
const [chatId, provider, model] = ["chat-1", "p", "m"];
const post = async (path, body) => (await fetch(path, { method: "POST", body: JSON.stringify(body) })).json();
const sandbox = {
  identity: () => ({ sandboxSessionId: "box", activeBranch: "main", repoId: null }),
  truth: gitTruth((command) => post("/exec", { command })),
};
const storage = browserStorage();
const conversation = { load: () => storage.loadConversation(chatId), save: (messages) => storage.saveConversation(chatId, messages) };
const stream = openAiStream({ baseUrl: "/v1" });
const tools = [{ name: "append", description: "Adds a line", parameters: { type: "object" } }];
async function ask(messages, { model, signal, onText }) {
  const answer = { role: "assistant", content: "" };
  for await (const part of stream({ messages, tools, provider, model, signal })) {
    if (part.type === "text") {
      answer.content += part.text;
      onText(part.text);
    } else if (part.type === "tool-call") (answer.toolCalls ??= []).push(part.call);
  }
  return answer;
}
const runTools = (calls) => Promise.all(calls.map(async (call) => {
  const content = JSON.stringify(await post("/append", call.arguments));
  return { role: "tool", content, toolCallId: call.id, toolName: call.name };
}));
`;
const LOOP_BEHIND = `
const root = document.querySelector("#root");
root.innerHTML = '<form><input name="prompt"><button>Send</button></form><p></p><div></div>';
const show = async () => (root.querySelector("div").textContent = (await conversation.load()).map(({ content }) => content).join(" | "));
root.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  void loop.start(new FormData(event.target).get("prompt"));
});
const offer = () => {
  const { status, sentence } = loop.recovery.getState();
  root.querySelector("p").innerHTML = status === "offered" ? sentence + " <button>Resume</button>" : "";
  root.querySelector("p button")?.addEventListener("click", () => void loop.recovery.resume().then(show));
};
loop.recovery.subscribe(offer);
offer();
await show();
`;

/** Sends a prompt, closes the page in the middle, comes back and resumes. */
async function use(server, path) {
  const chat = "chat";
  await server.makeBox(chat);
  server.holdMs = 60_000;
  const url = `${server.address}${path}?chat=${chat}`;
  const { page } = await openPage(profile.browser, url);
  await page.evaluate(async () => {
    await window.opened;
    void run.send("tools");
  });
  for (const end = Date.now() + 20_000; (await server.effects(chat)).length < 1; await new Promise((resolve) => setTimeout(resolve, 20))) {
    assert.ok(Date.now() < end, "the tool did not run");
  }
  await page.close({ runBeforeUnload: false });
  server.holdMs = 0;
  const { page: back } = await openPage(profile.browser, url);
  await press(back, "Resume");
  await waitFor(back, () => run.getState().status === "completed");
  assert.deepEqual(await server.effects(chat), ["one"]);
  await back.close();
}

test("packed, installed, and run in Chromium", { timeout: 120_000 }, async (context) => {
  const { stdout } = await run("npm", ["pack", "--json", "--pack-destination", folder], { cwd: CLIENT });
  const [packed] = JSON.parse(stdout.slice(stdout.indexOf("[")));
  const files = packed.files.map((file) => file.path);
  for (const wanted of ["run/index.js", "run/index.d.ts", "run/react.js", "run/ai-sdk.js", "run/openai.js", "run/banner.js", "run/piton.js"]) {
    assert.ok(files.includes(`dist/${wanted}`), `${wanted} is in the package`);
  }
  assert.ok(!files.some((file) => /test|e2e|^src/.test(file)), files.join("\n"));
  // As a stranger installs it; it needs no other package, so no registry is asked.
  const app = join(folder, "app");
  await mkdir(app);
  await writeFile(join(app, "package.json"), JSON.stringify({ name: "app", private: true, type: "module" }));
  await run("npm", ["install", "--offline", "--no-audit", "--no-fund", `../${packed.filename}`], { cwd: app });
  const installed = join(app, "node_modules", "piton-client");
  const { dependencies = {} } = JSON.parse(await readFile(join(installed, "package.json"), "utf8"));
  assert.deepEqual(dependencies, {}, "it needs no other package");

  await context.test("a plain page", async () => {
    await mkdir(join(folder, "plain"));
    await cp(join(installed, "dist"), join(folder, "plain", "piton-client"), { recursive: true });
    await writeFile(join(folder, "plain", "main.js"), MAIN((name) => `./piton-client/${name === "run" ? "run/index" : name}.js`));
    await writeFile(join(folder, "plain", "index.html"), HTML("./main.js"));
    const server = await TestServer.start(join(folder, "plain"));
    await use(server, "/extra/index.html");
    await server.stop();
  });

  await context.test("the README has no dead link", async () => {
    const readme = await readFile(join(installed, "README.md"), "utf8");
    const links = [...readme.matchAll(/\]\(([^)#]+)[^)]*\)/g)].map((found) => found[1]).filter((link) => !/^https?:/.test(link));
    for (const link of links) await access(join(installed, link));
  });

  await context.test("its types, from outside", async () => {
    await cp(join(CLIENT, "e2e/run/stranger.ts"), join(app, "stranger.ts"));
    await writeFile(join(app, "ai.ts"), 'import { aiSdkStream } from "piton-client/run/ai-sdk";\nexport const stream = aiSdkStream({ model: () => "some/model" });\n');
    await symlink(join(MODULES, "ai"), join(app, "node_modules", "ai"));
    // The declarations of the SDK need others that an app may not have; those of this package are looked at.
    for (const [file, module, ...more] of [["stranger.ts", "bundler"], ["stranger.ts", "nodenext"], ["ai.ts", "bundler", "--skipLibCheck"]]) {
      const flags = ["--noEmit", "--strict", "--target", "es2022", "--lib", "es2022,dom,dom.iterable,dom.asynciterable", "--module", module === "bundler" ? "esnext" : module, "--moduleResolution", module, ...more];
      const { stdout: found } = await run("node", [join(MODULES, "typescript/bin/tsc"), ...flags, file], { cwd: app }).catch((error) => error);
      assert.equal(found, "", `${file}, ${module}: ${found}`);
    }
  });

  await context.test("the page of the guide, as it is written there", async () => {
    const guide = await readFile(join(CLIENT, "../../docs/guides/browser-runs.md"), "utf8");
    await writeFile(join(app, "index.html"), /```html\n(<!doctype html>[^]*?)```/.exec(guide)[1]);
    const server = await TestServer.start(app);
    await server.makeBox("chat");
    server.holdMs = 60_000;
    const ask = async (page) => {
      await page.type("input[name=prompt]", "tools");
      await page.click("button");
    };
    const { page } = await openPage(profile.browser, `${server.address}/extra/index.html`);
    await ask(page);
    for (const end = Date.now() + 20_000; (await server.effects("chat")).length < 1; await new Promise((resolve) => setTimeout(resolve, 20))) {
      assert.ok(Date.now() < end, "the tool did not run");
    }
    await page.close({ runBeforeUnload: false });
    server.holdMs = 0;
    const { page: back } = await openPage(profile.browser, `${server.address}/extra/index.html`);
    await press(back, "Resume");
    await waitFor(back, () => document.querySelector("#answer").textContent.includes("assistant: The line is there."));
    assert.deepEqual(await server.effects("chat"), ["one"]);
    await back.close();
    await server.stop();
  });

  await context.test("an empty Vite app with React, and a loop of its own", async () => {
    const own = join(folder, "react");
    await mkdir(join(own, "node_modules"), { recursive: true });
    await cp(installed, join(own, "node_modules", "piton-client"), { recursive: true });
    for (const name of ["vite", "react", "react-dom", "scheduler"]) await symlink(join(MODULES, name), join(own, "node_modules", name));
    await writeFile(join(own, "package.json"), JSON.stringify({ name: "app", type: "module" }));
    await writeFile(join(own, "index.html"), '<!doctype html><title>app</title><div id="root"></div><script type="module" src="/main.js"></script>');
    await cp(join(CLIENT, "e2e/run/react-page.js"), join(own, "main.js"));
    await run("node", [join(MODULES, "vite/bin/vite.js"), "build", "--base=/extra/", "--logLevel=error"], { cwd: own });
    const server = await TestServer.start(join(own, "dist"));
    for (const kind of ["hook", "loop"]) {
      await server.makeBox(kind);
      server.stopAtWord = 20;
      server.wordMs = 2;
      const url = `${server.address}/extra/index.html?chat=${kind}&kind=${kind}`;
      const { page } = await openPage(profile.browser, url);
      await waitFor(page, () => document.querySelector("#send"));
      await page.click("#send");
      await waitFor(page, () => document.querySelector("#text").textContent.endsWith("w19 "));
      await waitFor(page, (key) => localStorage.getItem(key)?.includes("w19 "), `run_checkpoint_${kind}`);
      await page.close({ runBeforeUnload: false });
      server.stopAtWord = Infinity;
      const { page: back } = await openPage(profile.browser, url);
      await waitFor(back, () => document.querySelector("#resume"));
      await back.click("#resume");
      await waitFor(back, () => document.querySelector("#last").textContent.endsWith("w149 "));
      const summary = server.chat(kind).requests.at(-1).messages.at(-1).content;
      assert.match(summary, /> w0 .*w19 \n/);
      assert.equal(await back.evaluate(() => document.querySelector("#last").textContent.startsWith("w20 ")), true);
      await back.close();
    }
    await server.stop();
  });

  await context.test("React, the AI SDK and a loop of one's own, as the guide has them, in an empty Vite app", async () => {
    const guide = await readFile(join(CLIENT, "../../docs/guides/browser-runs.md"), "utf8");
    const codeBelow = (heading, kind) => new RegExp(`## ${heading}\\n[^]*?\`\`\`${kind}\\n([^]*?)\`\`\``).exec(guide)[1];
    const own = join(folder, "guide");
    await mkdir(join(own, "node_modules", "@ai-sdk"), { recursive: true });
    await cp(installed, join(own, "node_modules", "piton-client"), { recursive: true });
    for (const name of ["vite", "react", "react-dom", "scheduler"]) await symlink(join(MODULES, name), join(own, "node_modules", name));
    // The newest version that the guide names.
    await symlink(join(MODULES, "ai-7"), join(own, "node_modules", "ai"));
    await symlink(join(MODULES, "ai-7-openai-compatible"), join(own, "node_modules", "@ai-sdk", "openai-compatible"));
    const react = codeBelow("React", "jsx");
    const stream = '  stream: openAiStream({ baseUrl: "/v1" }),\n';
    assert.ok(react.includes(stream));
    const apps = {
      react,
      sdk: `${codeBelow("Vercel AI SDK", "js")}\n${react.replace(stream, "  stream,\n")}`,
      loop: `${LOOP_BEFORE}\n${codeBelow("A loop of your own", "js")}\n${LOOP_BEHIND}`,
    };
    await writeFile(join(own, "package.json"), JSON.stringify({ name: "app", type: "module" }));
    await writeFile(join(own, "vite.config.js"), `export default { base: "/extra/", oxc: { jsx: { runtime: "automatic" } }, build: { target: "es2022", rollupOptions: { input: ${JSON.stringify(Object.keys(apps).map((name) => `${name}.html`))} } } };`);
    for (const [name, code] of Object.entries(apps)) {
      await writeFile(join(own, `${name}.jsx`), code);
      await writeFile(join(own, `${name}.html`), `<!doctype html><title>${name}</title><div id="root"></div><script type="module" src="/${name}.jsx"></script>`);
    }
    await run("node", [join(MODULES, "vite/bin/vite.js"), "build", "--logLevel=error"], { cwd: own });
    for (const name of Object.keys(apps)) {
      // Each has its own server: they share the chat's name, not its origin.
      const server = await TestServer.start(join(own, "dist"));
      await server.makeBox("chat");
      server.holdMs = 60_000;
      const { page } = await openPage(profile.browser, `${server.address}/extra/${name}.html`);
      await waitFor(page, () => document.querySelector("input[name=prompt]"));
      await page.type("input[name=prompt]", "tools");
      await page.click("button");
      for (const end = Date.now() + 20_000; (await server.effects("chat")).length < 1; await new Promise((resolve) => setTimeout(resolve, 20))) {
        assert.ok(Date.now() < end, `${name}: the tool did not run`);
      }
      await page.close({ runBeforeUnload: false });
      server.holdMs = 0;
      const { page: back } = await openPage(profile.browser, `${server.address}/extra/${name}.html`);
      await waitFor(back, () => document.body.textContent.includes("Resume where you left off?"));
      await back.evaluate(() => [...document.querySelectorAll("button")].find((button) => button.textContent === "Resume").click());
      await waitFor(back, () => document.body.textContent.includes("The line is there."));
      assert.deepEqual(await server.effects("chat"), ["one"], name);
      const { messages } = server.chat("chat").requests.at(-1);
      assert.match(messages.at(-1).content, /- append with line = "one"[^]* M work\.txt|M work\.txt[^]*- append with line = "one"/, name);
      // The conversation is kept: a third visit shows it.
      await back.reload();
      await waitFor(back, () => document.body.textContent.includes("The line is there."));
      await back.close();
      await server.stop();
    }
  });

  await context.test("an empty Vite app", async () => {
    await writeFile(join(app, "index.html"), HTML("/main.js"));
    await writeFile(join(app, "main.js"), MAIN((name) => `piton-client/${name}`));
    await symlink(join(MODULES, "vite"), join(app, "node_modules", "vite"));
    await run("node", [join(MODULES, "vite/bin/vite.js"), "build", "--base=/extra/", "--logLevel=error"], { cwd: app });
    assert.ok((await readdir(join(app, "dist", "assets"))).length > 0);
    const server = await TestServer.start(join(app, "dist"));
    await use(server, "/extra/index.html");
    await server.stop();
  });
});
