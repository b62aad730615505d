// One clock for all relative times: it ticks once a second while the page can be seen.
import { signal } from "@preact/signals";

export const now = signal(Date.now());

let timer: ReturnType<typeof setInterval> | undefined;

function tick(): void {
  now.value = Date.now();
}

function follow(): void {
  clearInterval(timer);
  if (document.visibilityState === "hidden") return;
  tick();
  timer = setInterval(tick, 1000);
}

document.addEventListener("visibilitychange", follow);
follow();
