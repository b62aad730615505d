import type { SessionSummary, Wait } from "piton-client";
import { memo } from "preact/compat";
import { api, isReject } from "../../data/actions.ts";
import { agentName } from "../../data/agents.ts";
import { rowsSettled, tasksById, waits } from "../../data/home.ts";
import { wholeOnRow } from "../../data/permission.ts";
import { folderOf, groupOf, isInterrupted, isWorking, markOf, stateWords, titleOf } from "../../data/states.ts";
import { sessionPath } from "../../lib/router.ts";
import { revealed } from "../../lib/text.ts";
import { Button, LinkButton } from "../../ui/Button.tsx";
import { Mark } from "../../ui/Mark.tsx";
import { Ago, Elapsed } from "../../ui/parts.tsx";

export const SessionRow = memo(({ session, isSelected }: { session: SessionSummary; isSelected: boolean }) => {
  const wait = session.status === "waiting" ? waits.value.find((open) => open.session_id === session.session_id) : undefined;
  const task = session.task_id ? tasksById.value.get(session.task_id) : undefined;
  const branch = session.worktree_branch;
  const facts = [wait ? waitWords(wait) : stateWords(session), session.graph ? `Graph ${session.graph}` : agentName(session.agent_profile_id), folderOf(session), branch && `⎇ ${branch}`];
  const group = groupOf(session);
  return (
    <li class="home-row" data-selected={isSelected ? "" : undefined} data-status={session.status}>
      <a href={sessionPath(session.session_id)} class="home-link" aria-current={isSelected ? "page" : undefined}>
        <Mark {...markOf(session)} />
        <span class="grow">
          <span class="row">
            <span class="truncate grow home-title">{titleOf(session)}</span>
            <span class="muted small">{isWorking(session) ? <Elapsed since={session.active_at} /> : <Ago at={session.active_at} />}</span>
          </span>
          <span class="home-facts">{facts.filter(Boolean).join(" · ")}</span>
          {task && task.title !== session.title && <span class="home-facts">Task: {task.title}</span>}
          {(session.queue?.length ?? 0) > 0 && <span class="home-facts">{session.queue?.length} queued</span>}
        </span>
      </a>
      {wait?.permission?.command && <pre class="home-command">{wholeOnRow(wait.permission) ?? revealed(wait.permission.command)}</pre>}
      {group === "needs_you" && <RowActions session={session} wait={wait} />}
    </li>
  );
});

function waitWords(wait: Wait): string {
  const request = wait.permission;
  if (!request) return "asks you something";
  if (request.command) return "wants to run";
  if (request.diffs.length > 0) return "wants to change a file";
  return `asks: ${request.title}`;
}

function RowActions({ session, wait }: { session: SessionSummary; wait: Wait | undefined }) {
  const own = api(session.session_id);
  // The list moves by itself: nothing of it answers while it does.
  const isOff = !rowsSettled.value;
  const open = (label: string) => <LinkButton href={sessionPath(session.session_id)} dense>{label}</LinkButton>;
  if (wait?.permission) {
    if (wholeOnRow(wait.permission) === null) return <div class="home-actions">{open("Review")}</div>;
    const allow = wait.permission.options.find((option) => !isReject(option));
    const reject = wait.permission.options.find(isReject);
    return (
      <div class="home-actions">
        {allow && <Button look="primary" dense disabled={isOff} onClick={() => own.answerPermission(wait.wait_id, allow.option_id)}>{allow.name}</Button>}
        {reject && <Button dense disabled={isOff} onClick={() => own.answerPermission(wait.wait_id, reject.option_id)}>{reject.name}</Button>}
        {open("Open")}
      </div>
    );
  }
  if (isInterrupted(session)) {
    return (
      <div class="home-actions">
        <Button look="primary" dense disabled={isOff} onClick={() => own.resume({ continue: true })}>Resume</Button>
        {open("Open")}
      </div>
    );
  }
  if (session.status === "paused") {
    return (
      <div class="home-actions">
        <Button look="primary" dense disabled={isOff} onClick={() => own.resume({ continue: true })}>Continue</Button>
        {open("Open")}
      </div>
    );
  }
  return null;
}
