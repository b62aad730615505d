// Turns that nothing disturbs.

import assert from "node:assert/strict";

import { answerTo, say } from "../llm.mjs";
import { NotOffered, NOTICE_MS } from "../scene.mjs";
import { until } from "../wait.mjs";

export const FILE = "written-by-the-agent.txt";

export async function begin(scene) {
  await scene.begin();
  const [initialized] = await scene.session.recordsOf("agent.initialized");
  assert.equal(initialized.opened_as, "new");
  const offers = Object.entries(initialized.capabilities).filter(([, has]) => has === true);
  const { name, version } = initialized.agent ?? {};
  return `${name} ${version}; offers ${offers.map(([what]) => what).join(" ") || "nothing"}`;
}

/** What is asked reaches the model, and what it says reaches the log. */
export async function prompt(scene) {
  const { name } = await scene.say("apple", "Please say it.");
  assert.equal(scene.model.beginnings(name).length, 1);
}

/** The request has the whole command for every client, and the tool runs when it is answered. */
export async function permission(scene) {
  const asked = await scene.ask("banana", FILE);
  const request = asked.wait.permission;
  const said = request?.command ?? request?.title ?? "";
  assert.ok(said.includes(asked.command), `The whole command is in ${JSON.stringify(request)}`);
  const waits = await scene.piton.command("sessions", "waits", scene.session.id);
  scene.printed.push({ step: scene.step, command: "sessions waits", text: waits.stdout });
  assert.ok(waits.stdout.includes(asked.command), `The command is shown: ${waits.stdout}`);
  await scene.allow(asked.run);
  await scene.wasWritten(asked);
  assert.equal((await scene.session.said(asked.run)).trim(), answerTo(asked.name));
  return request.command ? `command: ${request.command}` : `no command, the title is: ${request.title}`;
}

/** What a user chooses is chosen for the next agent, too. */
export async function mode(scene) {
  await scene.isRunning();
  const { modes } = await scene.session.agent();
  const other = modes?.available.find(({ id }) => id !== modes.current && !isDangerous(id));
  if (!other) throw new NotOffered("the agent names no other mode");
  const current = async () => (await scene.session.agent()).modes?.current;
  const seen = async () => JSON.stringify((await scene.session.recordsOf("agent.updated")).slice(-3));
  const isNow = (id) => until(`the mode is ${id}`, NOTICE_MS, async () => (await current()) === id, seen);
  await scene.session.choose({ mode: other.id });
  await isNow(other.id);
  await scene.killIdleAgent();
  const { length: before } = await scene.session.records();
  await scene.isBack("mango");
  // The next agent says it itself: what it said before its start is not looked at.
  const since = (await scene.session.records()).slice(before).filter(({ kind }) => kind === "agent.updated");
  const refused = since.filter(({ what }) => what.startsWith("choice_refused"));
  assert.deepEqual(refused, []);
  const confirmed = since.filter(({ what }) => ["mode", "modes", "config"].includes(what));
  assert.notEqual(confirmed.length, 0, "The next agent says its mode");
  await isNow(other.id);
  await scene.session.choose({ mode: modes.current });
  await isNow(modes.current);
  return `${modes.current} → ${other.id} → ${modes.current}`;
}

/** Modes that ask for no permission stay out of it. */
const isDangerous = (id) => /yolo|bypass|full|auto|dont/i.test(id);

/** A prompt in a session of its own, from a shell. */
export async function print(scene) {
  const name = `${scene.agent.id}-nutmeg`;
  const args = ["chat", "--agent", scene.agent.id, "--print", `Please say it. ${say(name)}`, scene.workspace];
  const { code, stdout, stderr } = await scene.piton.command(...args);
  scene.printed.push({ step: scene.step, command: "chat --print", text: `${stdout}--- stderr\n${stderr}` });
  assert.equal(code, 0, stderr);
  // Some agents warn before they answer.
  assert.ok(stdout.trim().endsWith(answerTo(name)), stdout);
}
