// What a person chose for this browser.
import { effect, signal } from "@preact/signals";
import { load, save } from "../lib/storage.ts";

export type Theme = "system" | "light" | "dark";

const stored = load("piton.theme");
export const theme = signal<Theme>(stored === "light" || stored === "dark" ? stored : "system");

effect(() => {
  if (theme.value === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.value;
  save("piton.theme", theme.value === "system" ? null : theme.value);
});

export const wantsNotifications = signal(load("piton.notify") === "1");

effect(() => {
  save("piton.notify", wantsNotifications.value ? "1" : null);
});

export const LAST_AGENT_KEY = "piton.agent";
