import { signOut } from "../../data/account.ts";
import { notificationSupport } from "../../data/notifications.ts";
import { isOutboxDurable } from "../../data/outbox.ts";
import { type Theme, theme, wantsNotifications } from "../../data/preferences.ts";
import { isStorageUsable } from "../../lib/storage.ts";
import { Button } from "../../ui/Button.tsx";
import { Card } from "../../ui/parts.tsx";

const THEMES: { name: Theme; label: string }[] = [
  { name: "system", label: "As the system" },
  { name: "light", label: "Light" },
  { name: "dark", label: "Dark" },
];

const SUPPORT = {
  allowed: "This browser allows them.",
  ask: "The browser asks you once.",
  denied: "This browser does not allow them for this page; change that in its settings.",
  insecure: "They need HTTPS, or a browser on the machine itself.",
  missing: "This browser has none.",
} as const;

export function DeviceSettings() {
  const support = notificationSupport();
  const canNotify = support === "allowed" || support === "ask";
  const toggle = async () => {
    if (wantsNotifications.value) {
      wantsNotifications.value = false;
      return;
    }
    wantsNotifications.value = (await Notification.requestPermission()) === "granted";
  };
  return (
    <section class="stack">
      <h2>This device</h2>
      {!isSecureContext && <InsecureNotice />}
      {!(isStorageUsable() && isOutboxDurable.value) && (
        <Card tone="waiting" name="no-storage" title="This browser keeps nothing">
          <p>Its storage is full or switched off. Everything works, but a reload signs you out and loses drafts.</p>
        </Card>
      )}
      <fieldset class="field">
        <legend>Colours</legend>
        <div class="row-wrap">
          {THEMES.map(({ name, label }) => (
            <label key={name} class="check">
              <input type="radio" name="theme" checked={theme.value === name} onChange={() => { theme.value = name; }} />
              <span>{label}</span>
            </label>
          ))}
        </div>
      </fieldset>
      <div class="field">
        <label class="check">
          <input type="checkbox" checked={wantsNotifications.value && support === "allowed"} disabled={!canNotify} onChange={() => void toggle()} />
          <span>Notify me when a session waits or ends</span>
        </label>
        <p class="hint">{SUPPORT[support]}</p>
      </div>
      <div><Button onClick={signOut}>Sign out of this browser</Button></div>
    </section>
  );
}

export function InsecureNotice() {
  return (
    <Card tone="waiting" name="insecure-context" title="This page was not loaded over HTTPS">
      <p>So the browser offers no notifications, no installation and no clipboard here. Everything else works. Serve Piton with <code>--tls-cert</code> and <code>--tls-key</code>, or open it on the machine itself.</p>
    </Card>
  );
}
