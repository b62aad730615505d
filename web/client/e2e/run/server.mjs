// What a page of the tests talks to: its files, a sandbox that is a git repository, and a scripted model
// behind an endpoint that speaks chat completions. One server per test program.
import { execFile } from "node:child_process";
import { appendFile, mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const DIST = fileURLToPath(new URL("../../dist/", import.meta.url));
const HERE = fileURLToPath(new URL("./", import.meta.url));
const TYPES = { ".js": "text/javascript", ".html": "text/html", ".json": "application/json", ".css": "text/css" };
// An answer that is held back does not hold up the end of the tests.
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms).unref());

/** The words of the scripted answer; each is its own number, so that a part says where it ends. */
export const WORDS = 150;
export const words = (from, to) => Array.from({ length: to - from }, (_, n) => `w${from + n} `).join("");

/** Of the script `large`: pieces of 49,000 characters, each its own number 7,000 times. */
export const LARGE_PIECES = 105;

export class TestServer {
  /** By chat: requests of the model, the word that was sent last, what the page said it had. */
  chats = new Map();
  /** Set to make the provider fail, or the model's words come slower or stop. */
  wordMs = 20;
  stopAtWord = Infinity;
  isProviderDown = false;
  isSandboxGone = false;
  isTruthDown = false;
  /** The first round of `read, then stream` does not end while this is set. */
  isHeld = false;
  /** How long a tool's answer is held back after its effect. */
  holdMs = 0;

  static async start(extraRoot = null) {
    const server = new TestServer();
    server.extraRoot = extraRoot;
    server.folder = await mkdtemp(join(tmpdir(), "piton-run-"));
    server.http = createServer((request, response) => {
      server.answer(request, response).catch((error) => {
        if (!response.headersSent) response.writeHead(500);
        response.end(String(error));
      });
    });
    await new Promise((resolve) => server.http.listen(0, "127.0.0.1", resolve));
    server.address = `http://127.0.0.1:${server.http.address().port}`;
    return server;
  }

  async stop() {
    this.http.closeAllConnections();
    await new Promise((resolve) => this.http.close(resolve));
    await rm(this.folder, { recursive: true, force: true });
  }

  chat(id) {
    if (!this.chats.has(id)) this.chats.set(id, { requests: [], sent: [], seen: [], reports: [] });
    return this.chats.get(id);
  }

  box(chat) {
    return join(this.folder, chat);
  }

  /** A repository with one commit. */
  async makeBox(chat) {
    const box = this.box(chat);
    await mkdir(box, { recursive: true });
    const git = (...words) => run("git", ["-c", "user.name=t", "-c", "user.email=t@localhost", ...words], { cwd: box });
    await git("init", "-q", "-b", "main");
    await appendFile(join(box, "work.txt"), "");
    await git("add", ".");
    await git("commit", "-qm", "begin");
    return box;
  }

  async effects(chat) {
    const text = await readFile(join(this.box(chat), "work.txt"), "utf8");
    return text.split("\n").filter(Boolean);
  }

  async answer(request, response) {
    const url = new URL(request.url, this.address);
    if (request.method === "GET") return this.file(url.pathname, response);
    let body = "";
    for await (const piece of request) body += piece;
    const input = body ? JSON.parse(body) : {};
    input.chat ??= "chat";
    const chat = this.chat(url.searchParams.get("chat") ?? input.chat);
    const json = (value) => response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(value));
    switch (url.pathname) {
      case "/alive":
        return json(!this.isSandboxGone);
      case "/create":
        this.isSandboxGone = false;
        return json(null);
      case "/exec": {
        if (this.isTruthDown) return response.writeHead(502).end();
        const { stdout } = await run("sh", ["-c", input.command], { cwd: this.box(input.chat) });
        return json({ stdout, exitCode: 0 });
      }
      case "/append":
        await appendFile(join(this.box(input.chat), "work.txt"), `${input.line}\n`);
        if (this.holdMs > 0) await pause(this.holdMs);
        return json("written");
      case "/seen":
        chat.seen.push([Date.now(), input.word]);
        return json(null);
      case "/report":
        chat.reports.push(input.event);
        return json(null);
      case "/v1/chat/completions":
        return this.model(url.searchParams.get("chat") ?? request.headers["x-chat"] ?? "chat", input, response);
      default:
        return response.writeHead(404).end();
    }
  }

  async file(path, response) {
    const roots = path.startsWith("/dist/") ? [DIST, path.slice(6)] : path.startsWith("/extra/") && this.extraRoot ? [this.extraRoot, path.slice(7)] : [HERE, path.slice(1)];
    try {
      const bytes = await readFile(join(roots[0], normalize(roots[1])));
      response.writeHead(200, { "Content-Type": TYPES[extname(path)] ?? "text/plain", "Cache-Control": "no-store" }).end(bytes);
    } catch {
      response.writeHead(404).end();
    }
  }

  async model(chatId, { messages, model }, response) {
    const chat = this.chat(chatId);
    chat.requests.push({ messages, model });
    if (this.isProviderDown) return response.writeHead(503).end("the provider is down");
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    const send = (delta, finish = null) => response.write(`data: ${JSON.stringify({ choices: [{ delta, finish_reason: finish }] })}\n\n`);
    const end = (finish) => {
      send({}, finish);
      response.end("data: [DONE]\n\n");
    };
    const call = (name, input) => {
      send({ tool_calls: [{ index: 0, id: `call_${messages.length}`, function: { name, arguments: JSON.stringify(input) } }] });
      end("tool_calls");
    };
    const say = (text) => {
      send({ content: text });
      end("stop");
    };
    const script = messages.find((message) => message.role === "user").content;
    const last = messages.at(-1);
    const summary = last.role === "user" && last.content.startsWith("[SESSION_RESUMED]") ? last.content : null;

    if (script === "read, then stream" && messages.length === 1) {
      send({ content: "I read first. " });
      while (this.isHeld && !response.destroyed) await pause(10);
      return call("read", { path: "notes.txt" });
    }
    if (script === "stream" || script === "read, then stream") {
      const partial = summary ? /w(\d+) *\n(?!>)/.exec(summary.replace(/(\n> [^\n]*?)\s*\n/, "$1\n")) : null;
      const from = summary ? (partial ? Number(partial[1]) + 1 : 0) : 0;
      chat.sent = [];
      for (let word = from; word < WORDS && !response.destroyed; word++) {
        if (word >= this.stopAtWord) await new Promise((resolve) => response.on("close", resolve));
        if (response.destroyed) return;
        send({ content: `w${word} ` });
        chat.sent.push([Date.now(), word]);
        await pause(this.wordMs);
      }
      return end("stop");
    }
    if (script === "large") {
      // 5 MB, faster than any model.
      const piece = (n) => `${String(n).padStart(6)} `.repeat(7_000);
      const from = summary ? Number(/(\d{1,6}) *\n(?!>)/.exec(summary.slice(-4_000))?.[1] ?? -1) + 1 : 0;
      for (let n = from; n < LARGE_PIECES && !response.destroyed; n++) {
        if (n >= this.stopAtWord) await new Promise((resolve) => response.on("close", resolve));
        if (response.destroyed) return;
        send({ content: piece(n) });
        await pause(20);
      }
      return end("stop");
    }
    if (script === "tools") {
      const isThere = summary?.includes("M work.txt");
      if (isThere || (last.role === "tool" && last.content.includes("written"))) return say("The line is there.");
      return call("append", { line: "one" });
    }
    if (script === "delegate") {
      if (last.role === "tool" && last.content.includes("coded")) return say("The coder has finished.");
      // What the coder reported as open is delegated again, and nothing else.
      const tasks = /Open tasks:\n((?:> - \w+\n)*)/.exec(summary ?? "")?.[1] ?? "";
      const open = summary ? [...tasks.matchAll(/> - (\w+)/g)].map((found) => found[1]) : ["one", "two"];
      return call("code", { lines: open });
    }
    if (script === "rounds") {
      const round = messages.filter((message) => message.role === "assistant").length + 1;
      if (round >= 30) return say("All thirty rounds.");
      send({ content: "I look at the next file and say what I find there. ".repeat(30) });
      return call("read", { path: `src/file${round}.ts` });
    }
    return say("There is no such script.");
  }
}
