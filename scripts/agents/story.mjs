// What every agent is put through, step by step. Each step says what it wants to show; what it looks
// at is Piton's log, the processes of this machine, and above all what reached the model.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { answerTo, hold, say, shell } from "./llm.mjs";
import { having, isSame, kill, known, roots, withDescendants } from "./processes.mjs";
import { until } from "./wait.mjs";

/** The slowest of them takes a while to start on a small machine. */
const START_MS = 120_000;
/** A turn with a tool: the shell's start-up files may take a minute of it. */
const TURN_MS = 180_000;
/** Until an end is noticed. */
const NOTICE_MS = 30_000;
/** Pieces of a held answer that are enough to call it a turn's middle. */
const PIECES = 5;
const FILE = "written-by-the-agent.txt";

export class Story {
  /** `marker`: the variables that all processes of this run have. */
  constructor({ agent, piton, model, workspace, marker }) {
    Object.assign(this, { agent, piton, model, workspace, marker });
    // Each thing that is said is said nowhere else, since it is looked for in what reaches the model.
    const name = (what) => `${agent.id}-${what}`;
    this.names = {
      first: name("apple"),
      asked: name("banana"),
      cut: name("cherry"),
      back: name("damson"),
      served: name("elder"),
      servedAsking: name("fig"),
      cutAsking: name("grape"),
      last: name("hazel"),
    };
  }

  /** In their order; a step that fails because the session hangs leaves out those behind it. */
  steps() {
    return [
      ["new", () => this.begin()],
      ["prompt", () => this.prompt()],
      ["permission", () => this.permission()],
      ["kill the agent in mid-turn", () => this.killAgent()],
      ["resume with the next prompt", () => this.resume()],
      ["remember what was said", () => this.remember()],
      ["the interrupted prompt is known", () => this.rememberCut()],
      ["the note about the interruption", () => this.note()],
      ["kill the server in mid-turn", () => this.killServer()],
      ["kill the server while it asks", () => this.killServerAsking()],
      ["kill the agent while it asks", () => this.killAgentAsking()],
      ["nothing was prompted twice", () => this.once()],
      ["the log has every answer", () => this.allIsLogged()],
      ["close, and nothing is left", () => this.close()],
    ];
  }

  async begin() {
    this.session = await this.piton.session(this.agent.id, this.workspace);
    await this.session.when("the agent is ready", START_MS, (status) => {
      if (status.status === "error") throw new Error(`${status.reason}: ${status.sentence}`);
      return status.is_agent_running && status.status === "idle";
    });
    const [described] = await this.session.recordsOf("agent.initialized");
    assert.equal(described.begun, "new");
    return `${described.agent?.name} ${described.agent?.version}`;
  }

  /** What is asked reaches the model, and what it says reaches the log. */
  async prompt() {
    const run = await this.session.prompt(`Please say it. ${say(this.names.first)}`);
    await this.completed(run);
    assert.equal((await this.session.said(run)).trim(), answerTo(this.names.first));
    assert.equal(this.model.beginnings(this.names.first).length, 1);
  }

  /** A tool that needs a permission waits for it, and runs when it is given. */
  async permission() {
    const run = await this.ask(this.names.asked, FILE);
    await this.allow(run);
    await this.completed(run);
    await this.wasWritten(this.names.asked, FILE);
    assert.equal((await this.session.said(run)).trim(), answerTo(this.names.asked));
  }

  /** The run is interrupted, what was said stays, and nobody of the old agent is left. */
  async killAgent() {
    const name = this.names.cut;
    const run = await this.session.prompt(`Please talk for long. ${hold(name)}`);
    await this.isTalking(run, name);
    const processes = await this.interrupt();
    this.partial = await this.session.said(run);
    const sent = this.model.answers.get(name);
    assert.ok(sent.cut, "The model's answer was cut off");
    assert.ok(sent.text.startsWith(this.partial), `The log has what was said: ${this.partial}`);
    assert.ok(this.partial.includes(`${name}-1 `), `Something was said: ${this.partial}`);
    return `${processes} processes, ${this.partial.length} characters kept`;
  }

  /** Another agent is started for it, and goes on with the same conversation. */
  async resume() {
    const run = await this.session.prompt(`Please go on. ${say(this.names.back)}`);
    await this.completed(run, START_MS);
    assert.equal((await this.session.said(run)).trim(), answerTo(this.names.back));
    const described = (await this.session.recordsOf("agent.initialized")).at(-1);
    assert.equal(described.context_restored, true, `It went on: ${JSON.stringify(described)}`);
    assert.deepEqual(await this.session.recordsOf("agent.session_cleared"), []);
    return `begun: ${described.begun}`;
  }

  /** The proof of a restored conversation is what reaches the model. */
  remember() {
    const { items } = this.afterKill();
    const has = (role, text) => items.some((item) => item.role === role && item.text.includes(text));
    assert.ok(has("user", say(this.names.first)), "The first prompt");
    assert.ok(has("assistant", answerTo(this.names.first)), "The first answer");
    assert.ok(has("user", `[[shell ${this.names.asked} `), "The second prompt");
    assert.ok(has("call", FILE), "The tool call");
    assert.ok(has("assistant", answerTo(this.names.asked)), "The second answer");
  }

  /** What the user said in the turn that was cut off: some agents have not written it down yet. */
  rememberCut() {
    const { items } = this.afterKill();
    const known = items.some((item) => item.role === "user" && item.text.includes(hold(this.names.cut)));
    assert.ok(known, "What was said in the interrupted turn does not reach the model");
  }

  note() {
    const text = this.saidWith(this.names.back);
    assert.ok(text.includes("[SESSION_RESUMED]"), `There is a note: ${text}`);
    assert.ok(text.includes("Interruption: your last turn did not end."), text);
    assert.ok(text.includes(this.partial.trim()), `It tells what had been said: ${text}`);
    assert.ok(text.includes(FILE), `It tells what has changed in the workspace: ${text}`);
  }

  /** The turn goes on without the server, and the next one has all of it. */
  async killServer() {
    const name = this.names.served;
    const run = await this.session.prompt(`Please talk again. ${hold(name)}`);
    await this.isTalking(run, name);
    const before = this.agents();
    await this.piton.end("SIGKILL");
    const answer = this.model.answers.get(name);
    const pieces = answer.pieces + PIECES;
    await until("the model was read while there was no server", NOTICE_MS, () => answer.pieces >= pieces);
    await this.piton.start();
    this.model.release(name);
    await this.completed(run);
    assert.equal(answer.cut, false, "The agent read the answer to its end");
    assert.equal((await this.session.said(run)).trim(), answer.text.trim());
    assert.deepEqual(await this.session.recordsOf("run.interrupted", run), []);
    assert.deepEqual(this.agents(), before, "It is the same agent");
  }

  /** A question that was asked of one server can be answered to the next. */
  async killServerAsking() {
    const file = `second-${FILE}`;
    const run = await this.ask(this.names.servedAsking, file);
    await this.piton.end("SIGKILL");
    await this.piton.start();
    await this.allow(run);
    await this.completed(run);
    await this.wasWritten(this.names.servedAsking, file);
    assert.deepEqual(await this.session.recordsOf("run.interrupted", run), []);
  }

  /** Nobody asks again after that; the next agent is told what became of the question. */
  async killAgentAsking() {
    const file = `third-${FILE}`;
    await this.ask(this.names.cutAsking, file);
    await this.interrupt();
    const run = await this.session.prompt(`Please leave it. ${say(this.names.last)}`);
    await this.completed(run);
    assert.deepEqual((await this.session.status()).waits, []);
    assert.equal(existsSync(join(this.workspace, file)), false, "Nothing is done without an answer");
    const note = this.saidWith(this.names.last);
    assert.ok(note.includes("These questions of yours were cut off"), `It tells of the question: ${note}`);
    assert.ok(note.includes(file), `It tells which it was: ${note}`);
  }

  once() {
    for (const name of Object.values(this.names)) {
      assert.equal(this.model.beginnings(name).length, 1, `The turn of ${name} began once`);
    }
    const { items } = this.model.requests.filter((request) => !request.isSide).at(-1);
    const user = items.filter((item) => item.role === "user").map((item) => item.text).join("\n");
    for (const name of Object.values(this.names)) {
      const times = user.split(new RegExp(`\\[\\[\\w+ ${name}\\b`)).length - 1;
      assert.ok(times <= 1, `The conversation has ${name} ${times} times`);
    }
    return `${this.model.requests.filter((request) => !request.isSide).length} requests`;
  }

  /** What an agent believes to have said has been heard: nothing of it goes on talking when it is dead. */
  async allIsLogged() {
    const deltas = await this.session.recordsOf("message.delta");
    const logged = deltas.map((delta) => delta.text).join("");
    const { items } = this.beginning(this.names.last);
    const believed = items.filter((item) => item.role === "assistant").map((item) => item.text).join("\n");
    const answers = Object.values(this.names).map(answerTo);
    const unheard = answers.filter((answer) => believed.includes(answer) && !logged.includes(answer));
    assert.deepEqual(unheard, [], "The conversation has answers that the log has not");
  }

  async close() {
    const family = this.agents().flatMap(withDescendants).map(known);
    assert.notEqual(family.length, 0);
    await this.session.close();
    await this.ended(family);
  }

  /** Kills the agent as a crash does it; all that it had started is ended, too. */
  async interrupt() {
    const [agent] = this.agents();
    assert.ok(agent, "The agent's process was not found");
    const family = withDescendants(agent).map(known);
    kill(agent);
    await this.session.when("the run is interrupted", NOTICE_MS, isInterrupted);
    await this.ended(family);
    return family.length;
  }

  async ended(family) {
    const left = () => family.filter(isSame);
    const seen = () => `There are: ${left().map(({ command }) => command).join("; ")}`;
    await until("nobody of the agent is left", NOTICE_MS, () => left().length === 0, seen);
  }

  /** Asks for a tool call, up to the question. */
  async ask(name, file) {
    const command = `printf ${name} > ${file}`;
    const run = await this.session.prompt(`Please write it. ${shell(name, command)}`);
    const waiting = await this.session.when("somebody is asked", TURN_MS, (status) => {
      if (status.run_id === run && status.status === "idle") throw new Error("The turn ended, and nobody was asked");
      return status.run_id === run && status.status === "waiting";
    });
    assert.equal(waiting.waits.length, 1);
    assert.equal(waiting.waits[0].kind, "permission");
    assert.equal(existsSync(join(this.workspace, file)), false, "Nothing is done before the answer");
    return run;
  }

  async allow(run) {
    const status = await this.session.when("the question is open", NOTICE_MS, (now) => now.waits.length > 0);
    const [asked] = await this.session.recordsOf("run.waiting", run);
    const { options } = asked.question;
    const option = options.find(({ kind }) => kind === "allow_once") ?? options[0];
    await this.session.answer(status.waits[0].wait_id, option.optionId);
  }

  /** The tool ran, once, and the model was told. */
  async wasWritten(name, file) {
    assert.equal(readFileSync(join(this.workspace, file), "utf8"), name);
    const told = this.model.requests.filter(
      (request) => !request.isSide && !request.begins && request.directive?.name === name,
    );
    assert.equal(told.length, 1, "The tool's result reached the model");
    const waits = (await this.session.records()).filter((record) => record.kind === "run.waiting");
    assert.equal(new Set(waits.map((record) => record.wait_id)).size, this.countAsked());
  }

  countAsked() {
    const asked = [this.names.asked, this.names.servedAsking, this.names.cutAsking];
    return asked.filter((name) => this.model.beginnings(name).length > 0).length;
  }

  /** In the middle of an answer: the model has more to say, and the log has some of it. */
  async isTalking(run, name) {
    const answer = () => this.model.answers.get(name);
    await this.session.when("the model is asked", TURN_MS, (now) => {
      if (now.run_id === run && now.status !== "running") throw new Error(`The run is ${now.reason}`);
      return answer()?.pieces >= PIECES;
    });
    const begun = async () => (await this.session.said(run)).includes(`${name}-1 `);
    await until("the log has some of the answer", TURN_MS, begun);
    assert.equal(answer().cut, false);
  }

  async completed(run, waitMs = TURN_MS) {
    const status = await this.session.when("the turn has ended", waitMs, (now) => {
      const isOver = now.status === "error" || isInterrupted(now);
      if (now.run_id === run && isOver) throw new Error(`${now.reason}: ${now.sentence}`);
      return now.run_id === run && now.status === "idle";
    });
    if (status.last_outcome === "completed") return;
    const failed = await this.session.recordsOf("run.failed", run);
    assert.fail(`The run is ${status.last_outcome}: ${JSON.stringify(failed)}`);
  }

  /** Whether it could be told something now. */
  async isAtRest() {
    const status = await this.session?.status().catch(() => null);
    return Boolean(status) && (status.status === "idle" || isInterrupted(status));
  }

  /** The request that began the first turn after the kill. */
  afterKill() {
    return this.beginning(this.names.back);
  }

  beginning(name) {
    const [request] = this.model.beginnings(name);
    assert.ok(request, `The model was never asked for ${name}`);
    return request;
  }

  /** What the agent was given as this prompt, with the note that came before it. */
  saidWith(name) {
    const said = this.beginning(name).items.filter((item) => item.role === "user" && item.text.includes(say(name)));
    assert.equal(said.length, 1);
    return said[0].text;
  }

  /** The agents that run in this workspace: one, or none. */
  agents() {
    const marked = having({ ...this.marker, PITON_PART: "agent" });
    return roots(marked);
  }
}

const isInterrupted = (status) => status.status.startsWith("interrupted");
