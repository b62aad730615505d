import { useState } from "preact/hooks";
import { api } from "../../data/actions.ts";
import type { OpenSession } from "../../data/session.ts";
import { titleOf } from "../../data/states.ts";
import { plural } from "../../lib/format.ts";
import { readable } from "../../lib/text.ts";
import { Button } from "../../ui/Button.tsx";
import { Dialog } from "../../ui/Dialog.tsx";
import { Card, Field } from "../../ui/parts.tsx";
import { report, say, sentenceOf } from "../../ui/toasts.ts";
import { useLoaded } from "../workspace/load.ts";
import { type Branch, commit, isConflict, merge, push, readBranch, type Strategy } from "./branch.ts";

const STRATEGIES: { name: Strategy; label: string; note: string }[] = [
  { name: "merge", label: "Merge", note: "All commits, and one that joins them" },
  { name: "squash", label: "Squash", note: "All changes as one commit" },
  { name: "rebase", label: "Rebase", note: "The commits again, behind those of the base" },
];

/** Commit, bring the branch into its base, push: each only on a click, with your own git's hooks and credentials. */
export function FinishBar({ session, onDone, version }: { session: OpenSession; onDone: () => void; version: string }) {
  const loaded = useLoaded(session.id, () => readBranch(session.id), version);
  const [step, setStep] = useState<"commit" | "merge" | null>(null);
  const [conflict, setConflict] = useState<string | null>(null);
  const branch = loaded.value;
  if (!branch?.branch) return null;
  const done = () => {
    setStep(null);
    loaded.reload();
    onDone();
  };
  const pushNow = async () => {
    const pushed = await push(session.id);
    say(`Pushed ${pushed.branch} to ${pushed.remote}`);
    done();
  };
  const isOnBase = branch.base === branch.branch;
  return (
    <div class="panel-bar" role="group" aria-label="Finish the work">
      <span class="small muted">{stands(branch)}</span>
      <span class="grow" />
      <Button dense disabled={branch.uncommitted === 0} onClick={() => setStep("commit")}>Commit…</Button>
      {branch.base && !isOnBase && <Button dense disabled={branch.ahead === 0 || branch.uncommitted > 0} onClick={() => setStep("merge")}>Merge into {branch.base}…</Button>}
      {branch.remotes.length > 0 && <Button dense onClick={pushNow}>Push</Button>}
      {conflict && <Conflict session={session} base={branch.base ?? "the base"} text={conflict} onClose={() => setConflict(null)} />}
      {step === "commit" && <CommitDialog session={session} onDone={done} onClose={() => setStep(null)} />}
      {step === "merge" && <MergeDialog session={session} branch={branch} onDone={done} onClose={() => setStep(null)} onConflict={(text) => { setStep(null); setConflict(text); }} />}
    </div>
  );
}

function stands(branch: Branch): string {
  const parts = [branch.uncommitted > 0 ? `${plural(branch.uncommitted, "file")} not committed` : "everything is committed"];
  if (branch.base && branch.base !== branch.branch) parts.push(`${plural(branch.ahead, "commit")} ahead of ${branch.base}${branch.behind > 0 ? `, ${branch.behind} behind` : ""}`);
  return parts.join(" · ");
}

function CommitDialog({ session, onDone, onClose }: { session: OpenSession; onDone: () => void; onClose: () => void }) {
  const [message, setMessage] = useState(session.status.value ? titleOf(session.status.value) : "");
  const commitNow = async () => {
    try {
      const made = await commit(session.id, message.trim());
      say(`Committed ${made.commit.slice(0, 7)}`);
      onDone();
    } catch (error) {
      report(error);
    }
  };
  return (
    <Dialog title="Commit everything that has changed" onClose={onClose} foot={<Button look="primary" disabled={message.trim() === ""} onClick={commitNow}>Commit</Button>}>
      <Field label="Message">
        {({ id }) => <textarea id={id} class="input" rows={4} data-autofocus value={message} onInput={(event) => setMessage(event.currentTarget.value)} />}
      </Field>
    </Dialog>
  );
}

type MergeProps = { session: OpenSession; branch: Branch; onDone: () => void; onClose: () => void; onConflict: (text: string) => void };

function MergeDialog({ session, branch, onDone, onClose, onConflict }: MergeProps) {
  const [strategy, setStrategy] = useState<Strategy>("merge");
  const mergeNow = async () => {
    try {
      const merged = await merge(session.id, strategy);
      say(merged.was_up_to_date ? `${merged.into} had everything already` : `${merged.into} is at ${merged.commit.slice(0, 7)} now`);
      onDone();
    } catch (error) {
      if (isConflict(error)) onConflict(sentenceOf(error));
      else report(error);
    }
  };
  return (
    <Dialog title={`Bring ${branch.branch ?? ""} into ${branch.base ?? ""}`} onClose={onClose} foot={<Button look="primary" onClick={mergeNow}>{STRATEGIES.find(({ name }) => name === strategy)?.label}</Button>}>
      <fieldset class="stack-tight">
        <legend class="visually-hidden">How</legend>
        {STRATEGIES.map(({ name, label, note }) => (
          <label key={name} class="check">
            <input type="radio" name="strategy" checked={strategy === name} onChange={() => setStrategy(name)} />
            <span>{label} <span class="muted small">{note}</span></span>
          </label>
        ))}
      </fieldset>
    </Dialog>
  );
}

function Conflict({ session, base, text, onClose }: { session: OpenSession; base: string; text: string; onClose: () => void }) {
  const ask = async () => {
    await api(session.id).prompt(`Merge the branch ${base} into this branch, resolve the conflicts, run the tests and commit.`);
    onClose();
  };
  return (
    <Card
      tone="waiting"
      name="merge-conflict"
      title="Both sides changed the same lines"
      actions={
        <>
          <Button look="primary" onClick={ask}>Ask the agent to resolve it</Button>
          <Button look="plain" onClick={onClose}>Close</Button>
        </>
      }
    >
      <p class="wrap">{readable(text)}</p>
      <p class="muted">Nothing was changed: HEAD, index and files are as they were.</p>
    </Card>
  );
}
