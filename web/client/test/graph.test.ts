/** A graph's records come to what the server says of it: on the logs of real runs (`scripts/graph-vectors.mjs`). */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { foldGraph, GraphFold, type GraphRun, type LogRecord, type Schemas } from "../src/index.js";

interface Vector {
  name: string;
  records: LogRecord[];
  view: Schemas["GraphView"];
}

const vectors = JSON.parse(readFileSync(new URL("./vectors/graph.json", import.meta.url), "utf8")) as Vector[];

/** What the server says, as the fold has it: a running node that needs an answer waits. */
function expected({ graph, goal, lineage, nodes, edges, execution_path, failed_at_node, waits }: Schemas["GraphView"]): unknown {
  const spelled = nodes.map((node) => ({
    ...{ latency_ms: null, error: null, retry_at: null, done: null, count: null, child_session_id: null },
    ...node,
    state: node.state === "running" && node.kind === "human" && waits.length > 0 ? "waiting" : node.state,
  }));
  return { graph, goal: goal ?? null, lineage, nodes: spelled, edges, execution_path, failed_at_node: failed_at_node ?? null, waits };
}

const comparable = ({ last_seq: _, ...run }: GraphRun) => JSON.parse(JSON.stringify(run)) as unknown;
const vector = (name: string) => vectors.find((one) => one.name === name) as Vector;

describe("a graph's fold", () => {
  it.each(vectors.map((one) => [one.name, one] as const))("is what the server says: %s", (_, { records, view }) => {
    expect(comparable(foldGraph(records))).toEqual(expected(view));
  });

  it("is the same when it begins with what the server said earlier", () => {
    const pairs = [["a node that failed twice", "resumed with a value, to its end"], ["a person is asked", "asked again after a cycle"], ["asked again after a cycle", "answered"]] as const;
    for (const [earlier, later] of pairs) {
      const fold = new GraphFold();
      fold.seed(vector(earlier).view);
      for (const record of vector(later).records) fold.apply(record);
      expect(fold.isStale).toBe(false);
      expect(comparable(fold.view), `${earlier}, then ${later}`).toEqual(expected(vector(later).view));
    }
  });

  it("says when it cannot know: an older checkpoint than the one it began with", () => {
    const fold = new GraphFold();
    fold.seed(vector("resumed with a value, to its end").view);
    for (const record of vector("resumed from an older checkpoint").records) fold.apply(record);
    expect(fold.isStale).toBe(true);
  });

  it("shows the states in between", () => {
    const { records } = vector("a node that failed twice");
    const seen = new Map<string, string[]>();
    const fold = new GraphFold();
    for (const record of records) {
      fold.apply(record);
      for (const { node, state } of fold.view.nodes) {
        const states = seen.get(node) ?? [];
        if (states.at(-1) !== state) seen.set(node, [...states, state]);
      }
    }
    expect(seen.get("flaky")).toEqual(["pending", "running", "failed", "running", "failed"]);
    expect(fold.view.nodes.find((node) => node.node === "flaky")).toMatchObject({ attempts: 2, error: expect.stringContaining("n is not set") as string, retry_at: null });
    expect(seen.get("each")).toEqual(["pending", "running", "completed"]);
  });

  it("asks a person only while nobody has answered", () => {
    const states = ["a person is asked", "answered"].map((name) => foldGraph(vector(name).records).nodes.find((node) => node.node === "approve")?.state);
    expect(states).toEqual(["waiting", "completed"]);
  });
});
