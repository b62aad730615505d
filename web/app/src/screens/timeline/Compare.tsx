// How files, or a graph's memory, differ between two points.
import type { Schemas } from "piton-client";
import { api } from "../../data/actions.ts";
import { readable } from "../../lib/text.ts";
import { Loading } from "../../ui/parts.tsx";
import { useLoaded } from "../workspace/load.ts";
import { asText } from "../graph/MemoryEditor.tsx";
import type { Checkpoint } from "./checkpoints.ts";
import { ChangeList } from "./RewindDialog.tsx";

/** Values longer than this are cut off. */
const VALUE_MAX = 2_000;

type Props = { sessionId: string; from: Checkpoint; /** Null: now. */ to: Checkpoint | null };

export function FileCompare({ sessionId, from, to }: Props) {
  const loaded = useLoaded(`files ${sessionId} ${from.id} ${to?.id ?? ""}`, () => api(sessionId).filesDiff(from.id, to?.id));
  if (loaded.error) return <p class="muted small">{loaded.error}</p>;
  if (!loaded.value) return <Loading what="Comparing the files" since={loaded.since} />;
  const { changes } = loaded.value;
  return (
    <div class="stack-tight" data-compare="files">
      <h3 class="small">Files{to ? "" : ", compared with now"}</h3>
      {changes.length === 0 ? <p class="muted small">No file differs.</p> : <ChangeList changes={changes} />}
    </div>
  );
}

export function MemoryCompare({ sessionId, from, to }: Props) {
  const loaded = useLoaded(`memory ${sessionId} ${from.id} ${to?.id ?? ""}`, () => api(sessionId).memoryDiff(from.id, to?.id ?? "latest"));
  if (loaded.error) return <p class="muted small">{loaded.error}</p>;
  if (!loaded.value) return <Loading what="Comparing the memory" since={loaded.since} />;
  const { memory, nodes_completed, nodes_undone } = loaded.value;
  return (
    <div class="stack-tight" data-compare="memory">
      <h3 class="small">Memory{to ? "" : ", compared with the newest checkpoint"}</h3>
      <Changes changes={memory} />
      {nodes_completed.length > 0 && <p class="small">Completed in between: <span class="mono">{readable(nodes_completed.join(", "))}</span></p>}
      {nodes_undone.length > 0 && <p class="small">Left behind: <span class="mono">{readable(nodes_undone.join(", "))}</span></p>}
    </div>
  );
}

const shown = (value: unknown): string => {
  const text = readable(asText(value));
  return text.length > VALUE_MAX ? `${text.slice(0, VALUE_MAX)}…` : text;
};

function Changes({ changes }: { changes: Schemas["KeyChanges"] }) {
  const rows = [
    ...Object.entries(changes.added).map(([key, after]) => ({ key, before: undefined, after })),
    ...Object.entries(changes.removed).map(([key, before]) => ({ key, before, after: undefined })),
    ...Object.entries(changes.changed).map(([key, pair]) => ({ key, ...sides(pair) })),
  ];
  if (rows.length === 0) return <p class="muted small">No value differs.</p>;
  return (
    <dl class="memory-diff">
      {rows.map(({ key, before, after }) => (
        <div key={key} data-key={key}>
          <dt class="mono small">{readable(key)}</dt>
          {before !== undefined && <dd class="mono small removed"><span class="visually-hidden">before: </span>− {shown(before)}</dd>}
          {after !== undefined && <dd class="mono small added"><span class="visually-hidden">after: </span>+ {shown(after)}</dd>}
        </div>
      ))}
    </dl>
  );
}

/** A changed value: what it was and what it is. */
function sides(pair: unknown): { before: unknown; after: unknown } {
  const { from, to } = Object(pair) as { from?: unknown; to?: unknown };
  return { before: from, after: to };
}
