import { useRef } from "preact/hooks";
import type { Point } from "./points.ts";
import { SIGNS } from "./Timeline.tsx";

const STEP = 34;
const MARGIN = 24;
const POINTS_MAX = 400;

/** All points on one line, in order; arrows move along it, Enter chooses. */
export function Track({ points, chosen, onChoose }: { points: readonly Point[]; chosen: readonly number[]; onChoose: (seq: number) => void }) {
  const list = useRef<HTMLDivElement>(null);
  const shown = points.filter((point) => point.kind !== "agent").slice(-POINTS_MAX);
  const width = MARGIN * 2 + Math.max(0, shown.length - 1) * STEP;
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const buttons = [...(list.current?.querySelectorAll<HTMLButtonElement>("button") ?? [])];
    const at = buttons.indexOf(document.activeElement as HTMLButtonElement);
    buttons[Math.min(Math.max(at + step, 0), buttons.length - 1)]?.focus();
  };
  return (
    <div class="timeline-track" role="group" aria-label="Timeline" onKeyDown={move}>
      <div class="timeline-line" ref={list} style={{ width: `${width}px` }}>
        {shown.map((point, at) => (
          <button
            key={point.seq}
            type="button"
            class="timeline-dot"
            data-kind={point.kind}
            aria-pressed={chosen.includes(point.seq)}
            aria-label={`${point.text}, record ${point.seq}`}
            title={point.text}
            tabIndex={at === shown.length - 1 ? 0 : -1}
            onClick={() => onChoose(point.seq)}
          >
            <span aria-hidden="true">{SIGNS[point.kind]}</span>
          </button>
        ))}
      </div>
    </div>
  );
}
