// A real `piton serve` on a temporary data folder, with agents of its own.
import { execFile, spawn } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const here = dirname(fileURLToPath(import.meta.url));
const START_TIMEOUT_MS = 30_000;

/** `PITON` names the binary; else the debug build of this tree. */
export function binary() {
  const path = process.env["PITON"] ?? resolve(here, "../../../../target/debug/piton");
  if (!existsSync(path)) throw new Error(`There is no piton at ${path}: build it, or set PITON`);
  return path;
}

export class Server {
  #child = null;
  #port = 0;

  /** `listen`: an address instead of this machine's own; `env`: more settings. */
  constructor({ listen = "127.0.0.1", args = [], env = {} } = {}) {
    Object.assign(this, { listen, args, moreEnv: env });
    this.folder = mkdtempSync(join(tmpdir(), "piton-e2e-"));
    this.data = join(this.folder, "data");
    this.config = join(this.folder, "config.toml");
    for (const name of ["home", "work"]) mkdirSync(join(this.folder, name));
    const agent = join(here, "demo-agent.mjs");
    chmodSync(agent, 0o755);
    const table = (name, title, ...command) => `[agents.${name}]\nname = "${title}"\ncommand = ${JSON.stringify(command)}\n`;
    const echo = (name, title, ...args) => table(name, title, binary(), "agent", "echo", ...args);
    writeFileSync(
      this.config,
      [
        table("demo", "Demo", process.execPath, agent),
        table("second", "Second", process.execPath, agent),
        `${echo("forgetful", "Forgetful", "--refuse-session")}history = false\n`,
        echo("login", "Login", "--auth", "browser"),
        table("blind", "Blind", process.execPath, agent, "--no-images"),
        table("logins", "Logins", process.execPath, agent, "--auth"),
        table("missing", "Missing", "/nowhere/agent"),
        `[executor]\nunreachable_after = "2s"\n`,
      ].join("\n"),
    );
  }

  get env() {
    return { PATH: process.env["PATH"], HOME: join(this.folder, "home"), PITON_DATA: this.data, PITON_CONFIG: this.config, PITON_KEY_SOURCE: "file", LANG: "C.UTF-8", ...this.moreEnv };
  }

  get address() {
    return `http://${this.listen}:${this.#port}`;
  }

  /** Starts it, on the same port as before if there was one. */
  async start() {
    const log = [];
    const child = spawn(binary(), ["serve", "--listen", `${this.listen}:${this.#port}`, ...this.args], { env: this.env, stdio: ["ignore", "pipe", "pipe"] });
    this.#child = child;
    this.log = log;
    await new Promise((done, fail) => {
      const timer = setTimeout(() => fail(new Error(`The server did not start:\n${log.join("")}`)), START_TIMEOUT_MS);
      const seen = (chunk) => {
        log.push(String(chunk));
        const port = /listens on http:\/\/[\d.]+:(\d+)/.exec(log.join(""))?.[1];
        if (!port) return;
        this.#port = Number(port);
        clearTimeout(timer);
        done();
      };
      child.stdout.on("data", seen);
      child.stderr.on("data", seen);
      child.on("exit", (code) => {
        clearTimeout(timer);
        fail(new Error(`The server ended with ${code}:\n${log.join("")}`));
      });
    });
    this.token ??= JSON.parse(await this.cli("tokens", "new", "e2e", "--scope", "read", "--scope", "control", "--scope", "admin", "--json")).token;
  }

  async #end(signal) {
    const child = this.#child;
    if (!child || child.exitCode !== null) return;
    const ended = new Promise((done) => child.once("exit", done));
    child.kill(signal);
    await ended;
    this.#child = null;
  }

  /** As a crash: nothing is closed or flushed. */
  kill() {
    return this.#end("SIGKILL");
  }

  stop() {
    return this.#end("SIGTERM");
  }

  async cli(...args) {
    const { stdout } = await run(binary(), args, { env: this.env });
    return stdout;
  }

  /** A command in a terminal of its own. */
  terminal(...args) {
    const child = spawn("script", ["-qefc", [binary(), ...args].map((word) => `'${word}'`).join(" "), "/dev/null"], { env: { ...this.env, TERM: "xterm-256color", COLUMNS: "100", LINES: "40" }, stdio: ["pipe", "pipe", "ignore"] });
    let shown = "";
    child.stdout.on("data", (chunk) => {
      shown += chunk;
    });
    return {
      type: (text) => child.stdin.write(text),
      until: async (wanted) => {
        const end = Date.now() + 20_000;
        while (!wanted.test(shown)) {
          if (Date.now() > end) throw new Error(`The terminal never showed ${wanted}:\n${shown.slice(-2_000)}`);
          await new Promise((done) => setTimeout(done, 50));
        }
      },
      end: () => child.kill("SIGKILL"),
    };
  }

  async call(method, path, body) {
    const response = await fetch(`${this.address}/api/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${this.token}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  workdir(name) {
    const path = join(this.folder, "work", name);
    mkdirSync(path, { recursive: true });
    return path;
  }

  /** A git repository with one commit. */
  async repository(name, files = { "README.md": "# Example\n" }) {
    const path = this.workdir(name);
    for (const [file, text] of Object.entries(files)) {
      mkdirSync(dirname(join(path, file)), { recursive: true });
      writeFileSync(join(path, file), text);
    }
    const git = (...args) => run("git", ["-c", "user.name=Test", "-c", "user.email=test@example.org", ...args], { cwd: path });
    await git("init", "-q", "-b", "main");
    await git("config", "user.name", "Test");
    await git("config", "user.email", "test@example.org");
    await git("add", "-A");
    await git("commit", "-q", "-m", "Begin");
    return path;
  }

  async session(options = {}) {
    const body = { agent_profile_id: "echo", working_dir: options.repo ? undefined : this.workdir("default"), ...options };
    return (await this.call("POST", "/sessions", body)).session_id;
  }

  prompt(session, content) {
    return this.call("POST", `/sessions/${session}/messages`, { content, if_busy: "queue" });
  }

  async status(session) {
    return await this.call("GET", `/sessions/${session}`);
  }

  /** Polls until the status is as wanted; fails with what it was. */
  async until(session, wanted, timeoutMs = 15_000) {
    const end = Date.now() + timeoutMs;
    for (;;) {
      const status = await this.status(session);
      if (wanted(status)) return status;
      if (Date.now() > end) throw new Error(`The status stayed ${JSON.stringify(status)}`);
      await new Promise((done) => setTimeout(done, 50));
    }
  }

  /** All records of a session. */
  async records(session) {
    const all = [];
    for (;;) {
      const page = await this.call("GET", `/sessions/${session}/records?after=${all.at(-1)?.seq ?? 0}&limit=1000`);
      all.push(...page.records);
      if (page.next == null) return all;
    }
  }

  /** Processes of an execution, by the marker that each of them carries. */
  pidsOf(execution) {
    return processes().filter((pid) => readEnviron(pid).includes(execution) || this.commandOf(pid).includes(execution));
  }

  /** The process beside an execution's agent: the agent's parent. */
  agentctlOf(execution) {
    const parents = this.pidsOf(execution).map((pid) => Number(/^PPid:\s*(\d+)/m.exec(readStatus(pid))?.[1]));
    return [...new Set(parents)].filter((pid) => this.commandOf(pid).includes("agentctl"));
  }

  /** Ends a process; one that ended meanwhile, e.g. with its parent, is as good. */
  killProcess(pid) {
    try {
      process.kill(pid, "SIGKILL");
    } catch (error) {
      if (error.code !== "ESRCH") throw error;
    }
  }

  commandOf(pid) {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
    } catch {
      return "";
    }
  }

  async remove() {
    // Agents outlive the server: they are ended first.
    const sessions = await this.call("GET", "/sessions?limit=200").catch(() => ({ sessions: [] }));
    await Promise.all(sessions.sessions.map(({ session_id }) => this.call("POST", `/sessions/${session_id}/stop`).catch(() => {})));
    await this.stop();
    for (const pid of processes().filter((pid) => readEnviron(pid).includes(this.folder))) {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // It has ended by itself.
      }
    }
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

function processes() {
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map(Number).filter((pid) => pid !== process.pid);
}

function readStatus(pid) {
  try {
    return readFileSync(`/proc/${pid}/status`, "utf8");
  } catch {
    return "";
  }
}

function readEnviron(pid) {
  try {
    return readFileSync(`/proc/${pid}/environ`, "utf8");
  } catch {
    return "";
  }
}
