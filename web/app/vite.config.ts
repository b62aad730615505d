import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import preact from "@preact/preset-vite";
import { defineConfig, type Plugin } from "vite";

const CLIENT = fileURLToPath(new URL("../client/src/", import.meta.url));
/** A running `piton serve`, for `npm run dev`. */
const SERVER = process.env["PITON_ADDRESS"] ?? "http://127.0.0.1:7411";
const proxy = {
  target: SERVER,
  changeOrigin: true,
  ws: true,
  // The server accepts pages of its own origin only.
  headers: { origin: SERVER },
};

/** The service worker's cache is named after the build, so that an upgrade removes what it replaces. */
const nameWorker: Plugin = {
  name: "name-worker",
  apply: "build",
  closeBundle() {
    const dist = new URL("./dist/", import.meta.url);
    const build = createHash("sha256").update(readFileSync(new URL("index.html", dist))).digest("hex").slice(0, 12);
    const worker = new URL("sw.js", dist);
    writeFileSync(worker, readFileSync(worker, "utf8").replace("piton-shell-BUILD", `piton-shell-${build}`));
  },
};

export default defineConfig({
  plugins: [preact({ prefreshEnabled: true, devToolsEnabled: false }), nameWorker],
  resolve: {
    alias: [
      { find: /^piton-client$/, replacement: `${CLIENT}index.ts` },
      { find: /^piton-client\/run$/, replacement: `${CLIENT}run/index.ts` },
      { find: /^piton-client\/run\/(.+)$/, replacement: `${CLIENT}run/$1.ts` },
    ],
  },
  build: {
    target: "es2023",
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    modulePreload: { polyfill: false },
    // Everything is a file of its own: the Content-Security-Policy allows nothing inline.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 600,
  },
  server: { proxy: { "/api": proxy, "/metrics": proxy, "/health": proxy, "/ready": proxy } },
});
