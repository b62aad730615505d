// Routes live behind the `#`, so that one embedded page serves them all and no path of the API is taken.
import { signal } from "@preact/signals";

export type SessionTab = "chat" | "changes" | "files" | "terminal" | "timeline";
export const SESSION_TABS: readonly SessionTab[] = ["chat", "changes", "files", "terminal", "timeline"];

export type Route =
  | { screen: "home" }
  | { screen: "session"; id: string; tab: SessionTab }
  | { screen: "task"; id: string }
  | { screen: "settings"; section: string };

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function parseRoute(hash: string): Route {
  const parts = hash.replace(/^#\/?/, "").split("?")[0]?.split("/").filter(Boolean).map(decode) ?? [];
  const [first, second, third] = parts;
  if (first === "s" && second) {
    const tab = SESSION_TABS.find((known) => known === third) ?? "chat";
    return { screen: "session", id: second, tab };
  }
  if (first === "task" && second) return { screen: "task", id: second };
  if (first === "settings") return { screen: "settings", section: second ?? "health" };
  return { screen: "home" };
}

export const route = signal<Route>(parseRoute(location.hash));

addEventListener("hashchange", () => {
  route.value = parseRoute(location.hash);
});

export function sessionPath(id: string, tab: SessionTab = "chat"): string {
  const base = `#/s/${encodeURIComponent(id)}`;
  return tab === "chat" ? base : `${base}/${tab}`;
}

export function go(path: string): void {
  location.hash = path;
}
