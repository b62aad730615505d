// What was typed and not sent, per session: it survives a reload and a crash of the browser's page.
import { load, save } from "../lib/storage.ts";

const PREFIX = "piton.draft.";
const HISTORY_KEY = "piton.history";
const HISTORY_MAX = 100;
const ENTRY_CHARS_MAX = 4_000;

export function loadDraft(session: string): string {
  return load(PREFIX + session) ?? "";
}

/** False: there is no storage, and the draft is gone with the page. */
export function saveDraft(session: string, text: string): boolean {
  return save(PREFIX + session, text === "" ? null : text);
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
