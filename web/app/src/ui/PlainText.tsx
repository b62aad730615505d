import { useState } from "preact/hooks";
import { bytes } from "../lib/format.ts";
import { Button } from "./Button.tsx";

const SHOWN_CHARS = 20_000;
const STEP_CHARS = 200_000;

/** How many characters are shown at first. */
function beginning(text: string, lines: number | undefined): number {
  if (lines === undefined) return SHOWN_CHARS;
  let at = -1;
  for (let line = 0; line < lines; line += 1) {
    at = text.indexOf("\n", at + 1);
    if (at < 0) return SHOWN_CHARS;
  }
  return Math.min(at, SHOWN_CHARS);
}

/** Text as it is, a piece at a time: a message of 5 MB must not become 5 MB of page at once. */
export function PlainText({ text, mono, lines }: { text: string; mono?: boolean; /** At most so many at first. */ lines?: number }) {
  const [shown, setShown] = useState(() => beginning(text, lines));
  const rest = text.length - shown;
  return (
    <div class={mono ? "plain-text mono" : "plain-text"}>
      <p>{rest > 0 ? text.slice(0, shown) : text}</p>
      {rest > 0 && (
        <p class="row-wrap">
          <Button dense onClick={() => setShown(shown + STEP_CHARS)}>
            Show more
          </Button>
          <span class="muted small">{bytes(rest)} not shown</span>
        </p>
      )}
    </div>
  );
}
