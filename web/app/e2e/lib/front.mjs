// Between the browser and the server: can cut every connection and bring them back, as a network does. If the server
// has no app in it, it serves the built one, with the server's own headers.
import { createReadStream, existsSync, statSync } from "node:fs";
import { createServer, request } from "node:http";
import { connect } from "node:net";
import { dirname, extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

const DIST = join(dirname(fileURLToPath(import.meta.url)), "../../dist");
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".png": "image/png", ".webmanifest": "application/manifest+json" };
export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

export class Front {
  #sockets = new Set();
  #isCut = false;

  constructor(target, { serveApp = false } = {}) {
    this.target = new URL(target);
    this.http = createServer((incoming, outgoing) => {
      if (serveApp && this.#file(incoming, outgoing)) return;
      const headers = { ...incoming.headers, host: this.target.host };
      if (headers.origin) headers.origin = this.target.origin;
      const forwarded = request({ host: this.target.hostname, port: this.target.port, method: incoming.method, path: incoming.url, headers }, (answer) => {
        outgoing.writeHead(answer.statusCode, answer.headers);
        answer.pipe(outgoing);
        answer.on("error", () => outgoing.destroy());
      });
      forwarded.on("error", () => outgoing.destroy());
      outgoing.on("close", () => forwarded.destroy());
      incoming.pipe(forwarded);
    });
    this.http.on("connection", (socket) => {
      if (this.#isCut) {
        socket.destroy();
        return;
      }
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
    });
    this.http.on("upgrade", (incoming, socket, head) => {
      const to = connect(Number(this.target.port), this.target.hostname, () => {
        const headers = { ...incoming.headers, host: this.target.host, ...(incoming.headers.origin ? { origin: this.target.origin } : {}) };
        const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
        to.write(`${incoming.method} ${incoming.url} HTTP/1.1\r\n${lines.join("\r\n")}\r\n\r\n`);
        to.write(head);
        socket.pipe(to).pipe(socket);
      });
      for (const end of [to, socket]) end.on("error", () => { to.destroy(); socket.destroy(); });
      socket.on("close", () => to.destroy());
    });
  }

  /** The built app's file for a path, if there is one. */
  #file(incoming, outgoing) {
    const path = normalize(new URL(incoming.url, "http://x").pathname);
    // As the server: an address of the app has no ending.
    const isAddress = extname(path) === "" && !/^\/(api|health|ready|metrics)(\/|$)/.test(path);
    const file = join(DIST, isAddress ? "index.html" : path);
    if (!file.startsWith(DIST) || !existsSync(file) || !statSync(file).isFile()) return false;
    outgoing.writeHead(200, { "content-type": TYPES[extname(file)] ?? "application/octet-stream", "content-security-policy": POLICY, "x-content-type-options": "nosniff", "cache-control": "no-cache" });
    createReadStream(file).pipe(outgoing);
    return true;
  }

  async listen(host = "127.0.0.1") {
    await new Promise((done) => this.http.listen(0, host, done));
    this.address = `http://${host}:${this.http.address().port}`;
    return this.address;
  }

  cut() {
    this.#isCut = true;
    for (const socket of this.#sockets) socket.destroy();
  }

  restore() {
    this.#isCut = false;
  }

  async close() {
    this.cut();
    await new Promise((done) => this.http.close(done));
  }
}
