import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const CLIENT = fileURLToPath(new URL("../client/src/index.ts", import.meta.url));
// The tests in e2e/ are programs of their own: they need a browser.
export default defineConfig({
  resolve: { alias: [{ find: /^piton-client$/, replacement: CLIENT }] },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  test: { include: ["test/**/*.test.{ts,tsx}"], environment: "jsdom" },
});
