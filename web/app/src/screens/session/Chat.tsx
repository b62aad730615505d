import { useMemo, useState } from "preact/hooks";
import { agentName } from "../../data/agents.ts";
import { outgoing } from "../../data/outbox.ts";
import type { OpenSession } from "../../data/session.ts";
import { isClosed } from "../../data/states.ts";
import { report } from "../../ui/toasts.ts";
import { plural } from "../../lib/format.ts";
import { Button } from "../../ui/Button.tsx";
import { VirtualList } from "../../ui/VirtualList.tsx";
import { Announcer } from "./Announcer.tsx";
import { Composer } from "./Composer.tsx";
import { lastAgentError } from "./login.ts";
import { Message } from "./Message.tsx";
import { Notice } from "./Notice.tsx";
import { Outgoing } from "./Outgoing.tsx";
import { PermissionCard } from "./Permission.tsx";
import { PlanBar } from "./PlanBar.tsx";
import { QueueList } from "./QueueList.tsx";
import { isUndo, keyOfRow, type Row, rowsOf } from "./rows.ts";
import { StateCards } from "./StateCards.tsx";
import { WaitCard } from "./WaitCard.tsx";

export function Chat({ session }: { session: OpenSession }) {
  const status = session.status.value;
  const view = session.view.value;
  const isLoading = session.load.value === "loading";
  const agent = status?.agent_profile_id ?? view.agent_profile_id;
  const folder = status?.worktree_path ?? status?.working_dir ?? null;
  const isLive = view.run?.phase === "open";
  const isWritable = status !== null && !isClosed(status) && !status.read_only;
  const own = outgoing.value.filter((prompt) => prompt.session_id === session.id);
  const [openParts, setOpenParts] = useState<ReadonlySet<string>>(new Set());
  const rows = useMemo(() => rowsOf(view.items, openParts), [view.items, openParts]);
  const toggle = (key: string) => setOpenParts(openParts.has(key) ? new Set([...openParts].filter((one) => one !== key)) : new Set([...openParts, key]));
  const show = (row: Row) => {
    if (row.type === "abandoned") return <Abandoned row={row} onToggle={() => toggle(row.key)} />;
    const { item } = row;
    if (isUndo(item, view.lineages) && item.type === "notice") return <Notice item={item} agent={agent} isUndo />;
    const message = <Message item={item} agent={agent} folder={folder} isLive={isLive} />;
    return item.abandoned ? <div class="abandoned">{message}</div> : message;
  };
  return (
    <div class="chat">
      <VirtualList
        items={rows}
        keyOf={keyOfRow}
        label="Conversation"
        onNearStart={() => {
          if (session.older.value !== null) session.loadOlder().catch(report);
        }}
        render={show}
        head={
          session.older.value !== null ? (
            <p class="muted small older" role="status">Loading earlier messages…</p>
          ) : !isLoading && view.items.length === 0 && status ? (
            <Welcome agent={agentName(agent)} folder={folder} />
          ) : null
        }
        foot={
          <div class="chat-foot">
            <Outgoing prompts={own} agent={agentName(agent)} />
            {status && isWritable && (
              <>
                {status.waits.map((wait) =>
                  wait.permission ? (
                    <PermissionCard key={wait.wait_id} wait={wait} agent={agentName(agent)} folder={folder} />
                  ) : (
                    <WaitCard key={wait.wait_id} wait={wait} agent={agentName(agent)} />
                  ),
                )}
              </>
            )}
            {status && <StateCards status={status} isOpening={session.isOpening.value} errorSeq={lastAgentError(view.items)} />}
          </div>
        }
      />
      {isWritable && status && (
        <div class="dock">
          <PlanBar agent={view.agent} isLive={isLive} />
          <QueueList sessionId={session.id} queue={view.queue} />
          <Composer status={status} view={view} />
        </div>
      )}
      <Announcer view={view} status={status} />
    </div>
  );
}

function Abandoned({ row, onToggle }: { row: Extract<Row, { type: "abandoned" }>; onToggle: () => void }) {
  return (
    <p class="event abandoned-head">
      <Button dense look="plain" expanded={row.isOpen} onClick={onToggle}>
        {row.isOpen ? "Hide" : "Show"} {plural(row.count, "message")} left behind by a rewind
      </Button>
    </p>
  );
}

function Welcome({ agent, folder }: { agent: string; folder: string | null }) {
  return (
    <div class="empty">
      <h2>Nothing said yet</h2>
      <p>
        {agent} works{folder ? <> in <code>{folder}</code></> : null}. Everything it does is kept, whatever stops.
      </p>
    </div>
  );
}
