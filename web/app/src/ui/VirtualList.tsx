// A list of any length in a bounded number of DOM nodes. Rows measure themselves; what a person looks at stays where
// it is when rows above it grow or come in; at the end the list follows what is added.
import type { ComponentChildren, VNode } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Button } from "./Button.tsx";

const ESTIMATE_PX = 96;
const OVERSCAN_PX = 600;
/** Nearer than this to the end counts as the end. */
const END_PX = 48;
const START_PX = 800;

type Props<T> = {
  items: readonly T[];
  keyOf: (item: T) => string;
  render: (item: T, index: number) => ComponentChildren;
  label: string;
  /** Below the last row, part of what is scrolled. */
  foot?: ComponentChildren;
  /** Above the first row. */
  head?: ComponentChildren;
  onNearStart?: () => void;
  /** A row to bring into view; changes of `at` count. */
  target?: { key: string; at: number } | null;
};

/** What the person looks at: a row, and how far the view's top is below the row's. */
type Anchor = { key: string; index: number; below: number };

export function VirtualList<T>(props: Props<T>): VNode {
  const { items, keyOf } = props;
  const view = useRef<HTMLDivElement>(null);
  const heights = useRef(new Map<string, number>());
  const anchor = useRef<Anchor | null>(null);
  const isAtEnd = useRef(true);
  const [version, setVersion] = useState(0);
  const [scroll, setScroll] = useState({ top: 0, height: 800, isAtEnd: true });

  const offsets = useMemo(() => {
    const sums = new Float64Array(items.length + 1);
    items.forEach((item, at) => {
      sums[at + 1] = (sums[at] ?? 0) + (heights.current.get(keyOf(item)) ?? ESTIMATE_PX);
    });
    return sums;
  }, [items, version]);

  const total = offsets[items.length] ?? 0;
  const headPx = view.current?.querySelector<HTMLElement>(".virtual-head")?.offsetHeight ?? 0;
  const top = isAtEnd.current ? Math.max(0, total - scroll.height) : scroll.top - headPx;
  const first = Math.max(0, indexAt(offsets, top - OVERSCAN_PX));
  const last = Math.min(items.length, indexAt(offsets, top + scroll.height + OVERSCAN_PX) + 1);

  useLayoutEffect(() => {
    const element = view.current;
    if (!element) return;
    if (isAtEnd.current) {
      element.scrollTop = element.scrollHeight;
      return;
    }
    const held = anchor.current;
    if (!held) return;
    const index = find(items, keyOf, held);
    if (index < 0) return;
    held.index = index;
    const wanted = (offsets[index] ?? 0) + held.below + headPx;
    if (Math.abs(wanted - element.scrollTop) > 1) element.scrollTop = wanted;
  }, [offsets, items]);

  const onScroll = () => {
    const element = view.current;
    if (!element) return;
    const end = element.scrollHeight - element.clientHeight - element.scrollTop;
    isAtEnd.current = end <= END_PX;
    const inner = element.scrollTop - headPx;
    const index = Math.min(items.length - 1, indexAt(offsets, inner));
    const item = items[index];
    anchor.current = item === undefined ? null : { key: keyOf(item), index, below: inner - (offsets[index] ?? 0) };
    setScroll({ top: element.scrollTop, height: element.clientHeight, isAtEnd: isAtEnd.current });
    if (element.scrollTop < START_PX && items.length > 0) props.onNearStart?.();
  };

  const observer = useMemo(() => {
    if (typeof ResizeObserver === "undefined") return null;
    return new ResizeObserver((entries) => {
      let hasChanged = false;
      for (const entry of entries) {
        const row = entry.target as HTMLElement;
        const key = row.dataset["key"];
        const height = row.offsetHeight;
        if (!key || !row.isConnected || heights.current.get(key) === height) continue;
        heights.current.set(key, height);
        hasChanged = true;
      }
      if (hasChanged) setVersion((before) => before + 1);
    });
  }, []);
  useEffect(() => () => observer?.disconnect(), [observer]);

  useEffect(() => {
    const element = view.current;
    if (!element || typeof ResizeObserver === "undefined") return;
    const resized = new ResizeObserver(() => {
      if (isAtEnd.current) element.scrollTop = element.scrollHeight;
      setScroll((before) => ({ ...before, height: element.clientHeight }));
    });
    resized.observe(element);
    // What is below the rows grows, too: a card, a plan.
    const foot = element.querySelector(".virtual-foot");
    if (foot) resized.observe(foot);
    return () => resized.disconnect();
  }, []);

  useEffect(() => {
    const { target } = props;
    if (!target || !view.current) return;
    const index = items.findIndex((item) => keyOf(item) === target.key);
    if (index < 0) return;
    isAtEnd.current = false;
    anchor.current = { key: target.key, index, below: -80 };
    view.current.scrollTop = Math.max(0, (offsets[index] ?? 0) - 80 + headPx);
  }, [props.target?.at]);

  const toEnd = () => {
    isAtEnd.current = true;
    if (view.current) view.current.scrollTop = view.current.scrollHeight;
    setScroll((before) => ({ ...before, isAtEnd: true }));
  };

  return (
    <div class="virtual-frame">
      <div class="virtual" ref={view} onScroll={onScroll} role="region" aria-label={props.label} tabIndex={0}>
        <div class="virtual-head">{props.head}</div>
        <div role="presentation" style={{ height: `${offsets[first] ?? 0}px` }} />
        <div role={items.length > 0 ? "feed" : undefined} aria-label={items.length > 0 ? "Messages" : undefined}>
          {items.slice(first, last).map((item, at) => (
            <Row key={keyOf(item)} id={keyOf(item)} observer={observer} position={first + at + 1} size={items.length}>
              {props.render(item, first + at)}
            </Row>
          ))}
        </div>
        <div role="presentation" style={{ height: `${total - (offsets[last] ?? total)}px` }} />
        <div class="virtual-foot">{props.foot}</div>
      </div>
      {!scroll.isAtEnd && (
        <div class="to-end">
          <Button icon="downward" label="Go to the newest message" onClick={toEnd} />
        </div>
      )}
    </div>
  );
}

type RowProps = { id: string; observer: ResizeObserver | null; position: number; size: number; children: ComponentChildren };

function Row({ id, observer, position, size, children }: RowProps) {
  const ref = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element || !observer) return;
    observer.observe(element);
    return () => observer.unobserve(element);
  }, [observer]);
  return (
    <article class="virtual-row" ref={ref} data-key={id} aria-posinset={position} aria-setsize={size} tabIndex={-1}>
      {children}
    </article>
  );
}

/** The row that contains this position. */
function indexAt(offsets: Float64Array, px: number): number {
  let [low, high] = [0, Math.max(0, offsets.length - 2)];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((offsets[middle] ?? 0) <= px) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Rows move when others come in above them; mostly the row is where it was. */
function find<T>(items: readonly T[], keyOf: (item: T) => string, held: Anchor): number {
  const there = items[held.index];
  if (there !== undefined && keyOf(there) === held.key) return held.index;
  return items.findIndex((item) => keyOf(item) === held.key);
}
