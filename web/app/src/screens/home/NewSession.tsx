import { useEffect, useState } from "preact/hooks";
import { agents, loadAgents } from "../../data/agents.ts";
import { newSessionDialog, type NewSessionDefaults } from "../../data/dialogs.ts";
import { list, tasksById } from "../../data/home.ts";
import { load } from "../../lib/storage.ts";
import { Button } from "../../ui/Button.tsx";
import { Dialog } from "../../ui/Dialog.tsx";
import { Field } from "../../ui/parts.tsx";
import { report } from "../../ui/toasts.ts";
import { AgentPicker } from "./AgentPicker.tsx";
import { createSessions, LAST_AGENT_KEY, type Place } from "./create.ts";

export function NewSessionDialog() {
  const defaults = newSessionDialog.value;
  if (!defaults) return null;
  return <Form defaults={defaults} />;
}

function recentFolders(): string[] {
  const folders = list.value.sessions.map((session) => session.working_dir ?? "").filter((folder) => folder !== "");
  return [...new Set(folders)].slice(0, 12);
}

function Form({ defaults }: { defaults: NewSessionDefaults }) {
  const recent = recentFolders();
  const [prompt, setPrompt] = useState("");
  const [chosen, setChosen] = useState<readonly string[]>(() => {
    const first = defaults.agent ?? load(LAST_AGENT_KEY) ?? agents.value.find((agent) => agent.is_installed)?.agent_profile_id;
    return first ? [first] : [];
  });
  const [place, setPlace] = useState<Place>({ folder: defaults.folder ?? recent[0] ?? "", isWorktree: false, base: "" });
  const [isBusy, setBusy] = useState(false);
  const close = () => {
    newSessionDialog.value = null;
  };
  useEffect(() => {
    loadAgents().catch(report);
  }, []);
  const isWorktree = place.isWorktree || chosen.length > 1;
  const canCreate = chosen.length > 0 && place.folder.trim() !== "" && !isBusy;
  const create = async () => {
    if (!canCreate) return;
    setBusy(true);
    try {
      await createSessions({ prompt, agents: chosen, place: { ...place, isWorktree }, task: defaults.task });
      close();
    } catch (error) {
      report(error);
    } finally {
      setBusy(false);
    }
  };
  const task = defaults.task ? tasksById.value.get(defaults.task) : undefined;
  return (
    <Dialog
      title={task ? `New session for “${task.title}”` : "New session"}
      onClose={close}
      foot={
        <>
          <Button look="plain" onClick={close}>Cancel</Button>
          <Button look="primary" disabled={!canCreate} onClick={create}>{prompt.trim() ? "Start" : "Create"}</Button>
        </>
      }
    >
      <Field label="What should be done?" hint="Ctrl-Enter starts.">
        {({ id, describedBy }) => (
          <textarea
            id={id}
            aria-describedby={describedBy}
            class="input"
            rows={4}
            data-autofocus
            value={prompt}
            onInput={(event) => setPrompt(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void create();
            }}
          />
        )}
      </Field>
      <AgentPicker chosen={chosen} onChange={setChosen} />
      <PlaceFields place={{ ...place, isWorktree }} recent={recent} isWorktreeForced={chosen.length > 1} onChange={setPlace} />
    </Dialog>
  );
}

type PlaceProps = { place: Place; recent: readonly string[]; isWorktreeForced: boolean; onChange: (place: Place) => void };

function PlaceFields({ place, recent, isWorktreeForced, onChange }: PlaceProps) {
  return (
    <>
      <Field label={place.isWorktree ? "Repository" : "Folder"} hint="A path on the machine that Piton runs on.">
        {({ id, describedBy }) => (
          <>
            <input
              id={id}
              aria-describedby={describedBy}
              class="input mono"
              list={`${id}-recent`}
              value={place.folder}
              placeholder="An absolute path"
              autocomplete="off"
              spellcheck={false}
              onInput={(event) => onChange({ ...place, folder: event.currentTarget.value })}
            />
            <datalist id={`${id}-recent`}>{recent.map((folder) => <option key={folder} value={folder} />)}</datalist>
          </>
        )}
      </Field>
      <label class="check">
        <input type="checkbox" checked={place.isWorktree} disabled={isWorktreeForced} onChange={(event) => onChange({ ...place, isWorktree: event.currentTarget.checked })} />
        <span>
          In a git worktree and branch of its own
          {isWorktreeForced && <span class="muted small"> (several agents must not share a folder)</span>}
        </span>
      </label>
      {place.isWorktree && (
        <Field label="Base branch" hint="Where the new branch begins; empty: the repository's HEAD.">
          {({ id, describedBy }) => (
            <input id={id} aria-describedby={describedBy} class="input mono" value={place.base} placeholder="main" spellcheck={false} onInput={(event) => onChange({ ...place, base: event.currentTarget.value })} />
          )}
        </Field>
      )}
    </>
  );
}
