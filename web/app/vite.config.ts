import { fileURLToPath } from "node:url";
import preact from "@preact/preset-vite";
import { defineConfig } from "vite";

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

export default defineConfig({
  plugins: [preact({ prefreshEnabled: true, devToolsEnabled: false })],
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
