// Every screen: accessible, usable by keyboard alone, and pictured for people to look at.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { DESKTOP, PHONE } from "./lib/browser.mjs";
import { card, noErrors, session } from "./lib/page.mjs";
import { test } from "./lib/runner.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Sessions in the states that pictures show. */
let made;
function scenes(server) {
  made ??= (async () => {
    const repo = await server.repository("api", { "tests/clock.rs": "use chrono::Local;\n\n#[test]\nfn midnight() {\n    let today = Local::now().date_naive();\n    assert_eq!(clock::today(), today);\n}\n", "README.md": "# api\n" });
    const story = await server.session({ agent_profile_id: "demo", title: "Fix the clock test", repo });
    await server.prompt(story, "story tests/clock.rs fails every night since the runners moved to Berlin. Find out why and fix it.");
    await server.until(story, (status) => status.status === "waiting");
    const cut = await server.session({ agent_profile_id: "echo", title: "Migrate billing", working_dir: repo });
    await server.prompt(cut, "say I begin with the schema.\ncrash");
    await server.until(cut, (status) => status.status.startsWith("interrupted"));
    await server.call("POST", `/sessions/${story}/shells`, { cols: 80, rows: 24 });
    const { task_id } = await server.call("POST", "/tasks", { title: "Two ways to round" });
    for (const agent_profile_id of ["demo", "second"]) {
      const id = await server.session({ agent_profile_id, title: "Round half up", repo, task_id });
      await server.prompt(id, "file round.rs rounded\\n");
      await server.until(id, (status) => status.status === "idle" && status.last_outcome === "completed");
    }
    const rewound = await server.session({ agent_profile_id: "demo", title: "Two attempts", working_dir: await server.repository("attempts", { "a.txt": "one\n" }) });
    for (const text of ["two", "three"]) {
      await server.prompt(rewound, `file a.txt ${text}\\n\nWrote ${text}.`);
      await server.until(rewound, (status) => status.status === "idle" && status.last_outcome === "completed");
    }
    await server.call("POST", `/sessions/${rewound}/rewind`, { turns: 1 });
    await server.prompt(rewound, "file b.txt other\\n");
    await server.until(rewound, (status) => status.status === "idle" && status.last_outcome === "completed");
    await server.call("POST", `/sessions/${rewound}/rewind`, { turns: 1 });
    const flow = { name: "release", goal: "Build, ask, publish", nodes: { plan: { set: { targets: ["linux", "macos", "windows"] } }, build: { command: ["echo", "{{ target }}"], map: { over: "{{ targets }}", as: "target" }, writes: "builds" }, notes: { template: "Notes", writes: "notes" }, approve: { human: { question: "Publish {{ builds | length }} builds?", options: ["publish", "again"] }, writes: "decision" }, publish: { template: "Published", writes: "result" } }, edges: ["plan -> build -> approve", "plan -> notes -> approve", { from: "approve", to: "publish", when: "decision == 'publish'" }, { from: "approve", to: "plan", when: "decision == 'again'", max: 3 }] };
    const { session_id: graph } = await server.call("POST", "/graphs/run", { graph: { piton: "graph/v1", ...flow }, working_dir: repo });
    await server.until(graph, (status) => status.status === "waiting");
    return { story, cut, task: task_id, rewound, graph };
  })();
  return made;
}

async function screens(server) {
  const { story, cut, task, rewound, graph } = await scenes(server);
  return {
    home: ["#/", "Needs you"],
    session: [session(story), "wants to run"],
    interrupted: [session(cut), "Interrupted"],
    changes: [session(story, "changes"), "Not staged"],
    files: [session(story, "files"), "README.md"],
    timeline: [session(rewound, "timeline"), "Undo the rewind"],
    rewound: [session(rewound), "left behind by a rewind"],
    graph: [session(graph), "The graph waits for a person"],
    terminal: [session(story, "terminal"), "Shell 1"],
    task: [`#/task/${task}`, "Keep this one"],
    settings: ["#/settings", "Check every log"],
    executors: ["#/settings/executors", "standalone"],
    demo: ["demo/browser-run", "A run in this page"],
    agents: ["#/settings/agents", "After a restart"],
    tokens: ["#/settings/tokens", "New token"],
    device: ["#/settings/device", "Colours"],
  };
}

async function serious(page) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return violations.filter(({ impact }) => impact === "serious" || impact === "critical").map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(" ")).slice(0, 4).join(", ")}`);
}

const LOOKS = [
  ["phone-light", PHONE, "light"],
  ["desktop-dark", DESKTOP, "dark"],
  // For people to look at; both layouts and both colours are checked already.
  ...(process.env["PITON_E2E_PICTURES"] ? [["phone-dark", PHONE, "dark"], ["desktop-light", DESKTOP, "light"]] : []),
];

test("axe: no serious finding on any screen, on a phone and a desktop, light and dark", async ({ server, pages }) => {
  const folder = process.env["PITON_E2E_PICTURES"];
  if (folder) mkdirSync(folder, { recursive: true });
  const found = [];
  const all = await screens(server);
  for (const [name, viewport, colorScheme] of LOOKS) {
    // The policy refuses the checker's own code; what it checks is the same.
    const page = await pages.open("#/", { context: await pages.context({ viewport, colorScheme, bypassCSP: true }) });
    for (const [screen, [path, text]] of Object.entries(all)) {
      // The forms of the settings are the same on a phone, below each other.
      if (!folder && viewport === PHONE && ["agents", "tokens", "device", "files", "executors"].includes(screen)) continue;
      // A phone shows it where it is narrowest.
      if (!folder && viewport === DESKTOP && screen === "rewound") continue;
      await page.goto(`${pages.address}/${path}`);
      await page.getByText(text).locator("visible=true").first().waitFor();
      for (const finding of await serious(page)) found.push(`${screen} ${name}: ${finding}`);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (wide > 0) found.push(`${screen} ${name}: ${wide} px wider than the screen`);
      if (folder) await page.screenshot({ path: `${folder}/${screen}-${name}.png` });
    }
    await page.goto(`${pages.address}/#/`);
    await page.getByRole("button", { name: "New", exact: true }).click();
    await page.getByRole("dialog").waitFor();
    for (const finding of await serious(page)) found.push(`new ${name}: ${finding}`);
    if (folder) await page.screenshot({ path: `${folder}/new-${name}.png` });
  }
  const out = await pages.open("#/", { context: await pages.context({ isSignedIn: false, viewport: PHONE, bypassCSP: true }) });
  await card(out, "signed-out").waitFor();
  found.push(...(await serious(out)));
  if (folder) await out.screenshot({ path: `${folder}/sign-in-phone-light.png` });
  assert.deepEqual(found, []);
});

test("touch targets are at least 44 px on a phone", async ({ server, pages }) => {
  const { story } = await scenes(server);
  const page = await pages.open(session(story), { viewport: PHONE, isMobile: true });
  await card(page, "permission").waitFor();
  const small = await page.evaluate(() =>
    [...document.querySelectorAll("button, .tab, .card a")]
      .filter((element) => element.checkVisibility())
      .map((element) => ({ name: element.getAttribute("aria-label") ?? element.textContent, box: element.getBoundingClientRect() }))
      .filter(({ box }) => box.height > 0 && box.height < 43.5)
      .map(({ name, box }) => `${name}: ${Math.round(box.height)} px`),
  );
  assert.deepEqual(small, []);
});

/** Tabs until the wanted element has the focus; every stop must be visible. */
async function tabTo(page, what, wanted, key = "Tab", max = 400) {
  for (let n = 0; n < max; n += 1) {
    const is = await page.evaluate((selector) => {
      const active = document.activeElement;
      const style = active ? getComputedStyle(active) : null;
      const parent = active?.closest(".composer, .agent-choice");
      // Nothing has the focus when what had it is gone, and at the end of the page.
      const isVisible = active === document.body || (style && (style.outlineStyle !== "none" || parent));
      return { found: active?.matches(selector) ?? false, isVisible, what: active?.outerHTML.slice(0, 120) };
    }, wanted);
    if (is.found) return;
    if (n > 0) assert.ok(is.isVisible, `the focus is not visible on ${is.what}`);
    await page.keyboard.press(key);
  }
  assert.fail(`${what} cannot be reached by ${key}`);
}

test("keyboard alone: prompt, permission, resume, diff", async ({ server, pages }) => {
  const repo = await server.repository("keys", { "a.txt": "one\n" });
  const id = await server.session({ agent_profile_id: "demo", title: "Keyboard", working_dir: repo });
  const page = await pages.open(session(id));
  await page.locator(".composer textarea").waitFor();
  await tabTo(page, "the prompt box", ".composer textarea");
  await page.keyboard.type("file a.txt two\\n");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("push git push");
  await page.keyboard.press("Enter");
  await card(page, "permission").waitFor();
  await tabTo(page, "the permission's button", '[data-card="permission"] .card-actions button[data-look="primary"]', "Shift+Tab");
  // A key that was meant for something else does not allow anything: it counts after a moment.
  await page.waitForTimeout(350);
  await page.keyboard.press("Enter");
  await page.getByText("allowed", { exact: true }).waitFor();
  await tabTo(page, "the tab Changes", '.tab[href$="/changes"]', "Shift+Tab");
  await page.keyboard.press("Enter");
  await page.locator('.diff tr[data-kind="add"]').waitFor();
  await tabTo(page, "a line of the diff", ".diff-pick");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  const other = await server.session({ agent_profile_id: "echo", title: "Keyboard resume" });
  await server.prompt(other, "say hello\ncrash");
  await server.until(other, (status) => status.status.startsWith("interrupted"));
  await page.goto(`${pages.address}/${session(other)}`);
  await card(page, "interrupted").waitFor();
  await tabTo(page, "the way past the list", ".skip-link");
  await page.keyboard.press("Enter");
  await tabTo(page, "Resume", '[data-card="interrupted"] .card-actions button');
  await page.keyboard.press("Enter");
  await server.until(other, (status) => !status.status.startsWith("interrupted"));
  noErrors(page);
});
