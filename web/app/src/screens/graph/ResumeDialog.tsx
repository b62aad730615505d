import type { Schemas } from "piton-client";
import { useState } from "preact/hooks";
import { api } from "../../data/actions.ts";
import { Button } from "../../ui/Button.tsx";
import { Dialog } from "../../ui/Dialog.tsx";
import { Loading } from "../../ui/parts.tsx";
import { report, say } from "../../ui/toasts.ts";
import { Problem } from "../workspace/Problem.tsx";
import { useLoaded } from "../workspace/load.ts";
import { changed, type Edits, MemoryEditor } from "./MemoryEditor.tsx";

type Memory = Record<string, unknown>;
type Start = { memory: Memory; excluded: readonly string[]; missing: readonly string[]; failedAt: string | null };

/** Keys that nodes read and nothing sets. */
function missingKeys(nodes: Schemas["GraphView"]["nodes"], memory: Memory): string[] {
  const written = new Set(nodes.flatMap((node) => node.writes));
  return [...new Set(nodes.flatMap((node) => node.reads))].filter((key) => !(key in memory) && !written.has(key));
}

async function readStart(sessionId: string, checkpointId: string | null): Promise<Start> {
  const own = api(sessionId);
  const view = await own.graph({ memory: true });
  const point = checkpointId === null ? null : await own.checkpoint(checkpointId, { memory: true });
  const memory = ((point ? point.shared_memory : view.memory) ?? {}) as Memory;
  // From a checkpoint, nodes that have completed since run again.
  const open = view.nodes.filter((node) => point !== null || (node.state !== "completed" && node.state !== "skipped"));
  return { memory, excluded: point?.excluded_keys ?? view.excluded_keys, missing: missingKeys(open, memory), failedAt: point ? null : (view.failed_at_node ?? null) };
}

type Props = { sessionId: string; /** Null: where it stood. */ checkpointId: string | null; onClose: () => void; onResumed?: () => void };

/** Resumes a graph, with values of its memory set first. */
export function ResumeDialog({ sessionId, checkpointId, onClose, onResumed }: Props) {
  const [edits, setEdits] = useState<Edits>({});
  const loaded = useLoaded(`${sessionId} ${checkpointId ?? ""}`, () => readStart(sessionId, checkpointId));
  const start = loaded.value;
  const set = start ? changed(edits, start.memory) : {};
  const keys = Object.keys(set);
  const resume = async () => {
    try {
      await api(sessionId).resumeGraph({ ...(checkpointId === null ? {} : { checkpoint_id: checkpointId }), ...(keys.length > 0 ? { set: set as Schemas["ResumeGraphRequest"]["set"] } : {}) } as Schemas["ResumeGraphRequest"]);
      say(keys.length === 0 ? "The graph continues." : `The graph continues with ${keys.join(", ")} set.`);
      onResumed?.();
      onClose();
    } catch (error) {
      report(error);
    }
  };
  return (
    <Dialog
      title={checkpointId === null ? "Resume the graph" : "Resume from this checkpoint"}
      onClose={onClose}
      foot={
        <Button look="primary" disabled={!start} onClick={resume}>
          {keys.length === 0 ? "Resume" : `Resume with ${keys.length === 1 ? keys[0] : `${keys.length} values`} set`}
        </Button>
      }
    >
      {loaded.error && <Problem text={loaded.error} onRetry={loaded.reload} />}
      {!start && !loaded.error && <Loading what="Reading the memory" since={loaded.since} />}
      {start && (
        <div class="stack">
          <p>
            {checkpointId !== null
              ? "What came after the checkpoint stays in the log and counts no more."
              : start.failedAt
                ? <>It continues at <code>{start.failedAt}</code>. Nodes that completed do not run again.</>
                : "It continues where it stood. Nodes that completed do not run again."}
          </p>
          <MemoryEditor memory={start.memory} excluded={start.excluded} missing={start.missing} edits={edits} onEdit={setEdits} />
        </div>
      )}
    </Dialog>
  );
}
