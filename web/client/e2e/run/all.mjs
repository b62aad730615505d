// All tests of browser runs, two files at a time, and how long they took. A file that failed runs once more, since browsers
// and time-outs are at work, and it is said which tests failed; the kills do not: a loss there is what they look for.
import { basename } from "node:path";
import { run } from "node:test";
import { spec } from "node:test/reporters";
import { fileURLToPath } from "node:url";

const FILES = ["kills", "package", "firefox", "webkit", "phases", "stores", "tabs"];
const ONCE = ["kills"];
/** Of `make test`. */
const BUDGET_S = 90;
/** For one file: a browser or a server that a failed test left behind would keep it open for ever. */
const FILE_TIMEOUT_MS = 300_000;
const here = fileURLToPath(new URL("./", import.meta.url));
const nameOf = (file) => basename(file, ".test.mjs");

/** The names of the files that failed, each with its tests. */
async function runFiles(names) {
  const failed = new Map();
  const results = run({ files: names.map((name) => `${here}${name}.test.mjs`), concurrency: 2, timeout: FILE_TIMEOUT_MS });
  results.on("test:fail", ({ name, file }) => {
    const of = nameOf(file ?? name);
    failed.set(of, [...(failed.get(of) ?? []), name]);
  });
  const shown = results.compose(new spec());
  shown.pipe(process.stdout);
  await new Promise((resolve) => shown.once("end", resolve));
  return failed;
}

const from = Date.now();
const seconds = () => (Date.now() - from) / 1000;
let failed = await runFiles(FILES);
const firstS = seconds();
for (const [name, tests] of failed) console.log(`# FAILED in ${name}: ${tests.join("; ")}`);
const isFinal = [...failed.keys()].some((name) => ONCE.includes(name) || !FILES.includes(name));
if (failed.size > 0 && !isFinal) {
  console.log(`# AGAIN: ${[...failed.keys()].join(", ")}`);
  failed = await runFiles([...failed.keys()]);
}
process.exitCode = failed.size === 0 ? 0 : 1;
const over = firstS > BUDGET_S ? `, OVER by ${(firstS - BUDGET_S).toFixed(1)} s` : "";
const again = seconds() - firstS > 1 ? `, and ${(seconds() - firstS).toFixed(1)} s again` : "";
console.log(`# piton-client in browsers: ${firstS.toFixed(1)} s of a budget of ${BUDGET_S} s${over}${again}`);
