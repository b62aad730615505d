// Going back to a checkpoint, or undoing that: what would happen is shown before anything does.
import type { Schemas } from "piton-client";
import { useState } from "preact/hooks";
import { api } from "../../data/actions.ts";
import type { OpenSession } from "../../data/session.ts";
import { plural } from "../../lib/format.ts";
import { revealed } from "../../lib/text.ts";
import { Button } from "../../ui/Button.tsx";
import { Dialog } from "../../ui/Dialog.tsx";
import { Loading } from "../../ui/parts.tsx";
import { report, say } from "../../ui/toasts.ts";
import { Problem } from "../workspace/Problem.tsx";
import { useLoaded } from "../workspace/load.ts";
import type { Checkpoint } from "./checkpoints.ts";

const PATHS_SHOWN = 100;
const PARTS = { both: "Files and conversation", files: "Files only", conversation: "Conversation only" } as const;
type Part = keyof typeof PARTS;

const CONTEXT: Record<string, string> = {
  injected: "Its next prompt carries the history up to that point.",
  lost: "It will not know what was said before.",
  none: "Nothing was said before that point.",
};

type Props = { session: OpenSession; /** Null: undo the last rewind. */ checkpoint: Checkpoint | null; onClose: () => void; onDone: () => void };

export function RewindDialog({ session, checkpoint, onClose, onDone }: Props) {
  const [part, setPart] = useState<Part>(checkpoint?.hasFiles === false ? "conversation" : "both");
  const [isForced, setForced] = useState(false);
  const [isCancelling, setCancelling] = useState(false);
  const own = api(session.id);
  const go = (dry_run: boolean): Promise<Schemas["RewindResult"]> => {
    if (!checkpoint) return own.undo({ dry_run, ...(dry_run ? {} : { force: isForced }) });
    const what = { checkpoint: checkpoint.id, files: part !== "conversation", conversation: part !== "files" };
    return own.rewind({ ...what, dry_run, ...(dry_run ? {} : { force: isForced, cancel: isCancelling }) });
  };
  const loaded = useLoaded(`${session.id} ${checkpoint?.id ?? "undo"} ${part}`, () => go(true));
  const plan = loaded.isLoading ? null : loaded.value;
  const foreign = plan?.files?.foreign ?? [];
  const phase = session.view.value.run?.phase;
  // A rewind can be undone only until a turn begins: then nothing is open.
  const isOpen = checkpoint !== null && (phase === "open" || phase === "paused");
  const isReady = plan !== null && (foreign.length === 0 || isForced) && (!isOpen || isCancelling);
  const run = async () => {
    try {
      await go(false);
      say(checkpoint ? "Rewound. Undo it in the timeline until the next turn begins." : "The rewind was undone.");
      onDone();
      onClose();
    } catch (error) {
      report(error);
      // Files may have changed since the plan was made.
      loaded.reload();
    }
  };
  return (
    <Dialog
      title={checkpoint ? `Rewind to #${checkpoint.seq}` : "Undo the last rewind"}
      onClose={onClose}
      foot={<Button look={foreign.length > 0 ? "danger" : "primary"} disabled={!isReady} onClick={run}>{checkpoint ? "Rewind" : "Undo"}</Button>}
    >
      <div class="stack">
        {checkpoint && (
          <fieldset class="stack-tight">
            <legend class="muted small">What goes back</legend>
            {(Object.keys(PARTS) as Part[]).map((name) => (
              <label key={name} class="check">
                <input type="radio" name="part" checked={part === name} disabled={!checkpoint.hasFiles && name !== "conversation"} onChange={() => setPart(name)} />
                <span>{PARTS[name]}</span>
              </label>
            ))}
            {!checkpoint.hasFiles && <p class="muted small">This checkpoint has no snapshot of the files.</p>}
          </fieldset>
        )}
        {loaded.error && <Problem text={loaded.error} onRetry={loaded.reload} />}
        {!plan && !loaded.error && <Loading what="Asking what would happen" since={loaded.since} />}
        {plan && <Plan plan={plan} />}
        {foreign.length > 0 && (
          <div class="stack-tight" data-foreign>
            <p><strong>{plural(foreign.length, "file")} changed that this session did not change:</strong></p>
            <Paths paths={foreign} />
            <label class="check">
              <input type="checkbox" checked={isForced} onChange={(event) => setForced(event.currentTarget.checked)} />
              <span>Overwrite these changes, too</span>
            </label>
          </div>
        )}
        {isOpen && (
          <label class="check">
            <input type="checkbox" checked={isCancelling} onChange={(event) => setCancelling(event.currentTarget.checked)} />
            <span>Cancel the run that is open first</span>
          </label>
        )}
      </div>
    </Dialog>
  );
}

function Plan({ plan }: { plan: Schemas["RewindResult"] }) {
  const { files, conversation } = plan;
  return (
    <div class="stack-tight" data-plan>
      {files && (
        <>
          <p>{files.changes_total === 0 ? "No file differs." : `${plural(files.changes_total, "file")} will be restored. They are saved first, so that it can be undone.`}</p>
          <ChangeList changes={files.changes} total={files.changes_total} />
        </>
      )}
      {conversation && <p>What was said after that point stays readable, and is left behind. The agent gets a fresh start. {CONTEXT[conversation.context] ?? ""}</p>}
    </div>
  );
}

function Paths({ paths }: { paths: readonly string[] }) {
  return (
    <ul class="mono small">
      {paths.slice(0, PATHS_SHOWN).map((path) => <li key={path} class="wrap">{revealed(path)}</li>)}
      {paths.length > PATHS_SHOWN && <li class="muted">and {plural(paths.length - PATHS_SHOWN, "more file")}</li>}
    </ul>
  );
}

const SIGN: Record<string, [string, string]> = { added: ["+", "added"], removed: ["−", "removed"], modified: ["~", ""] };

/** Which files differ, and how. */
export function ChangeList({ changes, total }: { changes: readonly Schemas["FileChange"][]; total?: number }) {
  const all = total ?? changes.length;
  if (all === 0) return null;
  return (
    <ul class="mono small change-list">
      {changes.slice(0, PATHS_SHOWN).map(({ path, change }) => (
        <li key={path} class="wrap" data-change={change}>
          <span class={SIGN[change]?.[1]} title={change}>{SIGN[change]?.[0] ?? "~"}</span> {revealed(path)}<span class="visually-hidden"> {change}</span>
        </li>
      ))}
      {all > PATHS_SHOWN && <li class="muted">and {plural(all - PATHS_SHOWN, "more file")}</li>}
    </ul>
  );
}
