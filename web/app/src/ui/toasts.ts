// Short messages about what just happened. Screen readers hear them too.
import { signal } from "@preact/signals";
import { isPitonError, ProblemError } from "piton-client";

export type Toast = { id: number; tone: "normal" | "error"; text: string; hint: string | null };

const SHOWN_MS = 8_000;
const TOASTS_MAX = 4;
let lastId = 0;

export const toasts = signal<readonly Toast[]>([]);

export function dismissToast(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}

export function say(text: string, tone: Toast["tone"] = "normal", hint: string | null = null): void {
  lastId += 1;
  const id = lastId;
  toasts.value = [...toasts.value.filter((toast) => toast.text !== text), { id, tone, text, hint }].slice(-TOASTS_MAX);
  setTimeout(() => dismissToast(id), tone === "error" ? SHOWN_MS * 2 : SHOWN_MS);
}

/** The sentence of an error, for people. */
export function sentenceOf(error: unknown): string {
  if (isPitonError(error)) return error.message;
  return error instanceof Error ? error.message : String(error);
}

export function report(error: unknown): void {
  // The sign-in page says this already.
  if (error instanceof ProblemError && error.isSignedOut) return;
  if (!isPitonError(error)) console.error(error);
  say(sentenceOf(error), "error", error instanceof ProblemError ? error.hint : null);
}
