import type { MarkName } from "../data/states.ts";
import type { Tone } from "./parts.tsx";

/** A session's state as a shape and a colour, so that neither is needed alone. */
export function Mark({ name, tone, label }: { name: MarkName; tone: Tone; label: string }) {
  return (
    <span class="mark" data-tone={tone} title={label}>
      <svg viewBox="0 0 16 16" aria-hidden="true" focusable="false">
        {SHAPES[name]}
      </svg>
      <span class="visually-hidden">{label}: </span>
    </span>
  );
}

const stroke = { fill: "none", stroke: "currentColor", "stroke-width": 2, "stroke-linecap": "round" } as const;

const SHAPES = {
  asks: <circle cx="8" cy="8" r="6" fill="currentColor" />,
  interrupted: (
    <g>
      <circle cx="8" cy="8" r="5.5" {...stroke} />
      <path d="M8 2.5a5.5 5.5 0 0 1 0 11z" fill="currentColor" />
    </g>
  ),
  failed: <path d="M4 4l8 8M12 4l-8 8" {...stroke} />,
  working: <path class="turning" d="M8 2.5a5.5 5.5 0 1 1-5.5 5.5" {...stroke} />,
  paused: <path d="M5.5 4v8M10.5 4v8" {...stroke} />,
  idle: <circle cx="8" cy="8" r="5.5" {...stroke} />,
  done: <path d="M3 8.5l3.5 3.5L13 4.5" {...stroke} />,
  closed: <path d="M3 8h10" {...stroke} />,
} as const;
