// The package as its users get it: packed, installed into an empty Vite app and into a plain page, and run.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
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
import { createRun, gitTruth } from "${from("run")}";
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
  // Installed from the archive alone: what npm does, without asking a registry.
  const installed = join(folder, "app", "node_modules", "piton-client");
  await mkdir(installed, { recursive: true });
  await run("tar", ["xzf", join(folder, packed.filename), "-C", installed, "--strip-components=1"]);
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

  await context.test("an empty Vite app", async () => {
    const app = join(folder, "app");
    await writeFile(join(app, "package.json"), JSON.stringify({ name: "app", type: "module", dependencies: { "piton-client": "*" } }));
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
