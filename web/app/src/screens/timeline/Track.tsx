import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Lineage } from "piton-client";
import { type Point, SIGNS } from "./points.ts";

const STEP = 34;
const LANE = 44;
const MARGIN = 24;
const POINTS_MAX = 400;

type Props = { points: readonly Point[]; lineages: readonly Lineage[]; chosen: readonly number[]; onChoose: (seq: number) => void; onScrub: (seq: number) => void };

/** All points on one line, in order, each lineage on a branch of its own; arrows move along it, Enter chooses. */
export function Track({ points, lineages, chosen, onChoose, onScrub }: Props) {
  const list = useRef<HTMLDivElement>(null);
  const frame = useRef<HTMLDivElement>(null);
  const shown = useMemo(() => points.filter((point) => point.kind !== "agent").slice(-POINTS_MAX), [points]);
  const lanes = useMemo(() => new Map([...new Set(shown.map((point) => point.lineage))].sort((a, b) => a - b).map((lineage, at) => [lineage, at])), [shown]);
  const left = (at: number) => MARGIN + at * STEP;
  const top = (lineage: number) => (lanes.get(lineage) ?? 0) * LANE + LANE / 2;
  const width = MARGIN * 2 + Math.max(0, shown.length - 1) * STEP;
  const height = Math.max(1, lanes.size) * LANE;
  const position = Math.max(0, shown.findIndex((point) => point.seq === chosen.at(-1)));
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    // What was chosen last is in view; without a choice the end is.
    const wanted = chosen.length === 0 ? width : left(position) - element.clientWidth / 2;
    element.scrollLeft = Math.max(0, wanted);
  }, [chosen.at(-1), shown.length]);
  const move = (event: KeyboardEvent) => {
    const buttons = [...(list.current?.querySelectorAll<HTMLButtonElement>("button") ?? [])];
    const at = buttons.indexOf(document.activeElement as HTMLButtonElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    buttons[Math.min(Math.max(to, 0), buttons.length - 1)]?.focus();
  };
  return (
    <div class="timeline-frame">
      <div class="timeline-track" role="group" aria-label="Timeline" onKeyDown={move} ref={frame}>
        <div class="timeline-line" ref={list} style={{ width: `${width}px`, height: `${height}px` }}>
          <svg class="timeline-branches" width={width} height={height} aria-hidden="true" focusable="false">
            {[...lanes.keys()].map((lineage) => <path key={lineage} d={branch(shown, lineages, lineage, left, top)} data-current={shown.some((point) => point.lineage === lineage && !point.isAbandoned) ? "" : undefined} />)}
          </svg>
          {shown.map((point, at) => (
            <button
              key={point.seq}
              type="button"
              class="timeline-dot"
              data-kind={point.kind}
              data-lineage={point.lineage}
              data-abandoned={point.isAbandoned ? "" : undefined}
              style={{ left: `${left(at) - 15}px`, top: `${top(point.lineage) - LANE / 2}px` }}
              aria-pressed={chosen.includes(point.seq)}
              aria-label={`${point.text}, record ${point.seq}${point.isAbandoned ? ", left behind" : ""}`}
              title={point.text}
              tabIndex={at === (chosen.length > 0 ? position : shown.length - 1) ? 0 : -1}
              onClick={() => onChoose(point.seq)}
            >
              <span aria-hidden="true">{SIGNS[point.kind]}</span>
            </button>
          ))}
        </div>
      </div>
      {shown.length > 1 && (
        <input
          class="timeline-scrubber"
          type="range"
          min={0}
          max={shown.length - 1}
          step={1}
          value={chosen.length === 0 ? shown.length - 1 : position}
          aria-label="Point in time"
          aria-valuetext={shown[chosen.length === 0 ? shown.length - 1 : position]?.text}
          onInput={(event) => {
            const point = shown[Number(event.currentTarget.value)];
            if (point) onScrub(point.seq);
          }}
        />
      )}
    </div>
  );
}

/** A lineage's line: down from the point that it continues behind, then along its own points. */
function branch(points: readonly Point[], lineages: readonly Lineage[], lineage: number, left: (at: number) => number, top: (lineage: number) => number): string {
  const own = points.map((point, at) => ({ point, at })).filter(({ point }) => point.lineage === lineage);
  const [first, last] = [own[0], own.at(-1)];
  if (!first || !last) return "";
  const y = top(lineage);
  const along = `M${left(first.at)} ${y} H${left(last.at)}`;
  const start = lineages.find((one) => one.lineage === lineage);
  const from = start ? points.map((point, at) => ({ point, at })).findLast(({ point }) => point.seq <= start.from_seq) : undefined;
  if (!from) return along;
  const [x0, y0] = [left(from.at), top(from.point.lineage)];
  return `M${x0} ${y0} C${x0} ${y} ${x0} ${y} ${x0 + 24} ${y} H${left(first.at)} ${along}`;
}
