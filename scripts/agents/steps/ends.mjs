// What holds at the end, whatever happened.

import assert from "node:assert/strict";

import { answerTo } from "../llm.mjs";
import { known, withDescendants } from "../processes.mjs";

export function once(scene) {
  for (const name of scene.said.keys()) {
    assert.equal(scene.model.beginnings(name).length, 1, `The turn of ${name} began once`);
  }
  const turns = scene.model.requests.filter((request) => !request.isSide);
  for (const { items } of turns) {
    const user = items.filter((item) => item.role === "user").map((item) => item.text.trimEnd());
    for (const [name, { text }] of scene.said) {
      // Notes and histories quote a prompt; what ends with it is the prompt itself.
      const times = user.filter((each) => each.endsWith(text)).length;
      assert.ok(times <= 1, `The conversation has ${name} ${times} times`);
    }
  }
  return `${turns.length} requests`;
}

/** What an agent believes to have said is in the log: nothing of it talks on when it is dead. */
export async function allIsLogged(scene) {
  const deltas = await scene.session.recordsOf("message.delta");
  const logged = deltas.map((delta) => delta.text).join("");
  const believed = scene.model.requests.flatMap(({ items }) => items.filter(({ role }) => role === "assistant"));
  const text = believed.map((item) => item.text).join("\n");
  const answers = [...scene.said.keys()].map(answerTo);
  const missing = answers.filter((answer) => text.includes(answer) && !logged.includes(answer));
  assert.deepEqual(missing, [], "The conversation has answers that the log has not");
}

/** The log as a user reads it: no line of it is only about Piton's own bookkeeping. */
export async function readLog(scene) {
  const text = await scene.session.log();
  scene.printed.push({ step: scene.step, command: "sessions log", text });
  assert.ok(!text.includes("spool.imported"), "The log shows how far a spool was read");
  for (const [name, { text: prompt }] of scene.said) {
    assert.ok(text.includes(prompt), `The log does not show the prompt ${name}`);
  }
}

export async function close(scene) {
  const family = scene.agents().flatMap(withDescendants).map(known);
  assert.notEqual(family.length, 0);
  await scene.session.close();
  await scene.ended(family);
}
