// All tests of browser runs, two files at a time, and how long they took: `make test` has 90 s for them.
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

const FILES = ["kills", "package", "firefox", "phases", "stores", "tabs"];
const here = fileURLToPath(new URL("./", import.meta.url));
const from = Date.now();
const child = spawn(process.execPath, ["--test", "--test-concurrency=2", ...FILES.map((name) => `${here}${name}.test.mjs`)], { stdio: "inherit" });
process.exitCode = await new Promise((resolve) => child.once("exit", (code) => resolve(code ?? 1)));
console.log(`# piton-client in browsers: ${((Date.now() - from) / 1000).toFixed(1)} s in all (goal: at most 90)`);
