// @vitest-environment node
/** `scripts/web build`, with a tree of its own whose app is over its budget. */
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, expect, it } from "vitest";

const TREE = resolve(import.meta.dirname, "../../..");
const folder = mkdtempSync(join(tmpdir(), "piton-web-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

it("fails each time, not only the first, while the app is over its budget", () => {
  for (const name of ["scripts", "web/client", "web/app/scripts", "web/app/dist/assets", "web/node_modules"]) mkdirSync(join(folder, name), { recursive: true });
  for (const name of ["scripts/web", "scripts/compress.mjs", "web/app/scripts/check-size.mjs"]) cpSync(join(TREE, name), join(folder, name));
  // The app's own scripts, with a build that only writes the page: the rest is as in the tree.
  const { scripts } = JSON.parse(readFileSync(join(TREE, "web/app/package.json"), "utf8"));
  const app = { name: "piton-app", version: "0.0.0", scripts: { ...scripts, build: scripts.build.replace("vite build", "node make.mjs") } };
  writeFileSync(join(folder, "web/app/package.json"), JSON.stringify(app));
  writeFileSync(join(folder, "web/app/make.mjs"), `import { writeFileSync } from "node:fs"; import { randomBytes } from "node:crypto";
    writeFileSync("dist/assets/index.js", randomBytes(200_000).toString("hex")); writeFileSync("dist/index.html", '<script src="/assets/index.js"></script>');`);
  writeFileSync(join(folder, "web/client/package.json"), JSON.stringify({ name: "piton-client", version: "0.0.0" }));
  writeFileSync(join(folder, "web/package.json"), JSON.stringify({ name: "piton-web", private: true, workspaces: ["client", "app"], scripts: { build: "npm run build -w app" } }));
  // As after an installation.
  for (const name of ["web/package-lock.json", "web/node_modules/.piton-lock"]) writeFileSync(join(folder, name), "{}");
  const build = () => spawnSync("bash", [join(folder, "scripts/web"), "build"], { encoding: "utf8" });
  for (const time of ["first", "second"]) {
    const { status, stdout, stderr } = build();
    expect(stdout + stderr, time).toContain("over its budget");
    expect(status, time).not.toBe(0);
  }
}, 60_000);
