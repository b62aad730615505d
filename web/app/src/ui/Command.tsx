import { revealed } from "../lib/text.ts";
import { Button } from "./Button.tsx";
import { copy } from "./CodeBlock.tsx";

/** A command for a terminal, as it is, with a button that copies it. */
export function Command({ text, label }: { text: string; label: string }) {
  return (
    <div class="command-row">
      <pre class="command" tabIndex={0} aria-label={label}>{revealed(text)}</pre>
      <Button icon="copy" look="plain" dense label={`Copy: ${label}`} onClick={() => copy(text)} />
    </div>
  );
}
