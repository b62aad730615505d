import type { GitChange } from "piton-client";
import { useMemo, useState } from "preact/hooks";
import { api } from "../../data/actions.ts";
import type { OpenSession } from "../../data/session.ts";
import { isClosed } from "../../data/states.ts";
import { plural } from "../../lib/format.ts";
import { type FileDiff, parseGitDiff } from "../../lib/lines.ts";
import { go, sessionPath } from "../../lib/router.ts";
import { revealed } from "../../lib/text.ts";
import { Button } from "../../ui/Button.tsx";
import { DiffCount } from "../../ui/DiffView.tsx";
import { Icon } from "../../ui/Icon.tsx";
import { Loading } from "../../ui/parts.tsx";
import { report } from "../../ui/toasts.ts";
import { type Comment, CommentDialog, commentsPrompt, commentsReader } from "../finish/comments.tsx";
import { FinishBar } from "../finish/FinishBar.tsx";
import { FileDiffs } from "./FileDiffs.tsx";
import { GitLogView } from "./GitLogView.tsx";
import { useLoaded } from "./load.ts";

type View = "diff" | "log";

async function readChanges(id: string) {
  const own = api(id);
  const status = await own.gitStatus();
  if (!status.repository) return { status, unstaged: [], staged: [], isCut: false };
  const [unstaged, staged] = await Promise.all([own.gitDiff({}), own.gitDiff({ staged: true })]);
  return { status, unstaged: parseGitDiff(unstaged.diff), staged: parseGitDiff(staged.diff), isCut: unstaged.truncated || staged.truncated };
}

/** How many edits have ended: when this changes, the folder may have. */
function editsOf(session: OpenSession): number {
  return session.view.value.items.filter((item) => item.type === "tool" && item.ended_at !== null).length;
}

export function Changes({ session }: { session: OpenSession }) {
  const [view, setView] = useState<View>("diff");
  const [comments, setComments] = useState<readonly Comment[]>([]);
  const [picked, setPicked] = useState<Comment | null>(null);
  const loaded = useLoaded(`${session.id} ${editsOf(session)} ${session.view.value.run?.phase ?? ""}`, () => readChanges(session.id));
  const changes = loaded.value;
  const untracked = useMemo(() => changes?.status.changed.filter((change) => change.status.trim() === "??" || change.status === "untracked") ?? [], [changes]);
  if (!changes) return <div class="panel-scroll">{loaded.error ? <Problem text={loaded.error} onRetry={loaded.reload} /> : <Loading what="Asking git" since={loaded.since} />}</div>;
  if (!changes.status.repository) {
    return (
      <div class="empty">
        <h2>Not a git repository</h2>
        <p>Changes are shown for folders that are under git. The files themselves are under Files.</p>
      </div>
    );
  }
  const all = [...changes.unstaged, ...changes.staged];
  const status = session.status.value;
  const isWritable = status !== null && !isClosed(status) && !status.read_only;
  const send = async () => {
    try {
      await api(session.id).prompt(commentsPrompt(comments));
      setComments([]);
      go(sessionPath(session.id));
    } catch (error) {
      report(error);
    }
  };
  return (
    <div class="panel">
      <div class="panel-bar">
        <span class="row">
          <Icon name="branch" small />
          <span class="truncate">{changes.status.branch ?? "detached"}</span>
          {changes.status.head && <code class="muted">{changes.status.head.slice(0, 7)}</code>}
        </span>
        <span class="row small">
          <span>{plural(changes.status.changed.length, "file")}</span>
          <DiffCount added={sum(all, "added")} removed={sum(all, "removed")} />
        </span>
        <span class="grow" />
        <Button dense look="plain" pressed={view === "log"} onClick={() => setView(view === "log" ? "diff" : "log")}>Log</Button>
        <Button dense look="plain" onClick={loaded.reload}>Refresh</Button>
        {comments.length > 0 && <Button dense look="primary" onClick={send}>Send {plural(comments.length, "comment")}</Button>}
      </div>
      {isWritable && <FinishBar session={session} version={`${changes.status.head ?? ""} ${changes.status.changed.length}`} onDone={loaded.reload} />}
      <div class="panel-scroll">
        <div class="inner">
          {view === "log" ? (
            <GitLogView id={session.id} />
          ) : (
            <>
              {all.length === 0 && untracked.length === 0 && <div class="empty"><h2>Nothing changed</h2><p>The folder is as its last commit.</p></div>}
              <FileDiffs title="Not staged" files={changes.unstaged} comments={isWritable ? commentsReader(comments, setPicked) : undefined} />
              <FileDiffs title="Staged" files={changes.staged} comments={isWritable ? commentsReader(comments, setPicked) : undefined} />
              <Untracked files={untracked} />
              {changes.isCut && <p class="muted small">The diff is longer than can be shown here; see a file's own diff in the terminal.</p>}
              {isWritable && all.length > 0 && <p class="muted small">Click a line's number to comment on it. All comments go to the agent as one prompt.</p>}
            </>
          )}
        </div>
      </div>
      {picked && <CommentDialog comment={picked} onSave={(comment) => { setComments(replace(comments, comment)); setPicked(null); }} onClose={() => setPicked(null)} />}
    </div>
  );
}

function replace(comments: readonly Comment[], changed: Comment): Comment[] {
  const rest = comments.filter((comment) => comment.key !== changed.key);
  return changed.text.trim() === "" ? rest : [...rest, changed];
}

function sum(files: readonly FileDiff[], what: "added" | "removed"): number {
  return files.reduce((total, file) => total + file[what], 0);
}

export function Problem({ text, onRetry }: { text: string; onRetry: () => void }) {
  return (
    <div class="empty" role="alert">
      <p>{text}</p>
      <Button onClick={onRetry}>Retry</Button>
    </div>
  );
}

function Untracked({ files }: { files: readonly GitChange[] }) {
  if (files.length === 0) return null;
  return (
    <section class="stack-tight">
      <h2 class="small muted">New, not yet under git</h2>
      <ul class="mono">{files.map((file) => <li key={file.path} class="added wrap">+ {revealed(file.path)}</li>)}</ul>
    </section>
  );
}
