// How the states of nodes are called and marked.
import type { GraphNode, GraphNodeState } from "piton-client";
import { elapsed, plural } from "../../lib/format.ts";

export const STATES: Record<GraphNodeState, { label: string; sign: string }> = {
  pending: { label: "Pending", sign: "○" },
  running: { label: "Running", sign: "◐" },
  waiting: { label: "Waits for a person", sign: "?" },
  failed: { label: "Failed", sign: "✕" },
  completed: { label: "Completed", sign: "✓" },
  skipped: { label: "Skipped", sign: "–" },
};

/** "Failed, attempt 2", "Running, 3 of 5 items". */
export function stateWords(node: GraphNode): string {
  const parts: string[] = [node.state === "failed" && node.retry_at ? "Failed, tried again soon" : STATES[node.state].label];
  if (node.count !== null && node.done !== null) parts.push(`${node.done} of ${plural(node.count, "item")}`);
  else if (node.is_loop && node.done !== null) parts.push(plural(node.done, "iteration"));
  if (node.attempts > 1) parts.push(`attempt ${node.attempts}`);
  if (node.visit > 1) parts.push(`visit ${node.visit}`);
  if (node.latency_ms !== null) parts.push(node.latency_ms < 1_000 ? `${node.latency_ms} ms` : elapsed(node.latency_ms / 1_000));
  return parts.join(", ");
}
