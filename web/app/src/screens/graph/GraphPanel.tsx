import "./graph.css";
import type { GraphNode, GraphRun } from "piton-client";
import { useRef, useState } from "preact/hooks";
import type { OpenSession } from "../../data/session.ts";
import { sessionPath } from "../../lib/router.ts";
import { readable } from "../../lib/text.ts";
import { Card, Loading } from "../../ui/parts.tsx";
import { Problem } from "../workspace/Problem.tsx";
import { Drawing } from "./Drawing.tsx";
import { GraphActions } from "./GraphActions.tsx";
import { useGraph } from "./live.ts";
import { STATES, stateWords } from "./words.ts";

/** A graph's session: its drawing, its nodes, and what can be done. */
export function GraphPanel({ session }: { session: OpenSession }) {
  const { run, view, error, reload } = useGraph(session);
  const [chosen, setChosen] = useState<string | null>(null);
  const [since] = useState(() => new Date().toISOString());
  const status = session.status.value;
  if (error) return <div class="panel-scroll"><Problem text={error} onRetry={reload} /></div>;
  if (!run || !status) return <div class="panel-scroll"><Loading what="Reading the graph" since={since} /></div>;
  const node = run.nodes.find((one) => one.node === chosen) ?? null;
  return (
    <div class="panel-scroll graph-panel">
      <div class="graph-head">
        <h2>{readable(run.graph)}</h2>
        {run.goal && <p class="muted">{readable(run.goal)}</p>}
        <p class="muted small numeric" role="status">{counts(run)}{run.lineage > 1 ? ` · lineage ${run.lineage}` : ""}</p>
      </div>
      <div class="graph-actions"><GraphActions status={status} waits={session.view.value.waits} run={run} error={view?.error ?? null} /></div>
      <div class="graph-columns">
        <Drawing run={run} chosen={chosen} onChoose={setChosen} />
        <div class="graph-side">
          {node && <Details node={node} />}
          <NodeList nodes={run.nodes} chosen={chosen} onChoose={(name) => setChosen(name === chosen ? null : name)} />
        </div>
      </div>
    </div>
  );
}

function counts(run: GraphRun): string {
  const of = (state: GraphNode["state"]) => run.nodes.filter((node) => node.state === state).length;
  const parts = (["completed", "running", "waiting", "failed", "skipped", "pending"] as const).map((state) => [of(state), STATES[state].label.toLowerCase()] as const);
  return parts.filter(([count]) => count > 0).map(([count, label]) => `${count} ${label}`).join(" · ");
}

/** One stop for Tab; arrows move along it. */
function NodeList({ nodes, chosen, onChoose }: { nodes: readonly GraphNode[]; chosen: string | null; onChoose: (name: string) => void }) {
  const list = useRef<HTMLUListElement>(null);
  const move = (event: KeyboardEvent) => {
    const buttons = [...(list.current?.querySelectorAll<HTMLButtonElement>("button") ?? [])];
    const at = buttons.indexOf(document.activeElement as HTMLButtonElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    buttons[Math.min(Math.max(to, 0), buttons.length - 1)]?.focus();
  };
  const first = nodes.some((node) => node.node === chosen) ? chosen : nodes[0]?.node;
  return (
    <ul class="graph-nodes" ref={list} aria-label="Nodes" onKeyDown={move}>
      {nodes.map((node) => (
        <li key={node.node}>
          <button type="button" class="graph-row" data-state={node.state} data-name={node.node} aria-pressed={chosen === node.node} tabIndex={node.node === first ? 0 : -1} onClick={() => onChoose(node.node)}>
            <span class="graph-sign" aria-hidden="true">{STATES[node.state].sign}</span>
            <span class="wrap"><span class="mono">{readable(node.node)}</span> <span class="muted small">{node.kind}</span></span>
            <span class="small graph-words">{stateWords(node)}</span>
          </button>
        </li>
      ))}
    </ul>
  );
}

function Details({ node }: { node: GraphNode }) {
  const facts: [string, string][] = [
    ["State", stateWords(node)],
    ["Kind", `${node.kind}${node.is_map ? ", map" : ""}${node.is_loop ? ", loop" : ""}`],
    ["Attempts", String(node.attempts)],
    ["Reads", node.reads.join(", ") || "nothing"],
    ["Writes", node.writes.join(", ") || "nothing"],
  ];
  return (
    <Card name="graph-node" title={readable(node.node)}>
      <dl class="graph-facts">
        {facts.map(([name, value]) => <div key={name}><dt class="muted small">{name}</dt><dd class="wrap">{readable(value)}</dd></div>)}
      </dl>
      {node.error && <p class="cause mono">{readable(node.error)}</p>}
      {node.child_session_id && <p><a href={sessionPath(node.child_session_id)}>Open the session of its agent</a></p>}
    </Card>
  );
}
