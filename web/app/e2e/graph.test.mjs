// Graphs: drawn live, answered, resumed with another value, gone back to and forked from a checkpoint.
import assert from "node:assert/strict";
import { card, noErrors, session } from "./lib/page.mjs";
import { test } from "./lib/runner.mjs";

const run = async (server, graph) => (await server.call("POST", "/graphs/run", { graph: { piton: "graph/v1", ...graph }, working_dir: server.workdir("graphs") })).session_id;
const node = (page, name, state) => page.locator(`.graph-row[data-name="${name}"][data-state="${state}"]`);

const APPROVAL = {
  name: "approval",
  goal: "A person decides",
  nodes: {
    draft: { template: "A text", writes: "draft" },
    approve: { human: { question: "Send this?", options: ["send", "revise"] }, writes: "decision" },
    send: { template: "Sent", writes: "result" },
  },
  edges: ["draft -> approve", { from: "approve", to: "send", when: "decision == 'send'" }, { from: "approve", to: "draft", when: "decision == 'revise'", max: 3 }],
};

test("graph: a person answers in the page, twice, and the drawing follows", async ({ server, pages }) => {
  const id = await run(server, APPROVAL);
  const page = await pages.open(session(id));
  await node(page, "approve", "waiting").waitFor();
  await node(page, "draft", "completed").waitFor();
  await node(page, "send", "pending").waitFor();
  await page.locator('.graph-node[data-node="approve"][data-state="waiting"]').waitFor();
  assert.equal(await page.locator(".composer").count(), 0, "a graph takes no prompts");
  await card(page, "graph-question").getByRole("button", { name: "revise" }).click();
  await node(page, "approve", "waiting").getByText("visit 2").waitFor();
  // Arrows move along the nodes; Enter says more of one.
  await page.locator(".graph-row").first().focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await card(page, "graph-node").waitFor();
  await card(page, "graph-question").getByRole("button", { name: "send" }).click();
  await node(page, "send", "completed").waitFor();
  await card(page, "graph-question").waitFor({ state: "detached" });
  const { nodes } = await server.call("GET", `/sessions/${id}/graph`);
  const shown = await page.locator(".graph-row").evaluateAll((rows) => rows.map((row) => [row.dataset.name, row.dataset.state]));
  assert.deepEqual(shown, nodes.map((one) => [one.node, one.state]));
  noErrors(page);
});

const FLAKY = {
  name: "flaky",
  inputs: { n: { type: "integer", required: false } },
  nodes: {
    split: { set: { parts: ["a", "b"] } },
    publish: { command: ["sh", "-c", "grep -q '\"n\":[0-9]' || { echo 'n is not set' >&2; exit 1; }; echo ok"], reads: ["n", "parts"], writes: "published" },
    report: { template: "{{ parts | length }} parts", writes: "report" },
  },
  edges: ["split -> publish -> report"],
};

test("graph: a failed node is resumed with a value, an older checkpoint with another, and forked", async ({ server, pages }) => {
  const id = await run(server, FLAKY);
  const page = await pages.open(session(id));
  await card(page, "graph-failed").getByText("n is not set").waitFor();
  await node(page, "publish", "failed").waitFor();
  await card(page, "graph-failed").getByRole("button", { name: "Resume…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("n", { exact: true }).fill("7");
  await dialog.getByRole("button", { name: "Resume with n set" }).click();
  await node(page, "report", "completed").waitFor();
  await node(page, "publish", "completed").getByText("attempt 2").waitFor();

  await page.goto(`${pages.address}/${session(id, "timeline")}`);
  const before = page.locator('.timeline-dot[data-kind="checkpoint"][title="Checkpoint before publish"]');
  await before.first().click();
  await page.locator('[data-compare="memory"] [data-key="published"]', { hasText: "ok" }).waitFor();
  await page.getByRole("button", { name: "Resume from here…" }).click();
  await dialog.getByLabel("parts", { exact: true }).fill('["a", "b", "c"]');
  await dialog.getByLabel("n", { exact: true }).fill("8");
  await dialog.getByRole("button", { name: "Resume with 2 values set" }).click();
  await dialog.waitFor({ state: "detached" });
  await page.locator('.timeline-dot[data-lineage="2"][data-kind="end"]').waitFor();
  assert.ok((await page.locator(".timeline-dot[data-abandoned]").count()) > 0);
  const memory = async (session) => (await server.call("GET", `/sessions/${session}/graph?include_memory=true`)).memory;
  assert.deepEqual([(await memory(id)).report, (await memory(id)).n], ["3 parts", 8]);

  // The first lineage's checkpoint, which is chosen still, can begin another session, too.
  await page.getByRole("button", { name: "Fork from here" }).click();
  await card(page, "graph-stopped").waitFor();
  const forked = decodeURIComponent(/#\/s\/([^/?]+)/.exec(page.url())?.[1] ?? "");
  assert.notEqual(forked, id);
  await node(page, "split", "completed").waitFor();
  await node(page, "publish", "pending").waitFor();
  assert.equal((await memory(forked)).report, undefined);
  noErrors(page);
});
