// Writes test/vectors/graph.json: the records of real runs, and what the server says of each graph then.
// PITON names the binary.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const piton = process.env["PITON"];
if (!piton) throw new Error("Set PITON to the binary");
const folder = mkdtempSync(join(tmpdir(), "piton-graphs-"));
mkdirSync(join(folder, "home"));
const env = { PATH: process.env["PATH"], HOME: join(folder, "home"), PITON_DATA: join(folder, "data"), PITON_KEY_SOURCE: "file", LANG: "C.UTF-8" };
const END = /^run\.(completed|failed|waiting|paused)$/;

const GRAPHS = {
  flow: {
    name: "flow",
    goal: "A map, a choice and a node that fails without n",
    inputs: { n: { type: "integer", required: false } },
    nodes: {
      split: { set: { parts: ["a", "b", "c"] } },
      each: { command: ["echo", "{{ part }}"], map: { over: "{{ parts }}", as: "part", parallel: 2 }, writes: "each" },
      flaky: { command: ["sh", "-c", "grep -q '\"n\":[0-9]' || { echo 'n is not set' >&2; exit 1; }; echo ok"], reads: ["n", "each"], writes: "flaky", retry: { times: 1, backoff: "10ms..20ms" } },
      left: { template: "left", writes: "left" },
      right: { template: "right", writes: "right" },
    },
    edges: ["split -> each -> flaky", { from: "flaky", to: "left", when: "flaky == 'never'" }, { from: "flaky", to: "right", priority: -1 }],
  },
  loop: {
    name: "loop",
    nodes: { dig: { command: ["sh", "-c", "echo '{\"messages\": [], \"outputs\": {\"depth\": 1}, \"done\": false}'"], output: "json", loop: { max_iterations: 3 } } },
  },
  approval: {
    name: "approval",
    nodes: {
      draft: { template: "A text", writes: "draft" },
      approve: { human: { question: "Send this?", options: ["send", "revise"] }, writes: "decision" },
      send: { template: "Sent", writes: "result" },
    },
    edges: ["draft -> approve", { from: "approve", to: "send", when: "decision == 'send'" }, { from: "approve", to: "draft", when: "decision == 'revise'", max: 3 }],
  },
};

const server = spawn(piton, ["serve", "--listen", "127.0.0.1:0"], { env, stdio: ["ignore", "pipe", "pipe"] });
try {
  const address = await new Promise((done, fail) => {
    let log = "";
    const seen = (chunk) => {
      log += chunk;
      const found = /listens on (http:\/\/127\.0\.0\.1:\d+)/.exec(log)?.[1];
      if (found) done(found);
    };
    server.stdout.on("data", seen);
    server.stderr.on("data", seen);
    server.on("exit", (code) => fail(new Error(`The server ended with ${code}: ${log}`)));
  });
  const { token } = JSON.parse(execFileSync(piton, ["tokens", "new", "v", "--scope", "read", "--scope", "control", "--scope", "admin", "--json"], { env, encoding: "utf8" }));
  const call = async (method, path, body) => {
    const response = await fetch(`${address}/api/v1${path}`, { method, headers: { authorization: `Bearer ${token}`, "content-type": "application/json" }, ...(body ? { body: JSON.stringify(body) } : {}) });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return await response.json();
  };
  const records = async (id) => (await call("GET", `/sessions/${id}/records?limit=1000`)).records;
  const vectors = [];
  /** When so many runs have ended or wait: the log, and what the server says. */
  const capture = async (name, id, ends) => {
    for (const began = Date.now(); Date.now() - began < 20_000; await new Promise((done) => setTimeout(done, 50))) {
      const before = await records(id);
      if (before.filter((record) => END.test(record.kind)).length < ends) continue;
      const view = await call("GET", `/sessions/${id}/graph`);
      if (view.last_seq !== before.at(-1).seq) continue;
      vectors.push({ name, records: before, view });
      return before;
    }
    throw new Error(`${name}: the run did not end: ${JSON.stringify(await records(id))}`);
  };
  const run = async (graph) => (await call("POST", "/graphs/run", { graph: { piton: "graph/v1", ...GRAPHS[graph] }, working_dir: folder })).session_id;
  const answer = async (log, option_id) => await call("POST", `/waits/${log.findLast((record) => record.kind === "run.waiting").wait_id}/answer`, { answer: { option_id } });

  const flow = await run("flow");
  const failed = await capture("a node that failed twice", flow, 1);
  await call("POST", `/sessions/${flow}/graph/resume`, { set: { n: 1 } });
  await capture("resumed with a value, to its end", flow, 2);
  const start = failed.find((record) => record.kind === "checkpoint.created" && record.current_node === "each");
  await call("POST", `/sessions/${flow}/graph/resume`, { checkpoint_id: start.checkpoint_id });
  await capture("resumed from an older checkpoint", flow, 3);

  const approval = await run("approval");
  await answer(await capture("a person is asked", approval, 1), "revise");
  await answer(await capture("asked again after a cycle", approval, 2), "send");
  await capture("answered", approval, 3);
  await capture("a loop over its limit", await run("loop"), 1);

  const target = new URL("../test/vectors/graph.json", import.meta.url);
  writeFileSync(target, `[\n${vectors.map((vector) => JSON.stringify(vector).replaceAll(folder, "/work")).join(",\n")}\n]\n`);
} finally {
  const ended = new Promise((done) => server.once("exit", done));
  server.kill("SIGTERM");
  await ended;
  rmSync(folder, { recursive: true, force: true });
}
