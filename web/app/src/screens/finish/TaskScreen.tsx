import type { SessionSummary } from "piton-client";
import { client } from "../../data/account.ts";
import { api } from "../../data/actions.ts";
import { agentName } from "../../data/agents.ts";
import { openNewSession } from "../../data/dialogs.ts";
import { list } from "../../data/home.ts";
import { isClosed, markOf, stateWords, TASK_STATES, titleOf } from "../../data/states.ts";
import type { FileDiff } from "../../lib/lines.ts";
import { sessionPath } from "../../lib/router.ts";
import { Button, LinkButton } from "../../ui/Button.tsx";
import { DiffCount } from "../../ui/DiffView.tsx";
import { Mark } from "../../ui/Mark.tsx";
import { Ago, Badge, Loading } from "../../ui/parts.tsx";
import { useEndedCalls } from "./ended-calls.ts";
import { Problem } from "../workspace/Problem.tsx";
import { FileDiffs } from "../workspace/FileDiffs.tsx";
import { useLoaded } from "../workspace/load.ts";
import { readReview, sum } from "../workspace/review.ts";

/** A task with its sessions: several agents on the same work, their changes side by side. */
export function TaskScreen({ id }: { id: string }) {
  const mine = list.value.sessions.filter((session) => session.task_id === id);
  const loaded = useLoaded(id, () => client.call("get", "/api/v1/tasks/{task_id}", { path: { task_id: id } }), mine.map((session) => session.status).join());
  if (loaded.error) return <main class="page" id="main"><Problem text={loaded.error} onRetry={loaded.reload} /></main>;
  const task = loaded.value;
  if (!task) return <main class="page" id="main"><Loading what="Loading the task" since={loaded.since} /></main>;
  const sessions = task.sessions.map((session) => mine.find((live) => live.session_id === session.session_id) ?? session);
  const state = TASK_STATES[task.state];
  const close = async (outcome: "completed" | "cancelled") => {
    await client.call("patch", "/api/v1/tasks/{task_id}", { path: { task_id: id }, body: { closed: true, outcome } });
    loaded.reload();
  };
  const reopen = async () => {
    await client.call("patch", "/api/v1/tasks/{task_id}", { path: { task_id: id }, body: { closed: false } });
    loaded.reload();
  };
  return (
    <main class="page" id="main" aria-label={task.title}>
      <div class="page-inner" data-wide>
        <header class="page-header">
          <a class="button back" data-look="plain" href="#/">Back</a>
          <h1 class="wrap">{task.title}</h1>
          <Badge tone={state.tone}>{state.label}</Badge>
          <span class="grow" />
          {!task.is_closed && <Button dense icon="plus" onClick={() => openNewSession({ task: id, folder: sessions[0]?.working_dir ?? null })}>Another agent</Button>}
          {task.is_closed ? <Button dense onClick={reopen}>Reopen</Button> : <Button dense onClick={() => close("completed")}>Close the task</Button>}
        </header>
        <p class="muted">{sessions.length > 1 ? "The same task, one agent beside the other. Keep the one you like; the others are closed, their branches stay." : "One session works on this task."}</p>
        <div class="compare-grid" data-columns={Math.min(sessions.length, 2)}>
          {sessions.map((session) => <Column key={session.session_id} session={session} others={sessions} onDone={loaded.reload} />)}
        </div>
      </div>
    </main>
  );
}

const NO_FILES: readonly FileDiff[] = [];

function Column({ session, others, onDone }: { session: SessionSummary; others: readonly SessionSummary[]; onDone: () => void }) {
  const diff = useLoaded(session.session_id, () => readReview(session.session_id), `${session.status} ${useEndedCalls(session)}`);
  const files = diff.value?.files ?? NO_FILES;
  const rest = others.filter((other) => other.session_id !== session.session_id && !isClosed(other));
  const keep = async () => {
    for (const other of rest) await api(other.session_id).close("cancelled");
    onDone();
  };
  return (
    <section class="stack" aria-label={`${agentName(session.agent_profile_id)}: ${titleOf(session)}`}>
      <div class="card">
        <div class="row-wrap">
          <Mark {...markOf(session)} />
          <strong>{agentName(session.agent_profile_id)}</strong>
          <span class="muted small">{stateWords(session)}</span>
          <span class="grow" />
          <span class="muted small"><Ago at={session.active_at} /></span>
        </div>
        <div class="row-wrap">
          {diff.value && <DiffCount added={sum(files, "added")} removed={sum(files, "removed")} />}
          <span class="muted small truncate">{session.worktree_branch}</span>
        </div>
        <div class="card-actions">
          <LinkButton href={sessionPath(session.session_id)} dense>Open</LinkButton>
          <LinkButton href={sessionPath(session.session_id, "changes")} dense>Review</LinkButton>
          {rest.length > 0 && !isClosed(session) && <Button dense look="primary" onClick={keep}>Keep this one</Button>}
        </div>
      </div>
      {diff.error && <Problem text={diff.error} onRetry={diff.reload} />}
      <FileDiffs title="Changes" files={files} />
      {diff.value?.isCut && <p class="muted small">The diff is longer than can be shown here.</p>}
      {diff.value && files.length === 0 && <p class="muted small">Nothing changed yet.</p>}
    </section>
  );
}
