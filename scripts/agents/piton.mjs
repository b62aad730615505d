// A real Piton server on a data folder of its own, and a client that knows no more than HTTP.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { openSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { until } from "./wait.mjs";

const START_MS = 60_000;
/** A prompt is answered when its agent runs, or after a minute and a half. */
const REQUEST_MS = 120_000;
const COMMAND_MS = 180_000;
const PAGE = 1_000;

export class Piton {
  #child = null;
  #place = null;

  /** `env` is all that the server and, through it, the agents get to see of the environment. */
  constructor({ program, folder, config, env }) {
    this.program = program;
    this.data = join(folder, "data");
    this.log = join(folder, "server.log");
    this.env = { ...env, PITON_CONFIG: config };
  }

  async start() {
    const log = openSync(this.log, "a");
    const args = ["--data", this.data, "--json", "serve", "--listen", "127.0.0.1:0"];
    const child = spawn(this.program, args, { env: this.env, stdio: ["ignore", "pipe", log] });
    this.#child = child;
    let said = "";
    let failed = null;
    child.stdout.on("data", (piece) => (said += piece));
    child.on("error", (error) => (failed = error));
    await until("the server listens", START_MS, () => {
      if (failed) throw failed;
      if (child.exitCode !== null) throw new Error(`The server ended with ${child.exitCode}: ${this.lastWords()}`);
      return said.includes("\n");
    });
    this.#place = JSON.parse(readFileSync(join(this.data, "run/server.json"), "utf8"));
  }

  /** SIGKILL, as a crash does it, or SIGTERM, as an upgrade does. */
  async end(signal) {
    const child = this.#child;
    this.#child = null;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill(signal);
    await ended;
  }

  lastWords() {
    return readFileSync(this.log, "utf8").trim().split("\n").slice(-5).join(" | ");
  }

  async ask(method, path, body) {
    const response = await fetch(`${this.#place.address}/api/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${this.#place.token}`, "content-type": "application/json" },
      body: body && JSON.stringify(body),
      signal: AbortSignal.timeout(REQUEST_MS),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  /** A command of a user's, beside the server. Gives its exit code, and all that it printed. */
  async command(...args) {
    const child = spawn(this.program, ["--data", this.data, ...args], {
      // As wide as it wants: what is shown is read by a program.
      env: { ...this.env, COLUMNS: "1000" },
      stdio: ["ignore", "pipe", "pipe"],
      timeout: COMMAND_MS,
    });
    const printed = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"]) child[name].on("data", (piece) => (printed[name] += piece));
    const [code] = await once(child, "close");
    return { code, ...printed };
  }

  async session(agent, workingDir) {
    const made = await this.ask("POST", "/sessions", { agent_profile_id: agent, working_dir: workingDir });
    return new Session(this, made.session_id);
  }
}

class Session {
  constructor(piton, id) {
    this.piton = piton;
    this.id = id;
  }

  status() {
    return this.piton.ask("GET", `/sessions/${this.id}/status`);
  }

  /** Where it stands, when it stands as wanted. */
  async when(what, waitMs, isWanted) {
    let status = null;
    const probe = async () => ((status = await this.status()), isWanted(status) && status);
    const seen = () => `It is ${status.status} (${status.reason}): ${status.sentence}`;
    return until(what, waitMs, probe, seen);
  }

  /** What the agent offers and said about itself. */
  agent() {
    return this.piton.ask("GET", `/sessions/${this.id}/agent`);
  }

  choose(choice) {
    return this.piton.ask("POST", `/sessions/${this.id}/agent`, choice);
  }

  resume(request = {}) {
    return this.piton.ask("POST", `/sessions/${this.id}/resume`, request);
  }

  stop() {
    return this.piton.ask("POST", `/sessions/${this.id}/stop`, {});
  }

  /** As a user reads it. */
  async show() {
    return (await this.piton.command("sessions", "show", this.id)).stdout;
  }

  async log() {
    return (await this.piton.command("sessions", "log", this.id)).stdout;
  }

  /** Says something; gives the run. */
  async prompt(content) {
    const said = await this.piton.ask("POST", `/sessions/${this.id}/messages`, { content });
    return said.run_id;
  }

  async records() {
    const records = [];
    for (let after = 0; after !== null; ) {
      const path = `/sessions/${this.id}/records?after=${after}&limit=${PAGE}`;
      const page = await this.piton.ask("GET", path);
      records.push(...page.records);
      after = page.next ?? null;
    }
    return records;
  }

  async recordsOf(kind, run) {
    const records = await this.records();
    return records.filter((record) => record.kind === kind && (!run || record.run_id === run));
  }

  /** The last message of a run, as the log has it. Before it agents warn, and think, in others. */
  async said(run) {
    const deltas = await this.recordsOf("message.delta", run);
    const answers = deltas.filter((delta) => (delta.channel ?? "answer") === "answer");
    const last = answers.filter((delta) => delta.message_id === answers.at(-1)?.message_id);
    return last.map((delta) => delta.text).join("");
  }

  answer(wait, option) {
    return this.piton.ask("POST", `/waits/${wait}/answer`, { answer: { option_id: option } });
  }

  async close() {
    await this.piton.ask("POST", `/sessions/${this.id}/close`, {});
  }
}
