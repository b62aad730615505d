// The smallest parts that every screen uses.
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import { now } from "../lib/now.ts";
import { ago, elapsed, exact } from "../lib/format.ts";
import { Icon } from "./Icon.tsx";

export type Tone = "normal" | "waiting" | "error" | "ok" | "accent";

/** "5 min", with the exact time on hover. */
export function Ago({ at }: { at: string }) {
  return (
    <time class="nowrap numeric" dateTime={at} title={exact(at)}>
      {ago(at, now.value)}
    </time>
  );
}

/** "3 m 12 s", counting. */
export function Elapsed({ since }: { since: string }) {
  return (
    <time class="nowrap numeric" dateTime={since} title={exact(since)}>
      {elapsed((now.value - new Date(since).getTime()) / 1000)}
    </time>
  );
}

export function Badge({ tone, children, title }: { tone?: Tone; children: ComponentChildren; title?: string }) {
  return (
    <span class="badge" data-tone={tone} title={title}>
      {children}
    </span>
  );
}

type CardProps = {
  tone?: Tone;
  title: ComponentChildren;
  aside?: ComponentChildren;
  children?: ComponentChildren;
  actions?: ComponentChildren;
  /** Names the card for tests and for links to it. */
  name?: string;
};

/** What a state looks like: one heading, what happened, what can be done. */
export function Card(props: CardProps) {
  const id = useId();
  return (
    <section class="card" data-tone={props.tone} data-card={props.name} aria-labelledby={id}>
      <h2 class="card-title" id={id}>
        <span class="grow">{props.title}</span>
        {props.aside && <span class="aside">{props.aside}</span>}
      </h2>
      {props.children}
      {props.actions && <div class="card-actions">{props.actions}</div>}
    </section>
  );
}

type FieldProps = { label: string; hint?: ComponentChildren; children: (ids: { id: string; describedBy: string | undefined }) => ComponentChildren };

export function Field(props: FieldProps) {
  const id = useId();
  const hint = `${id}-hint`;
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      {props.children({ id, describedBy: props.hint ? hint : undefined })}
      {props.hint && (
        <p class="hint" id={hint}>
          {props.hint}
        </p>
      )}
    </div>
  );
}

export function Disclosure(props: {
  summary: ComponentChildren;
  children: ComponentChildren;
  open?: boolean;
  class?: string;
  onToggle?: (isOpen: boolean) => void;
}) {
  return (
    <details
      class={`disclosure ${props.class ?? ""}`}
      open={props.open}
      onToggle={(event) => props.onToggle?.(event.currentTarget.open)}
    >
      <summary>
        <span class="chevron">
          <Icon name="chevron" small />
        </span>
        {props.summary}
      </summary>
      {props.children}
    </details>
  );
}

/** A page's part that is being loaded: says so only when it takes a moment. */
export function Loading({ what, since }: { what: string; since: string }) {
  const seconds = (now.value - new Date(since).getTime()) / 1000;
  return (
    <p class="muted small" role="status">
      {seconds < 1 ? "" : `${what} · ${elapsed(seconds)}`}
    </p>
  );
}
