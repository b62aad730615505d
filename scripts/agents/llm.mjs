// A model that follows a script: an HTTP server on loopback that speaks what agents speak with
// models, writes down all that reaches it, and answers by a directive in what the user said last.
// What reaches the model is the one proof that an agent remembers.
//
//   [[say NAME]]             answers at once
//   [[hold NAME]]            streams until it is released, so that a turn can be cut in its middle
//   [[shell NAME COMMAND]]   calls the agent's shell tool, and answers when it has its result

import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

import { generate } from "./wire-gemini.mjs";
import { chat, messages, responses } from "./wires.mjs";

const DIRECTIVE = /\[\[(say|hold|shell) ([\w-]+)(?: ([^\]]*))?\]\]/g;
/** Between two pieces of a text that is held. */
const PIECE_MS = 100;
/** A held answer ends by itself, whatever becomes of who was to release it. */
const HOLD_PIECES_MAX = 3_000;
const BODY_BYTES_MAX = 32 * 1024 * 1024;
/** How the agents call the tool that runs a command. */
const SHELLS = [
  "Bash",
  "bash",
  "exec_command",
  "shell_command",
  "shell",
  "run_shell_command",
  "run_commands",
  "execute_command",
];

/** The script's lines, as they stand in a prompt. */
export const say = (name) => `[[say ${name}]]`;
export const hold = (name) => `[[hold ${name}]]`;
export const shell = (name, command) => `[[shell ${name} ${command}]]`;

/** What it answers to those that are not held. */
export const answerTo = (name) => `Answer to ${name}.`;

/** Listens on a free port of loopback. */
export async function startModel() {
  const model = new Model();
  const server = createServer((request, response) => {
    model.serve(request, response).catch((error) => {
      model.complaints.push(`${request.method} ${request.url}: ${error.message}`);
      response.destroy();
    });
  });
  await new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", resolve);
  });
  model.address = `http://127.0.0.1:${server.address().port}`;
  model.stop = () => {
    for (const answer of model.answers.values()) answer.released = true;
    server.closeAllConnections();
    server.close();
  };
  return model;
}

class Model {
  address = "";
  /** All that asked for an answer: `{ at, items, tools, directive, isSide, begins, body }`. */
  requests = [];
  /** By the directive's name: what was sent so far, and whether the agent still reads. */
  answers = new Map();
  /** What it did not understand. */
  complaints = [];

  /** The requests that begin the turn of this directive. One that was prompted once has one. */
  beginnings(name) {
    return this.requests.filter((request) => request.begins && request.directive?.name === name);
  }

  /** Lets a held answer end. */
  release(name) {
    const answer = this.answers.get(name);
    if (answer) answer.released = true;
  }

  async serve(request, response) {
    const path = new URL(request.url, this.address).pathname;
    if (request.method === "HEAD") return response.writeHead(200).end();
    if (request.method === "GET" && path.endsWith("/models")) return sendJson(response, 200, MODELS);
    const body = await readJson(request);
    if (path.endsWith("/count_tokens")) return sendJson(response, 200, { input_tokens: 10 });
    if (path.endsWith(":countTokens")) return sendJson(response, 200, { totalTokens: 10 });
    const wire = wireOf(path);
    if (request.method === "POST" && wire) return this.answer(wire, body, response, path);
    this.complaints.push(`${request.method} ${path}: nothing is known about it`);
    return sendJson(response, 404, { error: { message: "The scripted model does not know this" } });
  }

  async answer(wire, body, response, path) {
    const { items, tools, isForm } = wire.read(body);
    const at = items.findLastIndex((item) => item.role === "user" && directiveIn(item.text));
    const directive = at < 0 ? null : directiveIn(items[at].text);
    const since = (role) => items.slice(at + 1).some((item) => item.role === role);
    const hasResult = since("result");
    // No turns: what an agent asks for itself, such as titles, with no tool or one, or in a form; and what it
    // asks when a turn has its answer, such as what the user might say next.
    const isSide = tools.length < 2 || isForm || (directive !== null && since("assistant"));
    const begins = !isSide && directive !== null && !hasResult;
    this.requests.push({ at: new Date().toISOString(), items, tools, directive, isSide, begins, body });
    const reply = wire.answer(response, body, path);
    if (isSide) reply.text(JSON.stringify({ title: "A title" }));
    else if (directive === null) reply.text("Nothing was asked.");
    else if (directive.verb === "hold") await this.holdOn(directive.name, reply, response);
    else if (directive.verb === "shell" && !hasResult) callShell(reply, tools, directive.command);
    else reply.text(answerTo(directive.name));
    if (!response.destroyed) reply.end();
  }

  async holdOn(name, reply, response) {
    const answer = { text: "", pieces: 0, released: false, cut: false };
    this.answers.set(name, answer);
    response.on("close", () => (answer.cut = !response.writableFinished));
    const send = (piece) => {
      answer.text += piece;
      reply.text(piece);
    };
    while (!answer.released && !response.destroyed && answer.pieces < HOLD_PIECES_MAX) {
      answer.pieces += 1;
      send(`${name}-${answer.pieces} `);
      await sleep(PIECE_MS);
    }
    if (!response.destroyed) send("and that is all.");
  }
}

const MODELS = { object: "list", data: [{ id: "scripted", object: "model" }], models: [] };

function wireOf(path) {
  if (path.endsWith("/chat/completions")) return chat;
  if (path.endsWith("/responses")) return responses;
  if (/:(stream)?generateContent$/i.test(path)) return generate;
  return path.endsWith("/messages") ? messages : null;
}

/** The last directive of a text. */
function directiveIn(text) {
  const found = [...text.matchAll(DIRECTIVE)].at(-1);
  return found ? { verb: found[1], name: found[2], command: found[3] } : null;
}

/** Calls whichever shell tool was offered, with what its schema asks for. */
function callShell(reply, tools, command) {
  const tool = SHELLS.map((name) => tools.find((offered) => offered.name === name)).find(Boolean);
  if (!tool) return reply.text(`No shell among the tools: ${tools.map(({ name }) => name).join(", ")}`);
  const wants = tool.schema?.properties ?? {};
  const why = "Writes a file, to see whether a permission is asked for";
  const key = ["cmd", "command", "commands"].find((name) => wants[name]) ?? "command";
  const input = { [key]: commandAs(wants[key], command, key === "commands") };
  if (wants.description) input.description = why;
  // Codex asks for no permission for what its sandbox permits.
  if (wants.sandbox_permissions) input.sandbox_permissions = "require_escalated";
  if (wants.with_escalated_permissions) input.with_escalated_permissions = true;
  // Start-up files of a login shell may take their time.
  if (wants.login) input.login = false;
  if (wants.justification) input.justification = why;
  for (const name of tool.schema?.required ?? []) input[name] ??= anyOf(wants[name]);
  return reply.call(tool.name, input);
}

/** A line, a list of lines, or a program with its arguments. */
function commandAs(schema, command, isList) {
  const kinds = [schema, ...(schema?.anyOf ?? [])].map((each) => each?.type);
  if (!kinds.includes("array")) return command;
  return isList ? [command] : ["bash", "-c", command];
}

/** Something of the kind that a schema wants, for what does not matter here. */
function anyOf(schema) {
  if (schema?.enum) return schema.enum[0];
  return { boolean: false, number: 10, integer: 10, array: [], object: {} }[schema?.type] ?? "any";
}

async function readJson(request) {
  const pieces = [];
  let length = 0;
  for await (const piece of request) {
    length += piece.length;
    if (length > BODY_BYTES_MAX) throw new Error("The request is too large");
    pieces.push(piece);
  }
  const text = Buffer.concat(pieces).toString("utf8");
  return text ? JSON.parse(text) : {};
}

function sendJson(response, status, value) {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(value));
}
