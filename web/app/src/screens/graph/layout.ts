// Where the nodes of a graph are drawn: in layers, each node below those that lead to it.
import type { GraphEdge, GraphNode } from "piton-client";

export const NODE_WIDTH = 168;
export const NODE_HEIGHT = 52;
const GAP_X = 28;
const GAP_Y = 44;
const MARGIN = 16;
/** How often the order within the layers is improved. */
const SWEEPS = 4;

export type Placed = { node: GraphNode; x: number; y: number };
export type Line = { edge: GraphEdge; path: string; isBack: boolean };
export type Layout = { width: number; height: number; nodes: readonly Placed[]; lines: readonly Line[] };

/** Edges that close a cycle, found by walking from the sources. */
function backEdges(names: readonly string[], edges: readonly GraphEdge[]): Set<GraphEdge> {
  const out = new Map(names.map((name) => [name, [] as GraphEdge[]]));
  for (const edge of edges) out.get(edge.from)?.push(edge);
  const back = new Set<GraphEdge>();
  const seen = new Map<string, "open" | "done">();
  // A stack of its own: a graph may be longer than the call stack.
  const walk = (start: string) => {
    const stack: { name: string; at: number }[] = [{ name: start, at: 0 }];
    seen.set(start, "open");
    for (let top = stack.at(-1); top; top = stack.at(-1)) {
      const edge = out.get(top.name)?.[top.at];
      top.at += 1;
      if (!edge) {
        seen.set(top.name, "done");
        stack.pop();
      } else if (seen.get(edge.to) === "open") back.add(edge);
      else if (!seen.has(edge.to)) {
        seen.set(edge.to, "open");
        stack.push({ name: edge.to, at: 0 });
      }
    }
  };
  // An edge that closes a cycle has a limit: the node that it leads back to is where the graph begins.
  const entered = new Set(edges.filter((edge) => edge.from !== edge.to && edge.max == null).map((edge) => edge.to));
  for (const name of [...names.filter((one) => !entered.has(one)), ...names]) if (!seen.has(name)) walk(name);
  return back;
}

function layersOf(names: readonly string[], edges: readonly GraphEdge[]): string[][] {
  const layer = new Map(names.map((name) => [name, 0]));
  const missing = new Map(names.map((name) => [name, 0]));
  for (const edge of edges) missing.set(edge.to, (missing.get(edge.to) ?? 0) + 1);
  const ready = names.filter((name) => missing.get(name) === 0);
  for (let name = ready.shift(); name !== undefined; name = ready.shift()) {
    for (const edge of edges) {
      if (edge.from !== name) continue;
      layer.set(edge.to, Math.max(layer.get(edge.to) ?? 0, (layer.get(name) ?? 0) + 1));
      const left = (missing.get(edge.to) ?? 0) - 1;
      missing.set(edge.to, left);
      if (left === 0) ready.push(edge.to);
    }
  }
  const layers: string[][] = [];
  for (const name of names) (layers[layer.get(name) ?? 0] ??= []).push(name);
  return layers;
}

/** Each node near the middle of those that lead to it, then of those that it leads to. */
function order(layers: string[][], edges: readonly GraphEdge[]): void {
  const neighbours = (key: "from" | "to", other: "from" | "to") => {
    const map = new Map<string, string[]>();
    for (const edge of edges) map.set(edge[key], [...(map.get(edge[key]) ?? []), edge[other]]);
    return map;
  };
  const [above, below] = [neighbours("to", "from"), neighbours("from", "to")];
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const place = new Map(layers.flatMap((layer) => layer.map((name, at) => [name, at / Math.max(1, layer.length - 1)] as const)));
    const near = sweep % 2 === 0 ? above : below;
    const middle = (name: string) => {
      const ofs = (near.get(name) ?? []).map((other) => place.get(other) ?? 0);
      return ofs.length === 0 ? (place.get(name) ?? 0) : ofs.reduce((sum, one) => sum + one, 0) / ofs.length;
    };
    for (const layer of layers) layer.sort((a, b) => middle(a) - middle(b));
  }
}

export function layOut(nodes: readonly GraphNode[], edges: readonly GraphEdge[]): Layout {
  const byName = new Map(nodes.map((node) => [node.node, node]));
  const names = nodes.map((node) => node.node);
  const known = edges.filter((edge) => byName.has(edge.from) && byName.has(edge.to));
  const back = backEdges(names, known);
  const forward = known.filter((edge) => !back.has(edge) && edge.from !== edge.to);
  const layers = layersOf(names, forward);
  order(layers, forward);
  const widest = Math.max(1, ...layers.map((layer) => layer.length));
  const inner = widest * NODE_WIDTH + (widest - 1) * GAP_X;
  // Room at the right for what leads back up.
  const room = known.length > forward.length ? 40 : 0;
  const placed = new Map<string, Placed>();
  layers.forEach((layer, row) => {
    const own = layer.length * NODE_WIDTH + (layer.length - 1) * GAP_X;
    layer.forEach((name, at) => {
      const node = byName.get(name);
      if (node) placed.set(name, { node, x: MARGIN + (inner - own) / 2 + at * (NODE_WIDTH + GAP_X), y: MARGIN + row * (NODE_HEIGHT + GAP_Y) });
    });
  });
  const lines = known.map((edge) => {
    const [from, to] = [placed.get(edge.from) as Placed, placed.get(edge.to) as Placed];
    const isBack = !forward.includes(edge);
    if (!isBack) {
      const [x1, y1, x2, y2] = [from.x + NODE_WIDTH / 2, from.y + NODE_HEIGHT, to.x + NODE_WIDTH / 2, to.y];
      const bend = Math.max(GAP_Y / 2, (y2 - y1) / 2);
      return { edge, isBack, path: `M${x1} ${y1} C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}` };
    }
    const [x1, y1, x2, y2] = [from.x + NODE_WIDTH, from.y + NODE_HEIGHT / 2 + 8, to.x + NODE_WIDTH, to.y + NODE_HEIGHT / 2 - 8];
    // Past the nodes between the two: a curve comes three quarters of the way to its handles.
    const rows = [...placed.values()].filter((one) => one.y >= Math.min(from.y, to.y) && one.y <= Math.max(from.y, to.y));
    const right = Math.max(...rows.map((one) => one.x + NODE_WIDTH)) + 24;
    const out = Math.max(x1, x2) + (right - Math.max(x1, x2)) / 0.75;
    return { edge, isBack, path: `M${x1} ${y1} C${out} ${y1} ${out} ${y2} ${x2} ${y2}` };
  });
  return { width: inner + MARGIN * 2 + room, height: MARGIN * 2 + layers.length * NODE_HEIGHT + Math.max(0, layers.length - 1) * GAP_Y, nodes: [...placed.values()], lines };
}
