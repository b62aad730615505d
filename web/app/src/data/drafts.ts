// What was typed and not sent, per session: it survives a reload and a crash of the browser's page.
import { signal } from "@preact/signals";
import type { PromptContent } from "piton-client";
import { load, save } from "../lib/storage.ts";
import { loadImages, saveImages } from "./images.ts";
import { imagesOf, wordsOf } from "./prompt.ts";

const PREFIX = "piton.draft.";
const HISTORY_KEY = "piton.history";
const HISTORY_MAX = 100;
const ENTRY_CHARS_MAX = 4_000;

/** The last draft could not be kept. */
export const isDraftLost = signal(false);

export function loadDraft(session: string): string {
  return load(PREFIX + session) ?? "";
}

export function saveDraft(session: string, text: string): void {
  isDraftLost.value = !save(PREFIX + session, text === "" ? null : text);
}

/** Counts the drafts that came from elsewhere than the prompt box, which reads its own again then. */
export const draftVersion = signal(0);

/** Puts a prompt back into the prompt box, before what was typed there meanwhile. */
export async function editAgain(session: string, content: PromptContent): Promise<void> {
  saveDraft(session, [wordsOf(content), loadDraft(session)].filter((part) => part.trim() !== "").join("\n\n"));
  await saveImages(session, [...imagesOf(content), ...(await loadImages(session))]);
  draftVersion.value += 1;
}

/** Prompts that were sent from this browser, newest last. */
export function promptHistory(): string[] {
  try {
    const stored: unknown = JSON.parse(load(HISTORY_KEY) ?? "[]");
    return Array.isArray(stored) ? stored.filter((entry): entry is string => typeof entry === "string") : [];
  } catch {
    return [];
  }
}

export function remember(text: string): void {
  if (text.trim() === "" || text.length > ENTRY_CHARS_MAX) return;
  const rest = promptHistory().filter((entry) => entry !== text);
  save(HISTORY_KEY, JSON.stringify([...rest, text].slice(-HISTORY_MAX)));
}
