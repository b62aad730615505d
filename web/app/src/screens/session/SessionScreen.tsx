import { useEffect } from "preact/hooks";
import { current, type OpenSession, showSession } from "../../data/session.ts";
import { titleOf } from "../../data/states.ts";
import { lazy } from "../../lib/lazy.tsx";
import { visible } from "../../lib/text.ts";
import { SESSION_TABS, type SessionTab, sessionPath } from "../../lib/router.ts";
import { Button, LinkButton } from "../../ui/Button.tsx";
import { Icon, type IconName } from "../../ui/Icon.tsx";
import { Card } from "../../ui/parts.tsx";
import { sentenceOf } from "../../ui/toasts.ts";
import { ProblemError } from "piton-client";
import { AppNotices } from "../home/AppNotices.tsx";
import { panelState } from "./cards.ts";
import { Chat } from "./Chat.tsx";
import { ConnectionNotice } from "./ConnectionNotice.tsx";
import { SessionHeader } from "./SessionHeader.tsx";

const Changes = lazy(() => import("../workspace/Changes.tsx"), "Changes");
const Files = lazy(() => import("../workspace/Files.tsx"), "Files");
const TerminalPanel = lazy(() => import("../workspace/TerminalPanel.tsx"), "TerminalPanel");
const GraphPanel = lazy(() => import("../graph/GraphPanel.tsx"), "GraphPanel");
const Timeline = lazy(() => import("../timeline/Timeline.tsx"), "Timeline");

const TABS: Record<SessionTab, { label: string; icon: IconName }> = {
  chat: { label: "Chat", icon: "chat" },
  changes: { label: "Changes", icon: "diff" },
  files: { label: "Files", icon: "folder" },
  terminal: { label: "Terminal", icon: "terminal" },
  timeline: { label: "Timeline", icon: "clock" },
};

/** A graph has no conversation of its own. */
const GRAPH_TAB = { label: "Graph", icon: "branch" } as const;

export function SessionScreen({ id, tab }: { id: string; tab: SessionTab }) {
  useEffect(() => showSession(id), [id]);
  useEffect(() => () => showSession(null), []);
  const session = current.value;
  if (!session || session.id !== id) return <main class="session" id="main" />;
  return <Loaded session={session} tab={tab} />;
}

function Loaded({ session, tab }: { session: OpenSession; tab: SessionTab }) {
  const status = session.status.value;
  const title = status ? titleOf(status) : "Session";
  const isGraph = (status?.graph ?? session.view.value.graph) !== null;
  useEffect(() => {
    document.title = visible(`${title} · Piton`);
  }, [title]);
  const isAway = status === null && session.connection.value.phase === "reconnecting";
  if (session.load.value === "failed") return <Failed session={session} />;
  return (
    <main class="session" id="main" aria-label={title}>
      <SessionHeader session={session} />
      <Tabs id={session.id} tab={tab} place="top" isGraph={isGraph} />
      <div class="session-notices"><AppNotices /></div>
      <ConnectionNotice connection={session.connection.value} />
      <div class="session-body">
        {isAway ? <Away /> : tab !== "chat" ? <Panel session={session} tab={tab} /> : isGraph ? <GraphPanel session={session} /> : <Chat session={session} />}
      </div>
      <Tabs id={session.id} tab={tab} place="bottom" isGraph={isGraph} />
    </main>
  );
}

function Away() {
  return (
    <div class="empty" data-card="away">
      <h2>The server does not answer yet</h2>
      <p>The session appears here by itself when it does. Nothing of it is lost: it is kept on the server.</p>
    </div>
  );
}

function Tabs({ id, tab, place, isGraph }: { id: string; tab: SessionTab; place: "top" | "bottom"; isGraph: boolean }) {
  const tabs = isGraph ? { ...TABS, chat: GRAPH_TAB } : TABS;
  return (
    <nav class="tabs session-tabs" data-place={place} aria-label={place === "top" ? "Session" : "Session views"}>
      {SESSION_TABS.map((name) => (
        <a key={name} class="tab" href={sessionPath(id, name)} aria-current={name === tab ? "page" : undefined}>
          {place === "bottom" && <Icon name={tabs[name].icon} />}
          <span>{tabs[name].label}</span>
        </a>
      ))}
    </nav>
  );
}

function Panel({ session, tab }: { session: OpenSession; tab: Exclude<SessionTab, "chat"> }) {
  const status = session.status.value;
  if (tab === "timeline") return <Timeline session={session} />;
  const { isUsable, sentence } = panelState(status);
  if (!isUsable) {
    return (
      <div class="empty" data-panel-off role="status">
        <h2>{TABS[tab].label} is not available yet</h2>
        <p>{sentence ?? "The session is being loaded."}</p>
      </div>
    );
  }
  if (tab === "changes") return <Changes session={session} />;
  if (tab === "files") return <Files session={session} />;
  return <TerminalPanel session={session} />;
}

function Failed({ session }: { session: OpenSession }) {
  const error = session.problem.value;
  const isGone = error instanceof ProblemError && error.code === "session_not_found";
  return (
    <main class="session page" id="main">
      <Card
        tone="error"
        name={isGone ? "gone" : "load-failed"}
        title={isGone ? "This session does not exist any more" : `The session could not be loaded`}
        actions={
          <>
            {!isGone && (
              <Button look="primary" onClick={() => session.store.open()}>
                Retry
              </Button>
            )}
            <LinkButton href="#/">Home</LinkButton>
          </>
        }
      >
        <p>{isGone ? "It was deleted or archived, perhaps from another device." : sentenceOf(error)}</p>
      </Card>
    </main>
  );
}

