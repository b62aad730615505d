// Agents that have lost their conversation: it is seen, and a user can choose.

import assert from "node:assert/strict";

import { say } from "../llm.mjs";
import { TURN_MS } from "../scene.mjs";

const CHOICES = ["retry", "continue_with_history", "continue_without_context", "new_session"];

/** All that the agent had stored is gone: the next prompt carries the history, and everybody can see why. */
export async function deleteStorage(scene) {
  await scene.isRunning();
  await scene.killIdleAgent();
  scene.deleteStorage();
  const { name } = await scene.say("lemon", "Please go on without your files.");
  const status = await scene.session.status();
  const shown = await scene.look();
  assert.equal(status.context, "injected", status.context_sentence);
  scene.knows(name);
  if (scene.agent.context !== "injected") {
    assert.equal(status.context_reason, "session_refused", status.context_sentence);
    assert.ok(shown.includes(status.context_sentence), `It is shown: ${shown}`);
  }
  return status.context_sentence;
}

/** One conversation is gone while others are there: resuming says so before anything is prompted. */
export async function refuseId(scene) {
  const { executor } = await scene.isRunning();
  const id = executor.agent_session_id;
  assert.ok(id, "The agent has an id of its conversation");
  await scene.killIdleAgent();
  await scene.deleteConversation(id);
  await scene.session.resume();
  let status = await scene.isReady();
  assert.equal(status.status, "idle", status.sentence);
  if (scene.agent.refusesAtPrompt) {
    status = await refusePrompt(scene);
  }
  assert.equal(status.context, "injected", status.context_sentence);
  assert.equal(status.context_reason, "session_refused", status.context_sentence);
  const cleared = (await scene.session.recordsOf("agent.session_cleared")).map((record) => record.agent_session_id);
  assert.ok(cleared.includes(id), `${id} is cleared: ${cleared}`);
  await scene.look();
  const { name } = await scene.say("olive", "Please continue with the history.");
  scene.knows(name);
  const refused = (await scene.session.recordsOf("agent.updated")).findLast(({ what }) => what === "session_refused");
  return JSON.stringify(refused.update.message);
}

/** The agent took its id, and refuses the prompt: the run fails and says so, the next agent has the history. */
async function refusePrompt(scene) {
  const { name, run } = await scene.prompt("orange", say, "Please continue.");
  await scene.session.when("the prompt is refused", TURN_MS, (now) => now.run_id === run && now.status === "idle");
  const [failed] = await scene.session.recordsOf("run.failed", run);
  assert.ok(failed, "The run has failed");
  await scene.look();
  // It never reached the model.
  scene.said.delete(name);
  await scene.session.resume();
  return scene.isReady();
}

/** A user's choice: the agent begins without a context, and both see that. */
export async function withoutContext(scene) {
  await scene.session.resume({ context: "none" });
  const status = await scene.isReady();
  assert.equal(status.context, "lost", status.context_sentence);
  assert.equal(status.context_reason, "user_request");
  assert.deepEqual(status.choices.map(({ choice }) => choice).filter((choice) => CHOICES.includes(choice)), CHOICES);
  const shown = await scene.look();
  assert.ok(shown.includes("--with-history"), `The choices have their commands: ${shown}`);
  const { name } = await scene.say("papaya", "Please begin again.");
  const text = scene.beginning(name).items.map((item) => item.text).join("\n");
  const known = [...scene.said.keys()].filter((other) => other !== name && text.includes(other));
  assert.deepEqual(known, [], "The model knows nothing of what was said before");
}
