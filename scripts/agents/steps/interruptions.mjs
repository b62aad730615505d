// Turns that something cuts off, and what the next agent knows of them.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";

import { isSame } from "../processes.mjs";
import { NotOffered, NOTICE_MS, PIECES } from "../scene.mjs";
import { until } from "../wait.mjs";
import { FILE } from "./turns.mjs";

/** Pieces of an answer after which an agent that got SIGTERM is said to ignore it: ten seconds. */
const PIECES_IGNORED = 100;

/** The run is interrupted, what was said stays, and no process of the old agent is left. */
export async function killAgent(scene) {
  const cut = await scene.talk("cherry", "Please talk for long.");
  const processes = await scene.killAgent();
  await scene.wasInterrupted(cut.run, "process_exit");
  scene.partial = await scene.session.said(cut.run);
  assert.ok(cut.answer.cut, "The model's answer was cut off");
  assert.ok(cut.answer.text.startsWith(scene.partial), `The log has what was said: ${scene.partial}`);
  assert.ok(scene.partial.includes(`${cut.name}-1 `), `Something was said: ${scene.partial}`);
  return `${processes} processes, ${scene.partial.length} characters kept`;
}

/** The next prompt starts another agent, and the model has what was said, and the request that was cut off. */
export async function comeBack(scene) {
  const { name, status } = await scene.isBack("damson");
  scene.afterKill = name;
  const { opened_as: openedAs } = (await scene.session.recordsOf("agent.initialized")).at(-1);
  const [waiting] = await scene.session.recordsOf("agent.waiting");
  if (waiting) assert.ok(scene.waits.has(waiting.reason), "The status says what the start waits for");
  return [`opened as ${openedAs}`, `context ${status.context}`, ...scene.waits].join(", ");
}

export function note(scene) {
  const text = scene.givenWith(scene.afterKill);
  assert.ok(text.includes("[SESSION_RESUMED]"), `There is a note: ${text}`);
  assert.ok(text.includes("Interruption: your last turn did not end."), text);
  assert.ok(text.includes(scene.partial.trim()), `It has what had been said: ${text}`);
  if (scene.asked > 0) assert.ok(text.includes(FILE), `It has what has changed in the workspace: ${text}`);
}

/** Agents answer a running turn while they are being ended: cancelled, or even its end. */
export async function terminateAgent(scene) {
  const cut = await scene.talk("date", "Please talk for long again.");
  const { self, family } = scene.signal("SIGTERM");
  const pieces = cut.answer.pieces + PIECES_IGNORED;
  await until("it ends or continues", NOTICE_MS, () => !isSame(self) || cut.answer.pieces >= pieces);
  if (isSame(self)) return ignoreSignal(scene, cut);
  await scene.ended(family);
  const { interruption } = await scene.wasInterrupted(cut.run, "process_exit");
  const [record] = await scene.session.recordsOf("run.interrupted", cut.run);
  const { status } = await scene.isBack("elder");
  return `phase ${interruption.phase}, stop reason ${record.stop_reason ?? "none"}, context ${status.context}`;
}

/** An agent that ignores the signal has its turn to its end, and nothing is said of an interruption. */
async function ignoreSignal(scene, going) {
  scene.model.release(going.name);
  await scene.completed(going.run);
  assert.deepEqual(await scene.session.recordsOf("run.interrupted", going.run), []);
  throw new NotOffered("it ignores SIGTERM in a turn; the turn continued to its end");
}

/** The turn continues without the server, and the next server has all of it. */
export async function killServer(scene) {
  const going = await scene.talk("fig", "Please talk once more.");
  const before = scene.agents();
  await scene.piton.end("SIGKILL");
  const pieces = going.answer.pieces + PIECES;
  await until("the model was read while there was no server", NOTICE_MS, () => going.answer.pieces >= pieces);
  await scene.piton.start();
  scene.model.release(going.name);
  await scene.completed(going.run);
  assert.equal(going.answer.cut, false, "The agent read the answer to its end");
  assert.equal((await scene.session.said(going.run)).trim(), going.answer.text.trim());
  assert.deepEqual(await scene.session.recordsOf("run.interrupted", going.run), []);
  assert.deepEqual(scene.agents(), before, "It is the same agent");
}

/** A question that was asked of one server can be answered to the next. */
export async function killServerAsking(scene) {
  const asked = await scene.ask("grape", `second-${FILE}`);
  await scene.piton.end("SIGKILL");
  await scene.piton.start();
  await scene.allow(asked.run);
  await scene.wasWritten(asked);
  assert.deepEqual(await scene.session.recordsOf("run.interrupted", asked.run), []);
}

/** No agent asks again after that; the next one gets to know what became of the question. */
export async function killAgentAsking(scene) {
  const asked = await scene.ask("hazel", `third-${FILE}`);
  await scene.killAgent();
  const { interruption } = await scene.wasInterrupted(asked.run, "process_exit");
  const { name } = await scene.isBack("ivy", "Please leave it.");
  assert.deepEqual((await scene.session.status()).waits, []);
  assert.equal(existsSync(join(scene.workspace, asked.file)), false, "Nothing is done without an answer");
  // A process that a killed one had started may withdraw the request before it is killed as well.
  const withdrawn = await scene.session.recordsOf("wait.cancelled", asked.run);
  if (withdrawn.length > 0) return "the dying agent withdrew its request";
  assert.equal(interruption.phase, "waiting");
  const text = scene.givenWith(name);
  const from = text.indexOf("These questions of yours were cut off");
  assert.notEqual(from, -1, `The note has the question: ${text}`);
  assert.ok(text.slice(from).includes(asked.command), `With the whole command: ${text}`);
}

/** Server, agentctl and agent die at the same moment. */
export async function reboot(scene) {
  const cut = await scene.talk("juniper", "Please talk until the power fails.");
  const processes = await scene.killAll();
  await scene.piton.start();
  const { interruption } = await scene.wasInterrupted(cut.run, "process_restart");
  const { status } = await scene.isBack("kiwi");
  return `${processes} processes, phase ${interruption.phase}, context ${status.context}`;
}
