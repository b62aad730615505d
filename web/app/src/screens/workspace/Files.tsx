import type { FileEntry } from "piton-client";
import { useState } from "preact/hooks";
import { api } from "../../data/actions.ts";
import type { OpenSession } from "../../data/session.ts";
import { bytes } from "../../lib/format.ts";
import { revealed } from "../../lib/text.ts";
import { Button } from "../../ui/Button.tsx";
import { Icon } from "../../ui/Icon.tsx";
import { Loading } from "../../ui/parts.tsx";
import { Problem } from "./Problem.tsx";
import { FileView } from "./FileView.tsx";
import { useLoaded } from "./load.ts";

const join = (folder: string, name: string) => (folder ? `${folder}/${name}` : name);

export function Files({ session }: { session: OpenSession }) {
  const [open, setOpen] = useState<string | null>(null);
  const [version, setVersion] = useState(0);
  return (
    <div class="split">
      <nav class="split-side" aria-label="Files">
        <div class="row">
          <span class="grow muted small truncate" title={session.status.value?.working_dir ?? ""}>{session.status.value?.worktree_path ?? session.status.value?.working_dir}</span>
          <Button dense look="plain" onClick={() => setVersion(version + 1)}>Refresh</Button>
        </div>
        <Folder key={version} id={session.id} path="" open={open} onOpen={setOpen} />
      </nav>
      <div class="split-main">
        {open ? <FileView key={open} id={session.id} path={open} /> : <div class="empty"><p>Choose a file to read it.</p></div>}
      </div>
    </div>
  );
}

type FolderProps = { id: string; path: string; open: string | null; onOpen: (path: string) => void };

function Folder(props: FolderProps) {
  const loaded = useLoaded(`${props.id} ${props.path}`, () => api(props.id).files(props.path));
  if (loaded.error) return <Problem text={loaded.error} onRetry={loaded.reload} />;
  if (!loaded.value) return <Loading what="Reading the folder" since={loaded.since} />;
  const entries = [...loaded.value.files].sort((a, b) => Number(b.kind === "folder") - Number(a.kind === "folder") || a.name.localeCompare(b.name));
  return (
    <ul>
      {entries.map((entry) => <Entry key={entry.name} entry={entry} {...props} />)}
      {entries.length === 0 && <li class="muted small">Empty</li>}
      {loaded.value.truncated && <li class="muted small">There are more entries than can be listed.</li>}
    </ul>
  );
}

function Entry({ entry, ...props }: { entry: FileEntry } & FolderProps) {
  const [isOpen, setOpen] = useState(false);
  const path = join(props.path, entry.name);
  const isFolder = entry.kind === "folder";
  return (
    <li>
      <button
        type="button"
        class="tree-row"
        aria-expanded={isFolder ? isOpen : undefined}
        aria-current={props.open === path ? "true" : undefined}
        onClick={() => (isFolder ? setOpen(!isOpen) : props.onOpen(path))}
      >
        <Icon name={isFolder ? "folder" : "file"} small />
        <span class="truncate grow">{revealed(entry.name)}</span>
        {!isFolder && <span class="muted small nowrap numeric">{bytes(entry.bytes)}</span>}
      </button>
      {isFolder && isOpen && (
        <div class="tree-children">
          <Folder {...props} path={path} />
        </div>
      )}
    </li>
  );
}
