import { useState } from "preact/hooks";
import { api } from "../../data/actions.ts";
import type { OpenSession } from "../../data/session.ts";
import { isClosed } from "../../data/states.ts";
import { plural } from "../../lib/format.ts";
import { type FileDiff, parseGitDiff } from "../../lib/lines.ts";
import { go, sessionPath } from "../../lib/router.ts";
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
import { Problem } from "./Problem.tsx";
import { readNew, readReview, type Review, sum, untrackedOf } from "./review.ts";

type View = "all" | "unstaged" | "staged" | "log";
const VIEWS: { name: View; label: string; note: string }[] = [
  { name: "all", label: "All", note: "Everything that the branch adds to its base: commits, staged, not staged, new" },
  { name: "unstaged", label: "Not staged", note: "What differs from the index, and new files" },
  { name: "staged", label: "Staged", note: "What the next commit would have" },
  { name: "log", label: "Log", note: "The last commits" },
];
const NOTHING: Record<Exclude<View, "log">, string> = {
  all: "The branch is as its base, and nothing in the folder differs.",
  unstaged: "Nothing in the folder differs from what is staged or committed.",
  staged: "Nothing is staged.",
};

async function readChanges(id: string, view: View) {
  const own = api(id);
  const status = await own.gitStatus();
  const none: Review = { files: [], isCut: false };
  if (!status.repository || view === "log") return { status, ...none };
  if (view === "all") return { status, ...(await readReview(id, status)) };
  const { diff, truncated } = await own.gitDiff({ staged: view === "staged" });
  const added = view === "unstaged" ? await readNew(id, untrackedOf(status)) : none;
  return { status, files: [...parseGitDiff(diff), ...added.files], isCut: truncated || added.isCut };
}

/** How many edits have ended: when this changes, the folder may have. */
function editsOf(session: OpenSession): number {
  return session.view.value.items.filter((item) => item.type === "tool" && item.ended_at !== null).length;
}

export function Changes({ session }: { session: OpenSession }) {
  const [view, setView] = useState<View>("all");
  const [comments, setComments] = useState<readonly Comment[]>([]);
  const [picked, setPicked] = useState<Comment | null>(null);
  const loaded = useLoaded(`${session.id} ${view}`, () => readChanges(session.id, view), `${editsOf(session)} ${session.view.value.run?.phase ?? ""}`);
  const changes = loaded.value;
  if (!changes) return <div class="panel-scroll">{loaded.error ? <Problem text={loaded.error} onRetry={loaded.reload} /> : <Loading what="Asking git" since={loaded.since} />}</div>;
  if (!changes.status.repository) {
    return (
      <div class="empty">
        <h2>Not a git repository</h2>
        <p>Changes are shown for folders that are under git. The files themselves are under Files.</p>
      </div>
    );
  }
  const files: readonly FileDiff[] = changes.files;
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
          <span>{plural(files.length, "file")}</span>
          <DiffCount added={sum(files, "added")} removed={sum(files, "removed")} />
        </span>
        <span class="grow" />
        <span class="row" role="group" aria-label="Which changes">
          {VIEWS.map(({ name, label, note }) => (
            <button key={name} type="button" class="chip" title={note} aria-pressed={view === name} onClick={() => setView(name)}>{label}</button>
          ))}
        </span>
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
              {files.length === 0 && !loaded.isLoading && <div class="empty"><h2>Nothing changed</h2><p>{NOTHING[view]}</p></div>}
              <FileDiffs title={VIEWS.find(({ name }) => name === view)?.note ?? ""} files={files} comments={isWritable ? commentsReader(comments, setPicked) : undefined} />
              {changes.isCut && <p class="muted small">The diff is longer than can be shown here; see a file's own diff in the terminal.</p>}
              {isWritable && files.length > 0 && <p class="muted small">Click a line's number to comment on it. All comments go to the agent as one prompt.</p>}
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
