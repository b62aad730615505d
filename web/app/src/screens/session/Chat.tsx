import { agentName } from "../../data/agents.ts";
import { outgoing } from "../../data/outbox.ts";
import type { OpenSession } from "../../data/session.ts";
import { isClosed } from "../../data/states.ts";
import { report } from "../../ui/toasts.ts";
import { VirtualList } from "../../ui/VirtualList.tsx";
import { Announcer } from "./Announcer.tsx";
import { Composer } from "./Composer.tsx";
import { keyOfItem, Message } from "./Message.tsx";
import { Outgoing } from "./Outgoing.tsx";
import { PermissionCard } from "./Permission.tsx";
import { PlanBar } from "./PlanBar.tsx";
import { QueueList } from "./QueueList.tsx";
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
  return (
    <div class="chat">
      <VirtualList
        items={view.items}
        keyOf={keyOfItem}
        label="Conversation"
        onNearStart={() => {
          if (session.older.value !== null) session.loadOlder().catch(report);
        }}
        render={(item) => <Message item={item} agent={agent} folder={folder} isLive={isLive} />}
        head={
          session.older.value !== null ? (
            <p class="muted small older" role="status">Loading earlier messages…</p>
          ) : !isLoading && view.items.length === 0 && status ? (
            <Welcome agent={agentName(agent)} folder={folder} />
          ) : null
        }
        foot={
          <div class="chat-foot">
            <Outgoing prompts={own} />
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
            {status && <StateCards status={status} isOpening={session.isOpening.value} />}
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
