/// <reference types="node" />
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

import { build } from "vite";
import { expect, test } from "vitest";

async function gzippedBytes(code: string): Promise<number> {
  const source = fileURLToPath(new URL("../../src/run/index.ts", import.meta.url));
  const result = await build({
    root: fileURLToPath(new URL("../..", import.meta.url)),
    configFile: false,
    logLevel: "silent",
    build: { write: false, minify: true, modulePreload: false, target: "es2022", rollupOptions: { input: "virtual:entry", preserveEntrySignatures: "strict" } },
    plugins: [{
      name: "entry",
      resolveId: (id) => (id === "virtual:entry" ? "\0entry" : null),
      load: (id) => (id === "\0entry" ? code.replace("piton-client/run", source) : null),
    }],
  });
  const outputs = (Array.isArray(result) ? result : [result]).flatMap((one) => ("output" in one ? one.output : []));
  const text = outputs.map((output) => (output.type === "chunk" ? output.code : "")).join("");
  return gzipSync(text, { level: 9 }).length;
}

test("all of piton-client/run has at most 12 KB, gzipped; a part of it has less", async () => {
  const whole = await gzippedBytes('export * from "piton-client/run";');
  const part = await gzippedBytes('export { interruptionSummary } from "piton-client/run";');
  console.log(`piton-client/run: ${whole} bytes gzipped; interruptionSummary alone: ${part}`);
  expect(whole).toBeGreaterThan(5_000);
  expect(whole).toBeLessThanOrEqual(12 * 1024);
  expect(part).toBeLessThan(2_500);
}, 60_000);
