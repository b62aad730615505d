// What was typed and not sent, per session: it survives a reload and a crash of the browser's page.
import { signal } from "@preact/signals";
import { load, save } from "../lib/storage.ts";

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
