// What the steps share: one session with one agent, what was said in it, the processes of this run, and
// what reached the model.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { basename, join } from "node:path";

import { answerTo, hold, say, shell } from "./llm.mjs";
import { having, isSame, kill, known, roots, withDescendants } from "./processes.mjs";
import { until } from "./wait.mjs";

/** The slowest agent takes a while to start on a small machine; Gemini waits for the next minute. */
export const START_MS = 150_000;
/** A turn with a tool: the shell's start-up files may take a minute of it. */
export const TURN_MS = 180_000;
/** Until an end is noticed. */
export const NOTICE_MS = 30_000;
/** Pieces of a held answer that are enough to call it a turn's middle. */
export const PIECES = 5;
const COMMAND_MS = 60_000;

/** Thrown by a step that this agent does not offer; the message says why. */
export class NotOffered extends Error {}

export class Scene {
  /** By name: the words of a user, and whether the turn came to its end. */
  said = new Map();
  /** What `sessions show` and others printed, in order: `{ step, command, text }`. */
  printed = [];
  /** Why the last turn had to wait for its agent, as the status said meanwhile. */
  waits = new Set();
  /** How many permissions were asked for. */
  asked = 0;

  /** `marker`: the variables that all processes of this run have. */
  constructor({ agent, piton, model, workspace, home, program, env, marker }) {
    Object.assign(this, { agent, piton, model, workspace, home, program, env, marker });
  }

  async begin() {
    this.session = await this.piton.session(this.agent.id, this.workspace);
    await this.isReady();
  }

  async isReady() {
    return this.session.when("the agent is ready", START_MS, (status) => {
      if (status.status === "error") throw new Error(`${status.reason}: ${status.sentence} ${status.error_message}`);
      return status.is_agent_running && status.status !== "starting" && status;
    });
  }

  /** Each prompt has a name of its own, by which it is found in what reaches the model. */
  async prompt(what, directive, words) {
    const name = `${this.agent.id}-${what}`;
    assert.ok(!this.said.has(name), `${name} is said twice`);
    const text = `${words} ${directive(name)}`;
    this.said.set(name, { text, isAnswered: false });
    return { name, run: await this.watched(this.session.prompt(text)) };
  }

  /** A prompt is accepted when its agent runs: what the start waits for is seen until then. */
  async watched(request) {
    this.waits.clear();
    let isAnswered = false;
    const answered = () => (isAnswered = true);
    request.then(answered, answered);
    await this.session.when("the prompt is accepted", START_MS, (now) => {
      if (now.status === "starting") this.waits.add(now.reason);
      return isAnswered;
    });
    return request;
  }

  /** A turn from its prompt to its end. */
  async say(what, words) {
    const { name, run } = await this.prompt(what, say, words);
    await this.completed(run);
    assert.equal((await this.session.said(run)).trim(), answerTo(name));
    this.said.get(name).isAnswered = true;
    return { name, run };
  }

  /** A turn in the middle of its answer: the model has more to say, and the log has some of it. */
  async talk(what, words) {
    const { name, run } = await this.prompt(what, hold, words);
    const answer = () => this.model.answers.get(name);
    await this.session.when("the model is asked", TURN_MS, (now) => {
      const isGoing = ["running", "starting"].includes(now.status);
      if (now.run_id === run && !isGoing) throw new Error(`The run is ${now.reason}: ${now.sentence}`);
      return answer()?.pieces >= PIECES;
    });
    const begun = async () => (await this.session.said(run)).includes(`${name}-1 `);
    await until("the log has some of the answer", TURN_MS, begun);
    assert.equal(answer().cut, false);
    return { name, run, answer: answer() };
  }

  /** A turn with a tool call, up to the permission request. */
  async ask(what, file) {
    const command = (name) => `printf ${name} > ${file}`;
    const { name, run } = await this.prompt(what, (each) => shell(each, command(each)), "Please write it.");
    const waiting = await this.session.when("a permission is asked for", TURN_MS, (status) => {
      const isOver = status.run_id === run && status.status === "idle";
      if (isOver) throw new Error("The turn ended without a permission request");
      return status.run_id === run && status.status === "waiting";
    });
    this.asked += 1;
    assert.equal(waiting.waits.length, 1);
    assert.equal(waiting.waits[0].kind, "permission");
    assert.equal(existsSync(join(this.workspace, file)), false, "Nothing is done before the answer");
    return { name, run, file, command: command(name), wait: waiting.waits[0] };
  }

  async allow(run) {
    const status = await this.session.when("the request is open", NOTICE_MS, (now) => now.waits.length > 0);
    const [wait] = status.waits;
    assert.equal(wait.run_id, run);
    const { options } = wait.permission;
    const option = options.find(({ kind }) => kind === "allow_once") ?? options[0];
    await this.session.answer(wait.wait_id, option.option_id);
  }

  /** The tool ran, once, and the model got its result. */
  async wasWritten({ name, run, file }) {
    await this.completed(run);
    this.said.get(name).isAnswered = true;
    assert.equal(readFileSync(join(this.workspace, file), "utf8"), name);
    const results = this.model.requests.filter(
      (request) => !request.isSide && !request.begins && request.directive?.name === name,
    );
    assert.equal(results.length, 1, "The tool's result reached the model");
    const waits = (await this.session.records()).filter((record) => record.kind === "run.waiting");
    assert.equal(new Set(waits.map((record) => record.wait_id)).size, this.asked);
  }

  async completed(run) {
    const status = await this.session.when("the turn has ended", TURN_MS, (now) => {
      if (now.status === "starting") this.waits.add(now.reason);
      const isOver = now.status === "error" || isInterrupted(now);
      if (now.run_id === run && isOver) throw new Error(`${now.reason}: ${now.sentence}`);
      return now.run_id === run && now.status === "idle";
    });
    if (status.last_outcome === "completed") return;
    const failed = await this.session.recordsOf("run.failed", run);
    assert.fail(`The run is ${status.last_outcome}: ${JSON.stringify(failed)}`);
  }

  /** What the agent ends with is an interruption and nothing else, by status, log and screen. */
  async wasInterrupted(run, reason) {
    const status = await this.session.when("the run is interrupted", NOTICE_MS, isInterrupted);
    assert.equal(status.run_id, run);
    assert.equal(status.interruption?.reason, reason, JSON.stringify(status.interruption));
    const kinds = (await this.session.records()).filter((record) => record.run_id === run).map(({ kind }) => kind);
    assert.equal(kinds.filter((kind) => kind === "run.interrupted").length, 1, "Interrupted once");
    const ends = ["run.cancelled", "run.failed"].filter((kind) => kinds.includes(kind));
    assert.deepEqual(ends, [], "It has no other end");
    const shown = await this.look();
    assert.ok(shown.includes("interrupted"), `It is shown as interrupted: ${shown}`);
    return status;
  }

  /** Another agent, with the same conversation: what was said before reaches the model again. */
  async isBack(what, words = "Please go on.") {
    const { name, run } = await this.say(what, words);
    const status = await this.session.status();
    await this.look();
    assert.equal(status.context_restored, true, `${status.context}: ${status.context_sentence}`);
    assert.equal(status.context, this.agent.context ?? "native", status.context_sentence);
    this.knows(name);
    return { name, run, status };
  }

  /** All that was said and answered before is in the request that began this turn. */
  knows(name) {
    const text = this.beginning(name).items.map((item) => item.text).join("\n");
    for (const [other, { text: prompt, isAnswered }] of this.said) {
      if (other === name) break;
      // The note carries what was cut off, for agents that save a turn only at its end.
      assert.ok(text.includes(prompt), `The model does not know the prompt ${other}`);
      if (isAnswered) assert.ok(text.includes(answerTo(other)), `The model does not know the answer to ${other}`);
    }
  }

  /** For steps that end an agent: it is started if an earlier step left none. */
  async isRunning() {
    const status = await this.session.status();
    if (!status.is_agent_running) await this.session.resume();
    return this.isReady();
  }

  /** Ends the agent from outside; all that it had started is ended, too. */
  async killAgent() {
    const { family } = this.signal("SIGKILL");
    await this.ended(family);
    return family.length;
  }

  /** To the agent's first process alone, as `kill` does it. */
  signal(name) {
    const [agent] = this.agents();
    assert.ok(agent, "The agent's process was not found");
    const [self, ...others] = withDescendants(agent).map(known);
    kill(agent, name);
    return { self, family: [self, ...others] };
  }

  /** The agent ends while nothing runs, and Piton notices. */
  async killIdleAgent() {
    await this.killAgent();
    await this.session.when("the end is noticed", NOTICE_MS, (now) => !now.is_agent_running);
  }

  /** Server, agentctl and agent at once, as when the power fails. */
  async killAll() {
    const family = having(this.marker).map(known);
    for (const { pid } of family) kill(pid);
    await this.piton.end("SIGKILL");
    await this.ended(family);
    return family.length;
  }

  async ended(family) {
    const left = () => family.filter(isSame);
    const seen = () => `There are: ${left().map(({ command }) => command).join("; ")}`;
    await until("no process of the agent is left", NOTICE_MS, () => left().length === 0, seen);
  }

  /** All conversations of the agent, while it does not run. */
  deleteStorage() {
    const folders = this.agent.storage(this).filter(existsSync);
    assert.notEqual(folders.length, 0, `It has no ${this.agent.storage(this).join(", ")}`);
    for (const folder of folders) rmSync(folder, { recursive: true });
  }

  /** One conversation of the agent, and no other one. */
  async deleteConversation(id) {
    if (this.agent.forgetCommand) return this.runAgent(this.agent.forgetCommand(id));
    const mark = this.agent.fileMark?.(id) ?? id;
    const found = this.agent.storage(this).filter(existsSync).flatMap((folder) => named(folder, mark));
    assert.notEqual(found.length, 0, `No file of the conversation ${id}`);
    for (const path of found) rmSync(path, { recursive: true });
  }

  /** The agent's own command, with the environment that it has under Piton. */
  async runAgent(args) {
    const child = spawn(this.program, args, { cwd: this.workspace, env: this.env, timeout: COMMAND_MS });
    let printed = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (piece) => (printed += piece));
    const [code] = await once(child, "close");
    assert.equal(code, 0, `${args.join(" ")}: ${printed}`);
  }

  /** What a user sees of the session now; kept as evidence. */
  async look() {
    const text = await this.session.show();
    this.printed.push({ step: this.step, command: "sessions show", text });
    return text;
  }

  /** Whether it could take a prompt now. */
  async isAtRest() {
    const status = await this.session?.status().catch(() => null);
    return Boolean(status) && (status.status === "idle" || isInterrupted(status));
  }

  /** The request that began this turn. */
  beginning(name) {
    const [request] = this.model.beginnings(name);
    assert.ok(request, `The model was never asked for ${name}`);
    return request;
  }

  /** What the agent was given as this prompt, with the note that came before it. */
  givenWith(name) {
    const given = this.beginning(name).items.filter((item) => item.role === "user" && item.text.includes(say(name)));
    assert.equal(given.length, 1);
    return given[0].text;
  }

  /** The agents of this run: one, or none. */
  agents() {
    return roots(having({ ...this.marker, PITON_PART: "agent" }));
  }
}

export const isInterrupted = (status) => status.status.startsWith("interrupted");

/** Files and folders from this one on with the mark in their names; not what is in such a folder. */
function named(folder, mark) {
  if (basename(folder).includes(mark)) return [folder];
  if (!statSync(folder).isDirectory()) return [];
  return readdirSync(folder).flatMap((name) => named(join(folder, name), mark));
}
