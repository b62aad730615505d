// The rows of a conversation: what a rewind left behind is one row until the reader opens it.
import type { Item, Lineage } from "piton-client";
import { keyOfItem } from "./Message.tsx";

export type Row = { type: "item"; item: Item } | { type: "abandoned"; key: string; count: number; isOpen: boolean };

export function rowsOf(items: readonly Item[], open: ReadonlySet<string>): readonly Row[] {
  const rows: Row[] = [];
  for (let at = 0; at < items.length; ) {
    const item = items[at] as Item;
    if (!item.abandoned) {
      rows.push({ type: "item", item });
      at += 1;
      continue;
    }
    let end = at;
    while (items[end]?.abandoned) end += 1;
    // By its end: older ones are loaded before it.
    const key = `abandoned ${keyOfItem(items[end - 1] as Item)}`;
    const count = items.slice(at, end).filter((one) => one.type !== "notice").length;
    rows.push({ type: "abandoned", key, count, isOpen: open.has(key) });
    if (open.has(key)) for (const one of items.slice(at, end)) rows.push({ type: "item", item: one });
    at = end;
  }
  return rows;
}

export function keyOfRow(row: Row): string {
  return row.type === "item" ? keyOfItem(row.item) : row.key;
}

/** An undo goes back to the record before the rewind that it undoes. */
export function isUndo(item: Item, lineages: readonly Lineage[]): boolean {
  return item.type === "notice" && item.kind === "lineage.started" && lineages.some((lineage) => lineage.at === (item.from_seq ?? 0) + 1);
}
