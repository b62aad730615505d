// Dialogs that several screens open.
import { signal } from "@preact/signals";

export type NewSessionDefaults = { agent: string | null; folder: string | null; task: string | null };

export const newSessionDialog = signal<NewSessionDefaults | null>(null);

export function openNewSession(defaults: Partial<NewSessionDefaults> = {}): void {
  newSessionDialog.value = { agent: null, folder: null, task: null, ...defaults };
}
