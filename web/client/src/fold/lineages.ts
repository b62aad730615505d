/**
 * Which records belong to the conversation as it is now. A rewind does not rewrite the log: the new lineage
 * is the old one's records up to a point, then what follows the record that started it.
 */
import type { LogRecord, Schemas } from "../types.js";

export type Lineage = Schemas["Lineage"];

export function lineageOf(record: LogRecord): Lineage {
  const number = (field: string) => Number(record[field]);
  return { lineage: number("lineage"), from_lineage: number("from_lineage"), from_seq: number("from_seq"), at: record.seq };
}

/** The parts of the log, first and last seq, that a lineage consists of; null: all of it. */
export function segmentsOf(lineages: readonly Lineage[], of?: number): [number, number][] | null {
  const current = of ?? lineages.at(-1)?.lineage;
  if (current === undefined) return null;
  const segments: [number, number][] = [];
  let [lineage, end] = [current, Number.POSITIVE_INFINITY];
  // A lineage comes from an older one; a log that says otherwise must not lead in circles.
  for (let step = 0; step <= lineages.length; step += 1) {
    const start = lineages.find((one) => one.lineage === lineage);
    const from = start?.at ?? 1;
    // Another lineage may have begun in between: the records behind that are not this one's.
    for (const { at } of lineages) if (at > from) end = Math.min(end, at - 1);
    if (from <= end) segments.push([from, end]);
    if (!start) break;
    [lineage, end] = [start.from_lineage, start.from_seq];
  }
  return segments.reverse();
}

export function isInSegments(segments: readonly [number, number][] | null, seq: number): boolean {
  return segments === null || segments.some(([first, last]) => first <= seq && seq <= last);
}
