// The agents as npm has them, each in a folder of its own below target/agents, once.

import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";

const INSTALL_MS = 15 * 60_000;
/** What the adapters need; an older one makes npm install old releases silently. */
const NODE_MAJOR_MIN = 22;
const NODE = { package: "node", version: "24.21.0", program: "node" };

/** Gives the folder with the program; the error says why there is none. */
export function install(cache, { package: name, version, program, beside = [] }, path) {
  const folder = join(cache, `${name.replaceAll(/[@/]+/g, "-").replace(/^-/, "")}-${version}`);
  const bin = join(folder, "node_modules/.bin");
  const done = join(folder, "installed");
  if (existsSync(done)) return bin;
  // An installation that was cut off is started again.
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "package.json"), JSON.stringify({ private: true }));
  console.log(`     installing ${name}@${version}`);
  const args = ["install", "--no-audit", "--no-fund", "--loglevel=error", `${name}@${version}`, ...beside];
  const env = { ...process.env, PATH: path };
  const npm = spawnSync("npm", args, { cwd: folder, env, timeout: INSTALL_MS, encoding: "utf8" });
  if (npm.error) throw new Error(`npm cannot be run: ${npm.error.message}`);
  if (npm.status !== 0) throw new Error(`npm ended with ${npm.status}: ${lastLines(npm.stderr)}`);
  if (!existsSync(join(bin, program))) throw new Error(`${name}@${version} has no program ${program}`);
  writeFileSync(done, "");
  return bin;
}

/** Where programs are looked for, with a Node.js in front that is new enough. */
export function pathWithNode(cache) {
  const own = process.env.PATH ?? "";
  // This one, whatever else is called node on the way.
  const running = [dirname(process.execPath), own].join(delimiter);
  if (Number(process.versions.node.split(".")[0]) >= NODE_MAJOR_MIN) return running;
  return [install(cache, NODE, own), own].join(delimiter);
}

function lastLines(text) {
  return text.trim().split("\n").slice(-3).join(" | ");
}
