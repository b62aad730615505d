import { useState } from "preact/hooks";
import { readable } from "../../lib/text.ts";
import { Field } from "../../ui/parts.tsx";

/** A value as it is edited: text as it is, everything else as JSON. */
export function asText(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** Text that is JSON is that value, unless the value was text before; all else is text. */
export function asValue(text: string, before: unknown): unknown {
  if (typeof before === "string") return text;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

/** Keys whose values the server does not save unless it is told otherwise. */
const SECRET = /api_?key|token$|secret|password|credentials/i;

export type Edits = Readonly<Record<string, string>>;

/** The keys whose values differ from what is there. */
export function changed(edits: Edits, memory: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const differing = Object.entries(edits).filter(([key, text]) => !(key in memory) || text !== asText(memory[key]));
  return Object.fromEntries(differing.map(([key, text]) => [key, asValue(text, memory[key])]));
}

type Props = { memory: Readonly<Record<string, unknown>>; excluded: readonly string[]; /** Keys that nodes read and nothing has set. */ missing: readonly string[]; edits: Edits; onEdit: (edits: Edits) => void };

/** The values of a graph's memory, each of which can be set before it is resumed. */
export function MemoryEditor({ memory, excluded, missing, edits, onEdit }: Props) {
  const [added, setAdded] = useState("");
  const keys = [...new Set([...Object.keys(memory), ...excluded, ...missing, ...Object.keys(edits)])].sort();
  const set = (key: string, text: string) => onEdit({ ...edits, [key]: text });
  return (
    <div class="stack" role="group" aria-label="Memory">
      {keys.map((key) => {
        const isSecret = excluded.includes(key) || SECRET.test(key);
        const shown = edits[key] ?? (key in memory && !isSecret ? asText(memory[key]) : "");
        const hint = isSecret ? "Its value is never saved: set it again if a node needs it." : key in memory ? undefined : "Not set";
        return (
          <Field key={key} label={readable(key)} hint={hint}>
            {({ id, describedBy }) =>
              isSecret ? (
                <input id={id} class="input mono" type="password" autocomplete="off" value={shown} aria-describedby={describedBy} onInput={(event) => set(key, event.currentTarget.value)} />
              ) : (
                <textarea id={id} class="input mono" rows={Math.min(6, shown.split("\n").length)} value={shown} aria-describedby={describedBy} onInput={(event) => set(key, event.currentTarget.value)} />
              )
            }
          </Field>
        );
      })}
      <form
        class="row"
        onSubmit={(event) => {
          event.preventDefault();
          if (added.trim() !== "") set(added.trim(), "");
          setAdded("");
        }}
      >
        <input class="input mono grow" aria-label="Another key" placeholder="Another key" value={added} onInput={(event) => setAdded(event.currentTarget.value)} />
        <button type="submit" class="button" disabled={added.trim() === ""}>Add</button>
      </form>
    </div>
  );
}
