// Whether the server has another build of this app than the one that runs here: after an upgrade under the page.
import { effect, signal } from "@preact/signals";
import { homeConnection } from "./home.ts";

export const isOutdated = signal(false);

const SCRIPT = /\/assets\/index-[\w-]+\.js/;

async function check(): Promise<void> {
  const mine = [...document.scripts].map((script) => SCRIPT.exec(script.src)?.[0]).find(Boolean);
  if (!mine) return;
  try {
    const answer = await fetch("/", { cache: "no-store" });
    const theirs = answer.ok ? SCRIPT.exec(await answer.text())?.[0] : undefined;
    if (theirs) isOutdated.value = theirs !== mine;
  } catch {
    // Asked again with the next connection.
  }
}

/** A server that was upgraded was restarted: the page notices it by its lost connection. */
export function followVersion(): () => void {
  let wasLost = false;
  return effect(() => {
    const { phase } = homeConnection.value;
    if (phase === "live" && wasLost) void check();
    wasLost = phase !== "live" && (wasLost || phase === "reconnecting");
  });
}
