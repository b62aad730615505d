// Going back in time: rewind and undo with real files, comparing, what the conversation shows of it.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { card, noErrors, session } from "./lib/page.mjs";
import { test } from "./lib/runner.mjs";

const idle = (status) => status.status === "idle" && status.last_outcome === "completed";

async function twoTurns(server, name) {
  const repo = await server.repository(name, { "a.txt": "one\n" });
  const id = await server.session({ agent_profile_id: "demo", working_dir: repo });
  for (const text of ["two", "three"]) {
    await server.prompt(id, `file a.txt ${text}\\n\nWrote ${text}`);
    await server.until(id, idle);
  }
  return { id, a: join(repo, "a.txt"), other: join(repo, "other.txt") };
}

test("timeline: a rewind restores files and folds away what it left behind, until it is undone", async ({ server, pages }) => {
  const { id, a } = await twoTurns(server, "rewound");
  const page = await pages.open(session(id, "timeline"));
  const turns = page.locator('.timeline-dot[data-kind="turn"]');
  await turns.nth(1).waitFor();
  await turns.first().click();
  await turns.nth(1).click();
  await page.locator('[data-compare="files"] [data-change="modified"]', { hasText: "a.txt" }).waitFor();
  // The scrubber moves the point that was chosen last; Home on the line goes to its beginning.
  await page.getByRole("slider", { name: "Point in time" }).press("End");
  await card(page, "timeline-compare").getByText(/^From #\d+ to #\d+$/).waitFor();
  await page.locator('.timeline-dot[aria-pressed="true"]').first().click();
  await page.locator('.timeline-dot[aria-pressed="true"]').first().click();
  await turns.nth(1).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Rewind here…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.locator('[data-plan] [data-change="modified"]', { hasText: "a.txt" }).waitFor();
  assert.equal(readFileSync(a, "utf8"), "three\n", "what would happen has not happened");
  await dialog.getByRole("button", { name: "Rewind", exact: true }).click();
  await dialog.waitFor({ state: "detached" });
  assert.equal(readFileSync(a, "utf8"), "two\n");
  await page.locator('.timeline-dot[data-kind="rewind"][data-lineage="2"]').waitFor();
  assert.equal(await page.locator('.timeline-dot[data-kind="turn"][data-abandoned]').count(), 1);

  await page.goto(`${pages.address}/${session(id)}`);
  // What the server puts together of it is the same as what came record by record.
  await page.reload();
  const fold = page.getByRole("button", { name: /left behind by a rewind/ });
  await fold.waitFor();
  await page.locator('[data-notice="lineage.started"]', { hasText: "Rewound" }).waitFor();
  assert.equal(await page.getByText("Wrote three").count(), 0);
  await page.getByText("Wrote two").first().waitFor();
  await fold.click();
  await page.locator(".abandoned").getByText("Wrote three").first().waitFor();

  await page.goto(`${pages.address}/${session(id, "timeline")}`);
  await page.getByRole("button", { name: "Undo the rewind…" }).click();
  await dialog.getByText("1 file will be restored").waitFor();
  await dialog.getByRole("button", { name: "Undo", exact: true }).click();
  await dialog.waitFor({ state: "detached" });
  assert.equal(readFileSync(a, "utf8"), "three\n");
  await page.goto(`${pages.address}/${session(id)}`);
  await page.locator('[data-notice="lineage.started"]', { hasText: "The rewind was undone" }).waitFor();
  await page.getByText("Wrote three").first().waitFor();
  noErrors(page);
});

test("timeline: a rewind overwrites what others changed, and cancels an open run, only when it is told to", async ({ server, pages }) => {
  const { id, a, other } = await twoTurns(server, "foreign");
  // A page that is open sees the rewind as it happens.
  const chat = await pages.open(session(id));
  await chat.getByText("Wrote three").first().waitFor();
  writeFileSync(other, "mine\n");
  await server.prompt(id, "wait 60000");
  await server.until(id, (status) => status.status === "running");
  const page = await pages.open(session(id, "timeline"));
  await page.locator('.timeline-dot[data-kind="turn"]').first().click();
  await page.getByRole("button", { name: "Rewind here…" }).click();
  const dialog = page.getByRole("dialog");
  const confirm = dialog.getByRole("button", { name: "Rewind", exact: true });
  await dialog.locator("[data-foreign]", { hasText: "other.txt" }).waitFor();
  assert.equal(await confirm.isDisabled(), true);
  await dialog.getByLabel("Overwrite these changes, too").check();
  assert.equal(await confirm.isDisabled(), true);
  await dialog.getByLabel("Cancel the run that is open first").check();
  await confirm.click();
  await dialog.waitFor({ state: "detached" });
  assert.equal(readFileSync(a, "utf8"), "one\n");
  assert.throws(() => readFileSync(other), { code: "ENOENT" });
  await chat.getByRole("button", { name: /left behind by a rewind/ }).waitFor();
  assert.equal(await chat.getByText("Wrote three").count(), 0);
  noErrors(page);
  noErrors(chat);
});
