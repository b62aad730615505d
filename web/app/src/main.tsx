import { render } from "preact";
import { App } from "./App.tsx";
import { signInByLink } from "./data/account.ts";
import "./data/outbox.ts";
import "./data/preferences.ts";
import { showUnseenCharacters } from "./lib/inert.ts";
import { parseRoute, route } from "./lib/router.ts";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/ui.css";
import "./styles/shell.css";
import "./styles/session.css";
import "./styles/content.css";

async function begin(): Promise<void> {
  const root = document.getElementById("app");
  if (!root) return;
  showUnseenCharacters();
  await signInByLink();
  if (location.pathname === "/demo/browser-run") {
    const demo = await import("./demo/browser-run.tsx");
    demo.show(root);
    return;
  }
  route.value = parseRoute(location.hash);
  render(<App />, root);
  if (isSecureContext && "serviceWorker" in navigator && import.meta.env.PROD) {
    // Without it the page works all the same; it cannot be installed then.
    navigator.serviceWorker.register("/sw.js").catch(() => {});
  }
}

void begin();
