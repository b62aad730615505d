import { memo } from "preact/compat";
import { useMemo, useState } from "preact/hooks";
import { elapsed } from "../../lib/format.ts";
import { revealed, terminalText } from "../../lib/text.ts";
import { DiffCount, DiffView } from "../../ui/DiffView.tsx";
import { Elapsed } from "../../ui/parts.tsx";
import { Icon } from "../../ui/Icon.tsx";
import { PlainText } from "../../ui/PlainText.tsx";
import { ImageBlock } from "./ImageBlock.tsx";
import { describe, diffsOf, exitCodeOf, outputOf, relative, type ToolItem } from "./tool.ts";

const STATES = {
  pending: { sign: "●", label: "running", tone: "accent" },
  succeeded: { sign: "✓", label: "done", tone: "ok" },
  failed: { sign: "✕", label: "failed", tone: "error" },
  cancelled: { sign: "–", label: "cancelled", tone: "normal" },
  unknown: { sign: "?", label: "outcome not known", tone: "waiting" },
} as const;

/** Edits are open from the beginning, if they are short enough to read in passing. */
const OPEN_DIFF_LINES_MAX = 24;

function seconds(item: ToolItem): number | null {
  return item.ended_at ? (new Date(item.ended_at).getTime() - new Date(item.ts).getTime()) / 1000 : null;
}

export const ToolCall = memo(({ item, folder }: { item: ToolItem; folder: string | null }) => {
  const diffs = useMemo(() => diffsOf(item), [item]);
  const lines = diffs.reduce((sum, file) => sum + file.added + file.removed, 0);
  const [chosen, setChosen] = useState<boolean | null>(null);
  const isOpen = chosen ?? (lines > 0 && lines <= OPEN_DIFF_LINES_MAX);
  const { verb, object } = describe(item, folder);
  const state = STATES[item.status];
  const took = seconds(item);
  return (
    <div class="tool" data-status={item.status}>
      <button type="button" class="tool-head" aria-expanded={isOpen} onClick={() => setChosen(!isOpen)}>
        <span class="tool-chevron" data-open={isOpen ? "" : undefined}>
          <Icon name="chevron" small />
        </span>
        <span class="tool-state" data-tone={state.tone} title={state.label}>
          <span aria-hidden="true">{state.sign}</span>
          <span class="visually-hidden">{state.label}: </span>
        </span>
        <span class="tool-verb">{verb}</span>
        <span class="tool-object mono">{revealed(object)}</span>
        <span class="tool-aside">
          {lines > 0 && <DiffCount added={sum(diffs, "added")} removed={sum(diffs, "removed")} />}
          {item.status === "pending" && <Elapsed since={item.ts} />}
          {took !== null && took >= 0.1 && lines === 0 && <span class="numeric">{took < 10 ? `${took.toFixed(1)} s` : elapsed(took)}</span>}
        </span>
      </button>
      {item.status === "unknown" && (
        <p class="tool-note">The outcome is not in the log: it may have happened, wholly or in part.</p>
      )}
      {isOpen && <Details item={item} diffs={diffs} folder={folder} />}
    </div>
  );
});

function sum(diffs: ReturnType<typeof diffsOf>, what: "added" | "removed"): number {
  return diffs.reduce((total, file) => total + file[what], 0);
}

function Details({ item, diffs, folder }: { item: ToolItem; diffs: ReturnType<typeof diffsOf>; folder: string | null }) {
  const output = useMemo(() => outputOf(item), [item]);
  const exit = exitCodeOf(item);
  const hasArguments = item.arguments !== null && diffs.length === 0 && Object.keys(Object(item.arguments)).length > 0;
  return (
    <div class="tool-details">
      {diffs.map((file) => (
        <div key={file.path}>
          {diffs.length > 1 && <p class="tool-path mono">{revealed(relative(file.path, folder))}</p>}
          <DiffView file={file} />
        </div>
      ))}
      {hasArguments && (
        <>
          <h3 class="tool-label">Arguments</h3>
          <pre class="tool-text" tabIndex={0}>{revealed(argumentsText(item.arguments))}</pre>
        </>
      )}
      {output.text !== "" && diffs.length === 0 && (
        <>
          <h3 class="tool-label">Output</h3>
          <div class="tool-text" tabIndex={0} role="region" aria-label="Output">
            <PlainText text={terminalText(output.text)} mono />
          </div>
        </>
      )}
      {output.images.map((image, at) => <ImageBlock key={at} {...image} />)}
      {exit !== null && <p class="muted small">Exit status {exit}</p>}
      {output.text === "" && !hasArguments && diffs.length === 0 && <p class="muted small">Nothing more is known about this call.</p>}
    </div>
  );
}

/** A single text argument is shown as it is, others as JSON. */
function argumentsText(args: unknown): string {
  const values = Object.values(Object(args));
  if (typeof args === "string") return args;
  if (values.length === 1 && typeof values[0] === "string") return values[0];
  return JSON.stringify(args, null, 2);
}
