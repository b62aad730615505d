// What tests do with pages again and again.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { DESKTOP, PHONE } from "./browser.mjs";

export const session = (id, tab) => `#/s/${id}${tab ? `/${tab}` : ""}`;
export const card = (page, name) => page.locator(`[data-card="${name}"]`);

export async function send(page, text) {
  const box = page.locator(".composer textarea");
  await box.fill(text);
  await box.press("Enter");
}

/** The answers of agents on the page, as text. */
export function answers(page) {
  return page.locator('.message[data-role="agent"] .md').allTextContents();
}

/** The answers in the log, put together from their pieces. */
export function answersInLog(records) {
  const texts = new Map();
  for (const record of records) {
    if (record.kind !== "message.delta" || record.channel === "thought") continue;
    texts.set(record.message_id, (record.offset === 0 ? "" : (texts.get(record.message_id) ?? "")) + record.text);
  }
  return [...texts.values()];
}

export const squeeze = (text) => text.replace(/\s+/g, " ").trim();

/** The page and the log say the same. */
export async function sameAsLog(server, page, id) {
  const inLog = answersInLog(await server.records(id)).map(squeeze);
  const onPage = (await answers(page)).map(squeeze);
  assert.deepEqual(onPage, inLog);
}

/** For people to look at: on a phone and a desktop, in the dark. Only with PITON_E2E_PICTURES, which names a folder. */
export async function picture(page, name) {
  const folder = process.env["PITON_E2E_PICTURES"];
  if (!folder) return;
  mkdirSync(folder, { recursive: true });
  const before = page.viewportSize();
  await page.emulateMedia({ colorScheme: "dark" });
  for (const [place, viewport] of [["phone", PHONE], ["desktop", DESKTOP]]) {
    await page.setViewportSize(viewport);
    await page.waitForTimeout(150);
    await page.screenshot({ path: `${folder}/${name}-${place}-dark.png` });
  }
  await page.emulateMedia({ colorScheme: null });
  await page.setViewportSize(before);
}

export function noErrors(page) {
  assert.deepEqual(page.errors, []);
}
