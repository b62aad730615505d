/**
 * A graph and how far it came, from the records of its run: which node waits, runs, failed or is done. Begins
 * with the log, or with what the server says at a seq.
 */
import type { LogRecord, Schemas } from "../types.js";
import { object, optional, string } from "./conversation.js";
import { isInSegments, type Lineage, lineageOf, segmentsOf } from "./lineages.js";

export type GraphEdge = Schemas["GraphEdgeView"];
/** `waiting`: a person has to answer before it can complete. */
export type GraphNodeState = "pending" | "running" | "waiting" | "failed" | "completed" | "skipped";

export interface GraphNode {
  node: string;
  /** `command`, `set`, `template`, `human`, `agent`, `custom`; others may follow. */
  kind: string;
  is_map: boolean;
  is_loop: boolean;
  state: GraphNodeState;
  /** How often a cycle led to the node; begins with 1. */
  visit: number;
  attempts: number;
  reads: readonly string[];
  writes: readonly string[];
  latency_ms: number | null;
  /** Null unless it failed; also if the error was redacted. */
  error: string | null;
  /** When a failed node is tried again. */
  retry_at: string | null;
  /** Of a map: items that are complete; of a loop: iterations. */
  done: number | null;
  /** Of a map: all items. */
  count: number | null;
  /** The session that an `agent` node works through. */
  child_session_id: string | null;
}

export interface GraphRun {
  graph: string;
  goal: string | null;
  lineage: number;
  nodes: readonly GraphNode[];
  edges: readonly GraphEdge[];
  /** The nodes that completed, in order. */
  execution_path: readonly string[];
  failed_at_node: string | null;
  waits: readonly string[];
  last_seq: number;
}

interface Progress extends GraphNode {
  items: Set<number>;
  taken: string[];
  failed_seq: number;
  is_handled: boolean;
  /** Something led to it, or it was reset. */
  is_reached: boolean;
}

const GRAPH_KINDS = /^(graph|node|edge|map|loop|run|wait|session|lineage)\./;

export class GraphFold {
  #graph = "";
  #goal: string | null = null;
  #nodes = new Map<string, Progress>();
  #edges: GraphEdge[] = [];
  #path: string[] = [];
  #waits = new Set<string>();
  #lineages: Lineage[] = [];
  #lineage = 1;
  #lastSeq = 0;
  /** The records of the graph, if they are known from the first on: an older checkpoint can be gone back to. */
  #records: LogRecord[] | null = [];
  #isStale = false;
  #view: GraphRun | null = null;

  /** Begins with what the server has put together. */
  seed(view: Schemas["GraphView"]): void {
    this.#graph = view.graph;
    this.#goal = view.goal ?? null;
    this.#edges = view.edges;
    this.#path = [...view.execution_path];
    this.#waits = new Set(view.waits);
    this.#lineage = view.lineage;
    this.#lastSeq = view.last_seq;
    this.#records = null;
    this.#isStale = false;
    this.#nodes = new Map(view.nodes.map((node) => [node.node, this.#progress(node as Partial<GraphNode> & { node: string })]));
    for (const { from, to, is_taken } of view.edges) if (is_taken) this.#nodes.get(from)?.taken.push(to);
    // Which item of a map is complete is not said, only how many.
    for (const node of this.#nodes.values()) for (let item = 0; item < (node.done ?? 0); item += 1) node.items.add(-1 - item);
    const failed = view.failed_at_node ? this.#nodes.get(view.failed_at_node) : undefined;
    if (failed) failed.failed_seq = view.last_seq;
    this.#view = null;
  }

  /** What happened is not known from here on: the server has to be asked again. */
  get isStale(): boolean {
    return this.#isStale;
  }

  get view(): GraphRun {
    this.#view ??= this.#build();
    return this.#view;
  }

  /** Takes a record; those that were known with the seed change nothing. */
  apply(record: LogRecord): void {
    if (record.seq <= this.#lastSeq || !GRAPH_KINDS.test(record.kind)) return;
    this.#lastSeq = record.seq;
    this.#view = null;
    this.#records?.push(record);
    if (record.kind === "lineage.started") this.#startLineage(record);
    else this.#fold(record);
  }

  /** Continues behind an older record: what came after it counts no more. */
  #startLineage(record: LogRecord): void {
    if (this.#records === null) {
      this.#isStale = true;
      return;
    }
    this.#lineages.push(lineageOf(record));
    const segments = segmentsOf(this.#lineages);
    for (const node of this.#nodes.values()) Object.assign(node, this.#progress(shapeOf(node)));
    [this.#path, this.#lineage] = [[], Number(record["lineage"])];
    // Waits belong to the run, whatever the graph counts.
    for (const one of this.#records) if (isInSegments(segments, one.seq) && /^(node|edge|map|loop)\./.test(one.kind)) this.#fold(one);
  }

  #progress(known: Partial<GraphNode> & { node: string }): Progress {
    const empty = { kind: "custom", is_map: false, is_loop: false, state: "pending" as const, visit: 1, attempts: 0, reads: [], writes: [], latency_ms: null, error: null, retry_at: null, done: null, count: null, child_session_id: null };
    return { ...empty, ...known, items: new Set(), taken: [], failed_seq: 0, is_handled: false, is_reached: (known.attempts ?? 0) > 0 || (known.state ?? "pending") !== "pending" || (known.visit ?? 1) > 1 };
  }

  /** The node, if the record is about its present visit. */
  #visited(record: LogRecord): Progress | null {
    const path = string(record["path"]);
    let node = this.#nodes.get(path);
    if (!node) this.#nodes.set(path, (node = this.#progress({ node: path })));
    node.is_reached = true;
    return node.visit === Number(record["visit"]) ? node : null;
  }

  #fold(record: LogRecord): void {
    switch (record.kind) {
      case "graph.bound":
        return this.#bound(record);
      case "edge.taken":
        return this.#edgeTaken(record);
      case "run.waiting":
        this.#waits.add(string(record["wait_id"]));
        return;
      case "run.resumed":
      case "wait.cancelled":
        this.#waits.delete(string(record["wait_id"]));
        return;
      case "run.started":
      case "run.completed":
      case "run.failed":
      case "run.cancelled":
      case "run.interrupted":
      case "session.closed":
        this.#waits.clear();
        return;
    }
    if (!/^(node|map|loop)\./.test(record.kind)) return;
    const node = this.#visited(record);
    if (node) this.#attempt(node, record);
  }

  #attempt(node: Progress, record: LogRecord): void {
    const isOver = node.state === "completed" || node.state === "skipped";
    switch (record.kind) {
      case "node.started":
        if (isOver) return;
        Object.assign(node, { state: "running", attempts: Number(record["attempt"]), error: null, retry_at: null, is_handled: false });
        return;
      case "node.failed":
        if (isOver) return;
        Object.assign(node, { state: "failed", attempts: Math.max(node.attempts, Number(record["attempt"])), error: optional(record["error"]), retry_at: optional(record["retry_at"]) });
        [node.failed_seq, node.is_handled] = [record.seq, record["handled"] === true];
        return;
      case "node.completed":
        if (isOver) return;
        Object.assign(node, { state: "completed", latency_ms: Number(record["latency_ms"]), error: null, retry_at: null, done: null, count: null, taken: [] });
        this.#path.push(node.node);
        return;
      case "node.skipped":
        if (node.state === "pending") node.state = "skipped";
        return;
      case "node.session_assigned":
        node.child_session_id = optional(record["child_session_id"]);
        return;
      case "map.listed":
        node.items.clear();
        [node.count, node.done] = [Number(record["count"]), 0];
        return;
      case "map.item_completed":
        if (node.count === null) return;
        node.items.add(Number(record["index"]));
        node.done = node.items.size;
        return;
      case "loop.iterated":
        if (Number(record["iteration"]) === (node.done ?? 0)) node.done = (node.done ?? 0) + 1;
    }
  }

  #edgeTaken(record: LogRecord): void {
    this.#nodes.get(string(record["from"]))?.taken.push(string(record["to"]));
    for (const path of (record["resets"] as string[] | undefined) ?? []) {
      const node = this.#nodes.get(path);
      if (!node) continue;
      // A node that nothing led to yet has its first visit before it.
      const visit = node.is_reached ? node.visit + 1 : node.visit;
      Object.assign(node, this.#progress(shapeOf(node)), { visit, is_reached: true });
    }
  }

  #bound(record: LogRecord): void {
    this.#graph = string(record["name"]);
    const spec = object(record["spec"]);
    if (!spec) return;
    this.#goal = optional(spec["goal"]);
    const before = this.#nodes;
    this.#nodes = new Map();
    for (const [name, value] of (spec["nodes"] as [string, unknown][] | undefined) ?? []) {
      const { kind, map, loop, reads, writes } = object(value) ?? {};
      const shape = { node: name, kind: typeof kind === "string" ? kind : (Object.keys(object(kind) ?? {})[0] ?? "custom"), is_map: map != null, is_loop: loop != null, reads: (reads as string[] | undefined) ?? [], writes: (writes as string[] | undefined) ?? [] };
      const known = before.get(name);
      this.#nodes.set(name, known ? Object.assign(known, shape) : this.#progress(shape));
    }
    const edges = (spec["edges"] as Omit<GraphEdge, "is_taken">[] | undefined) ?? [];
    this.#edges = edges.map((edge) => ({ ...edge, priority: edge.priority ?? 0, is_taken: false }));
  }

  #build(): GraphRun {
    const nodes = [...this.#nodes.values()];
    const failed = nodes.filter((node) => node.state === "failed" && node.retry_at === null && !node.is_handled);
    const last = failed.reduce<Progress | null>((newest, node) => (newest && newest.failed_seq > node.failed_seq ? newest : node), null);
    const shown = nodes.map(({ items: _, taken: _taken, failed_seq: _seq, is_handled: _handled, is_reached: _reached, ...node }) => {
      const isWaiting = node.state === "running" && node.kind === "human" && this.#waits.size > 0;
      return isWaiting ? { ...node, state: "waiting" as const } : node;
    });
    return {
      graph: this.#graph,
      goal: this.#goal,
      lineage: this.#lineage,
      nodes: shown,
      edges: this.#edges.map((edge) => ({ ...edge, is_taken: this.#nodes.get(edge.from)?.taken.includes(edge.to) ?? false })),
      execution_path: [...this.#path],
      failed_at_node: last?.node ?? null,
      waits: [...this.#waits],
      last_seq: this.#lastSeq,
    };
  }
}

/** A node as its graph describes it, without what became of it. */
function shapeOf({ node, kind, is_map, is_loop, reads, writes }: GraphNode) {
  return { node, kind, is_map, is_loop, reads, writes };
}

/** Folds all records of a graph's session. */
export function foldGraph(records: Iterable<LogRecord>): GraphRun {
  const fold = new GraphFold();
  for (const record of records) fold.apply(record);
  return fold.view;
}
