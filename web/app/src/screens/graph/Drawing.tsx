import type { GraphRun } from "piton-client";
import { useMemo } from "preact/hooks";
import { readable } from "../../lib/text.ts";
import { layOut, NODE_HEIGHT, NODE_WIDTH } from "./layout.ts";
import { STATES, stateWords } from "./words.ts";

const NAME_MAX = 20;

const short = (text: string, max: number): string => (text.length > max ? `${text.slice(0, max - 1)}…` : text);

/** The graph as a picture; the list beside it says the same and is what keyboards and screen readers use. */
export function Drawing({ run, chosen, onChoose }: { run: GraphRun; chosen: string | null; onChoose: (node: string) => void }) {
  // Only which nodes and edges there are moves anything: states change far more often.
  const shape = run.nodes.map((node) => node.node).join("\n") + run.edges.map((edge) => `${edge.from} ${edge.to}`).join("\n");
  const layout = useMemo(() => layOut(run.nodes, run.edges), [shape]);
  const nodes = new Map(run.nodes.map((node) => [node.node, node]));
  return (
    <div class="graph-drawing" role="region" aria-label="Drawing of the graph" tabIndex={0}>
      <svg width={layout.width} height={layout.height} viewBox={`0 0 ${layout.width} ${layout.height}`} aria-hidden="true" focusable="false">
        <defs>
          {["taken", "open"].map((kind) => (
            <marker key={kind} id={`graph-arrow-${kind}`} class={`graph-arrow`} data-kind={kind} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
              <path d="M0 0L8 4L0 8z" />
            </marker>
          ))}
        </defs>
        {layout.lines.map(({ edge, path }, at) => {
          const isTaken = run.edges.find((one) => one.from === edge.from && one.to === edge.to)?.is_taken ?? false;
          return (
            <path key={at} class="graph-edge" data-taken={isTaken ? "" : undefined} d={path} marker-end={`url(#graph-arrow-${isTaken ? "taken" : "open"})`}>
              <title>{readable(`${edge.from} → ${edge.to}${edge.when ? `, when ${edge.when}` : ""}`)}</title>
            </path>
          );
        })}
        {layout.nodes.map(({ node: { node: name }, x, y }) => {
          const node = nodes.get(name);
          if (!node) return null;
          return (
            <g key={name} class="graph-node" data-node={name} data-state={node.state} data-chosen={chosen === name ? "" : undefined} transform={`translate(${x} ${y})`} onClick={() => onChoose(name)}>
              <title>{readable(`${name}: ${stateWords(node)}`)}</title>
              <rect width={NODE_WIDTH} height={NODE_HEIGHT} rx="8" />
              <text x="12" y="22" class="graph-name">{short(readable(name), NAME_MAX)}</text>
              <text x="12" y="40" class="graph-state">{short(`${STATES[node.state].sign} ${stateWords(node)}`, 26)}</text>
            </g>
          );
        })}
      </svg>
    </div>
  );
}
