// WebKitGTK's MiniBrowser through its WebDriver, on a virtual screen. Its storage lives as long as the session.
import { spawn } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { createServer } from "node:net";

/** Null: they are not installed. */
export function webkitPaths() {
  const driver = ["/usr/bin/WebKitWebDriver", "/usr/local/bin/WebKitWebDriver"].find((path) => existsSync(path));
  const screen = ["/usr/bin/xvfb-run"].find((path) => existsSync(path));
  const folders = ["/usr/lib", "/usr/libexec"].filter((path) => existsSync(path)).flatMap((path) => [path, ...readdirSync(path).map((name) => `${path}/${name}`)]);
  const browser = folders.flatMap((path) => ["4.1", "4.0"].map((version) => `${path}/webkit2gtk-${version}/MiniBrowser`)).find((path) => existsSync(path));
  return driver && screen && browser ? { driver, screen, browser } : null;
}

export class WebKit {
  static async start() {
    const { driver, screen, browser } = webkitPaths();
    const webkit = new WebKit();
    const port = await freePort();
    webkit.address = `http://127.0.0.1:${port}`;
    // A group of its own: the screen, the driver and the browser end together.
    webkit.child = spawn(screen, ["-a", driver, `--port=${port}`], { stdio: "ignore", detached: true });
    const capabilities = { alwaysMatch: { "webkitgtk:browserOptions": { binary: browser, args: ["--automation"] } } };
    for (const end = Date.now() + 30_000; ; await new Promise((resolve) => setTimeout(resolve, 100))) {
      try {
        ({ sessionId: webkit.session } = await webkit.send("POST", "/session", { capabilities }));
        break;
      } catch (error) {
        if (Date.now() > end || error.name !== "TypeError") throw error;
      }
    }
    return webkit;
  }

  async stop() {
    if (this.session) await this.send("DELETE", `/session/${this.session}`).catch(() => undefined);
    try {
      process.kill(-this.child.pid, "SIGKILL");
    } catch (error) {
      if (error.code !== "ESRCH") throw error;
    }
  }

  async send(method, path, body) {
    const response = await fetch(this.address + path, { method, ...(method === "POST" ? { body: JSON.stringify(body ?? {}) } : {}) });
    const { value } = await response.json();
    if (!response.ok) throw new Error(`${value.error}: ${value.message}`);
    return value;
  }

  async open(url) {
    // A new tab needs one that is there: the first stays.
    this.first ??= await this.send("GET", `/session/${this.session}/window`);
    await this.send("POST", `/session/${this.session}/window`, { handle: this.first });
    const { handle } = await this.send("POST", `/session/${this.session}/window/new`, { type: "tab" });
    const page = new WebKitPage(this, handle);
    await page.goto(url);
    return page;
  }
}

class WebKitPage {
  constructor(webkit, handle) {
    Object.assign(this, { webkit, handle });
  }

  async send(method, path, body) {
    const session = `/session/${this.webkit.session}`;
    await this.webkit.send("POST", `${session}/window`, { handle: this.handle });
    return await this.webkit.send(method, session + path, body);
  }

  /** Also until the page's modules have run: the driver answers before that. */
  async goto(url) {
    await this.send("POST", "/url", { url });
    await this.waitFor((wanted) => location.href === wanted && document.readyState === "complete", url);
  }

  /** Runs a function in the page, and waits for its promise. */
  async evaluate(run, ...args) {
    const script = `const done = arguments[arguments.length - 1];
      Promise.resolve((${run})(...[...arguments].slice(0, -1))).then((value) => done({ value }), (error) => done({ error: String(error) }));`;
    const { value, error } = await this.send("POST", "/execute/async", { script, args });
    if (error) throw new Error(error);
    return value;
  }

  async waitFor(isSo, ...args) {
    for (const end = Date.now() + 20_000; !(await this.evaluate(isSo, ...args)); await new Promise((resolve) => setTimeout(resolve, 50))) {
      if (Date.now() > end) throw new Error(`it did not happen within 20 s: ${isSo}`);
    }
  }

  async press(label) {
    await this.waitFor((wanted) => {
      const root = document.querySelector("piton-resume-banner")?.shadowRoot;
      const button = [...(root?.querySelectorAll("button") ?? [])].find((found) => found.textContent === wanted);
      button?.click();
      return button !== undefined;
    }, label);
  }

  close() {
    return this.send("DELETE", "/window");
  }
}

function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}
