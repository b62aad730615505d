import { useEffect, useState } from "preact/hooks";
import { api } from "../../data/actions.ts";
import { agentName } from "../../data/agents.ts";
import { list } from "../../data/home.ts";
import type { OpenSession } from "../../data/session.ts";
import { folderOf, isClosed, isInterrupted, markOf, TASK_STATES, titleOf } from "../../data/states.ts";
import { plural } from "../../lib/format.ts";
import { go, sessionPath } from "../../lib/router.ts";
import { Button } from "../../ui/Button.tsx";
import { Dialog } from "../../ui/Dialog.tsx";
import { DiffCount } from "../../ui/DiffView.tsx";
import { Icon } from "../../ui/Icon.tsx";
import { Mark } from "../../ui/Mark.tsx";
import { Menu, type MenuItem } from "../../ui/Menu.tsx";
import { Badge, Elapsed, Field } from "../../ui/parts.tsx";
import { report } from "../../ui/toasts.ts";
import { useLoaded } from "../workspace/load.ts";
import { readReview, sum } from "../workspace/review.ts";
import { panelState } from "./cards.ts";

export function SessionHeader({ session }: { session: OpenSession }) {
  const status = session.status.value;
  const [isRenaming, setRenaming] = useState(false);
  if (!status) return <Unloaded id={session.id} />;
  const { modes, models } = session.view.value.agent;
  const task = session.task.value;
  const worker = status.graph ? `Graph ${status.graph}` : agentName(status.agent_profile_id);
  const facts = [worker, nameIn(models), nameIn(modes)].filter(Boolean).join(" · ");
  const run = session.view.value.run;
  return (
    <header class="session-header">
      <Back />
      <div class="grow">
        <h1 class="row">
          <Mark {...markOf(status)} />
          <span class="truncate" title={titleOf(status)}>{titleOf(status)}</span>
        </h1>
        <p class="session-facts">
          <span class="truncate">{facts}</span>
          {folderOf(status) && (
            <span class="row nowrap" title={status.working_dir ?? status.worktree_path ?? ""}>
              <Icon name="folder" small /> <span class="truncate">{folderOf(status)}</span>
            </span>
          )}
          {status.worktree_branch && (
            <span class="row nowrap" title={`Branch, in ${status.worktree_path ?? ""}`}>
              <Icon name="branch" small /> <span class="truncate">{status.worktree_branch}</span>
            </span>
          )}
          <BranchCount session={session} />
          {task && (
            <a href={`#/task/${encodeURIComponent(task.task_id)}`} class="nowrap">
              <Badge tone={TASK_STATES[task.state].tone} title={`Task: ${task.title}`}>{TASK_STATES[task.state].label}</Badge>
            </a>
          )}
          <ExecutorBadge status={status} />
        </p>
      </div>
      {status.status === "running" && run && (
        <span class="session-elapsed muted small" title="This run">
          <Elapsed since={run.started_at} />
        </span>
      )}
      <RunButtons session={session} />
      <Menu label="More actions" icon="more" items={actions(session, () => setRenaming(true))} />
      {isRenaming && <Rename session={session} onClose={() => setRenaming(false)} />}
    </header>
  );
}

function Back() {
  return (
    <a class="button back" data-look="plain" data-size="icon" href="#/" aria-label="Back to all sessions" title="Back to all sessions">
      <Icon name="back" />
    </a>
  );
}

/** Before the session is there: what the list says of it, and the way back. */
function Unloaded({ id }: { id: string }) {
  const listed = list.value.sessions.find((one) => one.session_id === id);
  return (
    <header class="session-header">
      <Back />
      {listed && <div class="grow"><h1 class="truncate">{titleOf(listed)}</h1></div>}
    </header>
  );
}

/** The conversation is drawn first: a whole branch may be compared for this one number. */
const COUNT_DELAY_MS = 1_000;

/** "+12 −3": what the branch and the folder add to the base. Read again when a run ends. */
function BranchCount({ session }: { session: OpenSession }) {
  const status = session.status.value;
  const [isDrawn, setDrawn] = useState(false);
  useEffect(() => {
    setDrawn(false);
    const timer = setTimeout(() => setDrawn(true), COUNT_DELAY_MS);
    return () => clearTimeout(timer);
  }, [session.id]);
  const isUsable = panelState(status).isUsable && isDrawn;
  const loaded = useLoaded(`${session.id} ${isUsable}`, async () => (isUsable ? await readReview(session.id) : null), `${session.view.value.run?.phase ?? ""} ${status?.is_agent_running ?? ""}`);
  const files = loaded.value?.files ?? [];
  if (files.length === 0) return null;
  return <a class="nowrap" href={sessionPath(session.id, "changes")} title={`${plural(files.length, "file")} changed`}><DiffCount added={sum(files, "added")} removed={sum(files, "removed")} /></a>;
}

function nameIn(choices: OpenSession["view"]["value"]["agent"]["modes"]): string {
  return choices?.available.find((choice) => choice.id === choices.current)?.name ?? choices?.current ?? "";
}

const EXECUTOR_WORDS = { starting: "executor starting", error: "executor error", ready: "", stopped: "" } as const;

function ExecutorBadge({ status }: { status: NonNullable<OpenSession["status"]["value"]> }) {
  const words = status.executor_status ? EXECUTOR_WORDS[status.executor_status] : "";
  if (!words) return null;
  return <Badge tone={status.executor_status === "error" ? "error" : "accent"} title={status.error_message ?? words}>{words}</Badge>;
}

function RunButtons({ session }: { session: OpenSession }) {
  const status = session.status.value;
  if (status?.status !== "running" && status?.status !== "waiting" && status?.status !== "starting") return null;
  return (
    <>
      {status.status === "running" && <Button icon="pause" look="plain" dense label="Pause the run" onClick={() => api(session.id).pause()} />}
      <Button icon="stop" dense label="Cancel the run" onClick={() => api(session.id).cancel()} />
    </>
  );
}

function actions(session: OpenSession, rename: () => void): MenuItem[] {
  const status = session.status.value;
  if (!status) return [];
  const own = api(session.id);
  const list: MenuItem[] = [{ label: "Rename…", onSelect: rename }];
  if (status.read_only) return list;
  list.push({
    label: "Fork",
    note: status.graph ? "A new session from the newest checkpoint" : "A new session with a copy of the conversation",
    onSelect: async () => go(sessionPath((await own.fork()).session_id)),
  });
  if (isClosed(status)) return list;
  if (isInterrupted(status)) list.push({ label: "Dismiss the interruption", onSelect: () => own.dismiss() });
  if (status.graph) {
    // A graph has no agent of its own.
  } else if (status.is_agent_running) list.push({ label: "Stop the agent", note: "The session stays; the next prompt starts it again", onSelect: () => own.stop() });
  else list.push({ label: "Start the agent", onSelect: () => own.resume() });
  list.push({ label: "Close as completed", note: "A closed session cannot be continued", onSelect: () => own.close("completed") });
  list.push({ label: "Close as cancelled", onSelect: () => own.close("cancelled") });
  return list;
}

function Rename({ session, onClose }: { session: OpenSession; onClose: () => void }) {
  const [title, setTitle] = useState(session.status.value?.title ?? "");
  const save = async () => {
    try {
      await api(session.id).rename(title.trim() || null);
      onClose();
    } catch (error) {
      report(error);
    }
  };
  return (
    <Dialog title="Rename the session" onClose={onClose} foot={<Button look="primary" onClick={save}>Rename</Button>}>
      <form onSubmit={(event) => { event.preventDefault(); void save(); }}>
        <Field label="Title">
          {({ id }) => <input id={id} class="input" data-autofocus value={title} maxLength={200} onInput={(event) => setTitle(event.currentTarget.value)} />}
        </Field>
      </form>
    </Dialog>
  );
}

