#!/usr/bin/env node
// A scripted agent for tests and pictures, over the Agent Client Protocol. A prompt's first word chooses what it does;
// `update JSON` sends any update. It keeps nothing: a conversation that it is asked to load is one it knows by its id.
import { readFileSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { spawnSync } from "node:child_process";
import { join } from "node:path";

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const asked = new Map();
let lastId = 0;
let cwd = process.cwd();
// `--no-images`: its prompts are text.
/** `--auth`: it has two ways to log in, and begins no conversation before. */
const LOGINS = process.argv.includes("--auth") ? [{ id: "browser", name: "In a browser", description: "Opens the sign-in page" }, { id: "api-key", name: "With an API key" }] : [];
let isLoggedIn = LOGINS.length === 0;
let cancelled = () => {};
const ask = (method, params) =>
  new Promise((done) => {
    lastId += 1;
    asked.set(lastId, done);
    send({ id: lastId, method, params });
  });

const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const MODES = { currentModeId: "ask", availableModes: [{ id: "ask", name: "Ask", description: "Asks before it acts" }, { id: "write", name: "Write", description: "Edits without asking" }] };
const MODELS = { currentModelId: "large", availableModels: [{ modelId: "large", name: "Large 5" }, { modelId: "small", name: "Small 5" }] };

function turnOf(sessionId) {
  const update = (update) => send({ method: "session/update", params: { sessionId, update } });
  let call = 0;
  const say = async (text, kind = "agent_message_chunk", pause = 4) => {
    const messageId = `m${Date.now()}-${Math.random().toString(36).slice(2, 8)}`;
    for (const piece of text.match(/\S+\s*|\s+/g) ?? []) {
      update({ sessionUpdate: kind, messageId, content: { type: "text", text: piece } });
      if (pause) await wait(pause);
    }
  };
  const tool = async (kind, title, rawInput, { content = [], locations = [], status = "completed", rawOutput, pause = 20 } = {}) => {
    call += 1;
    const toolCallId = `call-${Date.now()}-${call}`;
    update({ sessionUpdate: "tool_call", toolCallId, title, kind, status: "pending", rawInput, locations });
    await wait(pause);
    if (status !== "pending") update({ sessionUpdate: "tool_call_update", toolCallId, status, content, ...(rawOutput ? { rawOutput } : {}) });
    return toolCallId;
  };
  const permit = async (kind, title, rawInput, content = []) => {
    call += 1;
    const toolCallId = `call-${Date.now()}-${call}`;
    update({ sessionUpdate: "tool_call", toolCallId, title, kind, status: "pending", rawInput, content });
    const answer = await ask("session/request_permission", {
      sessionId,
      toolCall: { toolCallId, title, kind, rawInput, content },
      options: [
        { optionId: "allow_once", name: "Allow once", kind: "allow_once" },
        { optionId: "allow_always", name: "Always allow", kind: "allow_always" },
        { optionId: "reject_once", name: "Reject", kind: "reject_once" },
      ],
    });
    const chosen = answer?.outcome?.optionId ?? "cancelled";
    const isAllowed = chosen.startsWith("allow");
    update({ sessionUpdate: "tool_call_update", toolCallId, status: isAllowed ? "completed" : "failed", content: [{ type: "content", content: { type: "text", text: isAllowed ? "Everything up-to-date" : "rejected" } }] });
    return isAllowed;
  };
  const plan = (...entries) => update({ sessionUpdate: "plan", entries: entries.map(([content, status]) => ({ content, status, priority: "medium" })) });
  return { update, say, tool, permit, plan };
}

async function story(turn) {
  const { say, tool, permit, plan, update } = turn;
  await say("The test passes in UTC and fails where local midnight is already tomorrow, so it looks like a date is taken twice, once in each zone.", "agent_thought_chunk", 0);
  plan(["Reproduce the failure", "in_progress"], ["Fix the comparison", "pending"], ["Run the tests", "pending"], ["Push the branch", "pending"]);
  await tool("read", "Read tests/clock.rs", { path: join(cwd, "tests/clock.rs") }, { locations: [{ path: join(cwd, "tests/clock.rs") }], content: [{ type: "content", content: { type: "text", text: "#[test]\nfn midnight() {\n    let today = Local::now().date_naive();\n    assert_eq!(clock::today(), today);\n}" } }] });
  await say("The test compares a **local** date with a UTC one:\n\n```rust\nlet today = Local::now().date_naive();\nassert_eq!(clock::today(), today); // UTC\n```\n\nWest of Greenwich that holds all day; east of it, it fails between local midnight and UTC midnight. I will make both sides UTC.", "agent_message_chunk", 2);
  plan(["Reproduce the failure", "completed"], ["Fix the comparison", "in_progress"], ["Run the tests", "pending"], ["Push the branch", "pending"]);
  const before = "use chrono::Local;\n\n#[test]\nfn midnight() {\n    let today = Local::now().date_naive();\n    assert_eq!(clock::today(), today);\n}\n";
  const after = before.replace("use chrono::Local;", "use chrono::Utc;").replace("Local::now()", "Utc::now()");
  try {
    writeFileSync(join(cwd, "tests/clock.rs"), after);
  } catch {
    // The folder has no such test: the story is told all the same.
  }
  await tool("edit", "Edit tests/clock.rs", { path: join(cwd, "tests/clock.rs") }, { content: [{ type: "diff", path: join(cwd, "tests/clock.rs"), oldText: before, newText: after }], locations: [{ path: join(cwd, "tests/clock.rs") }] });
  await tool("execute", "cargo test clock", { command: "cargo test clock" }, { pause: 150, rawOutput: { exit_code: 0 }, content: [{ type: "content", content: { type: "text", text: "running 3 tests\ntest clock::leap_day ... ok\ntest clock::midnight ... ok\ntest clock::year_end ... ok\n\ntest result: ok. 3 passed; 0 failed" } }] });
  plan(["Reproduce the failure", "completed"], ["Fix the comparison", "completed"], ["Run the tests", "completed"], ["Push the branch", "in_progress"]);
  update({ sessionUpdate: "usage_update", used: 24_310, size: 200_000, cost: { amount: 0.12, currency: "USD" } });
  await say("All three clock tests pass now. Shall I push the branch?", "agent_message_chunk", 2);
  const isAllowed = await permit("execute", "git push origin fix-clock", { command: "git push origin fix-clock" });
  plan(["Reproduce the failure", "completed"], ["Fix the comparison", "completed"], ["Run the tests", "completed"], ["Push the branch", isAllowed ? "completed" : "pending"]);
  await say(isAllowed ? "Pushed. The nightly run should be green from now on." : "I left the branch unpushed.", "agent_message_chunk", 2);
}

async function turn(sessionId, prompt) {
  const own = turnOf(sessionId);
  for (const line of prompt.split("\n")) {
    const [word, rest] = [line.split(" ", 1)[0], line.slice(line.indexOf(" ") + 1)];
    if (word === "story" || word === "tests/clock.rs") await story(own);
    else if (word === "words") for (let n = 1; n <= Number(rest.split(" ")[0]); n += 1) { await own.say(`word${n} `, "agent_message_chunk", 0); await wait(Number(rest.split(" ")[1] ?? 20)); }
    else if (word === "stream") { const [count, ms] = rest.split(" ").map(Number); await own.say(Array.from({ length: count }, (_, n) => `word${n + 1} `).join(""), "agent_message_chunk", ms); }
    else if (word === "push") { const ok = await own.permit("execute", rest, { command: rest }); await own.say(ok ? "allowed" : "rejected"); }
    else if (word === "file") { const [path, ...text] = rest.split(" "); const body = text.join(" ").replaceAll("\\n", "\n"); const whole = join(cwd, path); let old = null; try { old = readFileSync(whole, "utf8"); } catch { old = null; } writeFileSync(whole, body); await own.tool("edit", `Edit ${path}`, { path: whole }, { content: [{ type: "diff", path: whole, oldText: old, newText: body }], locations: [{ path: whole }] }); }
    else if (word === "edit-ask") { const [path, ...text] = rest.split(" "); const ok = await own.permit("edit", `Edit ${path}`, { path }, [{ type: "diff", path, oldText: "old line\n", newText: text.join(" ").replaceAll("\\n", "\n") }]); await own.say(ok ? "allowed" : "rejected"); }
    else if (word === "sh") { const out = spawnSync("sh", ["-c", rest], { cwd, encoding: "utf8" }); await own.tool("execute", rest, { command: rest }, { content: [{ type: "content", content: { type: "text", text: out.stdout + out.stderr } }], rawOutput: { exit_code: out.status } }); }
    else if (word === "tool-open") { await own.tool("execute", rest, { command: rest }, { status: "pending" }); await wait(60_000); }
    else if (word === "update") own.update(JSON.parse(rest));
    else if (word === "markdown") await own.say(JSON.parse(rest), "agent_message_chunk", 0);
    else if (word === "wait") await wait(Number(rest));
    else await own.say(line);
  }
}

async function handle({ id, method, params, result, error }) {
  if (method === undefined) {
    asked.get(id)?.(error ? null : result);
    asked.delete(id);
  } else if (method === "initialize") {
    send({ id, result: { protocolVersion: 1, agentInfo: { name: "demo", version: "1.0.0" }, agentCapabilities: { loadSession: true, promptCapabilities: { image: !process.argv.includes("--no-images"), embeddedContext: true } }, authMethods: LOGINS } });
  } else if (method === "authenticate") {
    isLoggedIn = LOGINS.some((login) => login.id === params.methodId);
    send({ id, ...(isLoggedIn ? { result: {} } : { error: { code: -32602, message: `Unknown method ${params.methodId}` } }) });
  } else if (method.startsWith("session/") && !isLoggedIn) {
    send({ id, error: { code: -32000, message: "Authentication required" } });
  } else if (method === "session/new" || method === "session/load") {
    cwd = params.cwd;
    send({ id, result: { ...(method === "session/new" ? { sessionId: `demo-${Date.now()}-${process.pid}` } : {}), modes: MODES, models: MODELS } });
    send({ method: "session/update", params: { sessionId: params.sessionId ?? "", update: { sessionUpdate: "available_commands_update", availableCommands: [] } } });
  } else if (method === "session/prompt") {
    const text = params.prompt.map((block) => (block.type === "text" ? block.text : `[${block.type}]`)).join("\n");
    const stopped = new Promise((done) => {
      cancelled = () => done("cancelled");
    });
    const commands = [{ name: "review", description: "Review the changes", input: { hint: "what to look at" } }, { name: "compact", description: "Shorten the conversation" }];
    send({ method: "session/update", params: { sessionId: params.sessionId, update: { sessionUpdate: "available_commands_update", availableCommands: commands } } });
    const said = text.split("\n").filter((line) => !line.startsWith("[SESSION_RESUMED]")).join("\n");
    const done = turn(params.sessionId, said).then(() => "end_turn");
    send({ id, result: { stopReason: await Promise.race([done, stopped]) } });
  } else if (method === "session/cancel") {
    cancelled();
  } else if (method === "session/set_mode" || method === "session/set_model") {
    send({ id, result: {} });
  } else if (id !== undefined) {
    send({ id, error: { code: -32601, message: `Method not found: ${method}` } });
  }
}

const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  if (line.trim()) void handle(JSON.parse(line));
});
lines.on("close", () => process.exit(0));
