// Fails the build if the first load is over its budget: the page, its styles, and the code that it loads at once.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const BUDGET_BYTES = 100_000;
const dist = new URL("../dist/", import.meta.url).pathname;
const page = readFileSync(join(dist, "index.html"), "utf8");
const first = [...page.matchAll(/(?:src|href)="\/(assets\/[^"]+)"/g)].map(([, path]) => path);
const files = new Set(first);
// What the first files import at once is loaded with them.
for (const path of files) {
  if (!path.endsWith(".js")) continue;
  const code = readFileSync(join(dist, path), "utf8");
  for (const [, name] of code.matchAll(/(?:from|import)\s*"\.\/([^"]+\.js)"/g)) files.add(`assets/${name}`);
}
const size = (path) => gzipSync(readFileSync(join(dist, path)), { level: 9 }).length;
const total = [...files].reduce((sum, path) => sum + size(path), gzipSync(page).length);
console.log(`First load: ${(total / 1000).toFixed(1)} kB gzip in ${files.size + 1} files (budget ${BUDGET_BYTES / 1000} kB)`);
if (total > BUDGET_BYTES) {
  console.error("The first load is over its budget: load what is not needed at once with `lazy` or `import()`.");
  process.exit(1);
}
