import { useEffect } from "preact/hooks";
import { signedOutBy, token } from "./data/account.ts";
import { loadAgents } from "./data/agents.ts";
import { listStore, needsYou } from "./data/home.ts";
import { followNotifications } from "./data/notifications.ts";
import { followVersion } from "./data/version.ts";
import { lazy } from "./lib/lazy.tsx";
import { route } from "./lib/router.ts";
import { Home } from "./screens/home/Home.tsx";
import { NewSessionDialog } from "./screens/home/NewSession.tsx";
import { SessionScreen } from "./screens/session/SessionScreen.tsx";
import { SignIn } from "./screens/SignIn.tsx";
import { report } from "./ui/toasts.ts";
import { Toasts } from "./ui/Toasts.tsx";

const Settings = lazy(() => import("./screens/settings/Settings.tsx"), "Settings");
const TaskScreen = lazy(() => import("./screens/finish/TaskScreen.tsx"), "TaskScreen");

export function App() {
  if (token.value === null || signedOutBy.value) return <SignIn />;
  return <SignedIn />;
}

function SignedIn() {
  useEffect(() => {
    listStore.start();
    loadAgents().catch(report);
    const ends = [followNotifications(), followVersion()];
    return () => {
      for (const end of ends) end();
    };
  }, []);
  const at = route.value;
  const waiting = needsYou.value;
  useEffect(() => {
    if (at.screen !== "session") document.title = waiting > 0 ? `(${waiting}) Piton` : "Piton";
  }, [at, waiting]);
  return (
    <div class="shell" data-screen={at.screen}>
      <a class="skip-link" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.querySelector<HTMLElement>("textarea, button, a")?.focus(); }}>
        Skip to the session
      </a>
      <nav class="shell-list" aria-label="Sessions">
        <Home selected={at.screen === "session" ? at.id : null} />
      </nav>
      <div class="shell-detail">{detail(at)}</div>
      <NewSessionDialog />
      <Toasts />
    </div>
  );
}

function detail(at: typeof route.value) {
  switch (at.screen) {
    case "session":
      return <SessionScreen id={at.id} tab={at.tab} />;
    case "settings":
      return <Settings section={at.section} />;
    case "task":
      return <TaskScreen id={at.id} key={at.id} />;
    case "home":
      return (
        <main class="empty" id="main">
          <h2>Choose a session</h2>
          <p>What needs you is at the top of the list.</p>
        </main>
      );
  }
}
