import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Highlighted } from "../lib/highlight.ts";
import { Button } from "./Button.tsx";
import { say } from "./toasts.ts";

/** Longer code stays plain: colouring it would hold the page up. */
const HIGHLIGHTED_CHARS_MAX = 40_000;

export function useHighlighted(code: string, language: string): Highlighted[] | null {
  const [result, setResult] = useState<{ code: string; parts: Highlighted[] } | null>(null);
  useEffect(() => {
    if (!language || code.length > HIGHLIGHTED_CHARS_MAX) return;
    let isCurrent = true;
    void import("../lib/highlight.ts").then(({ highlight }) => {
      const parts = highlight(code, language);
      if (isCurrent && parts) setResult({ code, parts });
    });
    return () => {
      isCurrent = false;
    };
  }, [code, language]);
  return result?.code === code ? result.parts : null;
}

export function spans(parts: readonly Highlighted[]): ComponentChildren {
  return parts.map((part, at) => (part.kind ? <span key={at} class={`code-${part.kind}`}>{part.text}</span> : part.text));
}

export async function copy(text: string): Promise<void> {
  if (!navigator.clipboard) throw new Error("This page may not use the clipboard: it was not loaded over HTTPS or from this machine");
  await navigator.clipboard.writeText(text);
  say("Copied");
}

export function CodeBlock({ code, language }: { code: string; language: string }) {
  const parts = useHighlighted(code, language);
  return (
    <figure class="code-block">
      <figcaption>
        <span class="muted small">{language || "text"}</span>
        <Button icon="copy" look="plain" dense label="Copy code" onClick={() => copy(code)} />
      </figcaption>
      <pre tabIndex={0} aria-label={`Code${language ? ` (${language})` : ""}`}>
        <code>{parts ? spans(parts) : code}</code>
      </pre>
    </figure>
  );
}
