// Notifications when a session waits or ends, if the user allows them. Only from a page that is not looked at.
import type { SessionChange } from "piton-client";
import { sessionPath } from "../lib/router.ts";
import { visible } from "../lib/text.ts";
import { agentName } from "./agents.ts";
import { listStore } from "./home.ts";
import { wantsNotifications } from "./preferences.ts";
import { isInterrupted, titleOf } from "./states.ts";

export type NotificationSupport = "allowed" | "ask" | "denied" | "insecure" | "missing";

export function notificationSupport(): NotificationSupport {
  if (!isSecureContext) return "insecure";
  if (typeof Notification === "undefined") return "missing";
  if (Notification.permission === "granted") return "allowed";
  return Notification.permission === "denied" ? "denied" : "ask";
}

/** Null: nothing to say. */
export function notificationFor({ before, after }: SessionChange): string | null {
  if (before?.status === after.status) return null;
  const agent = agentName(after.agent_profile_id);
  if (after.status === "waiting") return after.reason === "permission" ? `${agent} asks for permission` : `${agent} asks you something`;
  if (isInterrupted(after)) return `${agent} was interrupted`;
  if (after.status === "error") return `${agent}: ${after.sentence}`;
  const wasWorking = before?.status === "running" || before?.status === "starting";
  if (after.status === "idle" && wasWorking) return after.last_outcome === "completed" ? `${agent} is done` : `${agent} stopped`;
  return null;
}

async function show(change: SessionChange, text: string): Promise<void> {
  const { after } = change;
  const title = visible(titleOf(after));
  const options = { body: visible(text), tag: after.session_id, data: sessionPath(after.session_id), icon: "/icon-192.png" };
  const worker = await navigator.serviceWorker?.getRegistration();
  if (worker) {
    await worker.showNotification(title, options);
    return;
  }
  const shown = new Notification(title, options);
  shown.onclick = () => {
    focus();
    location.hash = sessionPath(after.session_id);
  };
}

export function followNotifications(): () => void {
  return listStore.onChange((change) => {
    if (!wantsNotifications.value || notificationSupport() !== "allowed" || document.visibilityState === "visible") return;
    const text = notificationFor(change);
    // The browser may refuse: the page itself shows the same.
    if (text) show(change, text).catch(() => {});
  });
}
