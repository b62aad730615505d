#!/usr/bin/env node
// Real agents from npm under a real Piton, against a scripted model: `make test-agents`.
//
//   node scripts/agents/run.mjs [AGENT…]
//
// PITON names the program (target/debug/piton). Each agent is put through the same story; a line says of
// each step whether it passed, failed, was left out, or is not offered by the agent, and why. What failed
// leaves the log, what users saw and all that reached the model in target/agents/evidence; with KEEP=1
// all do, and the folder of the run stays, too.

import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { cpSync, existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import { AGENTS } from "./agents.mjs";
import { install, pathWithNode } from "./install.mjs";
import { startModel } from "./llm.mjs";
import { Piton } from "./piton.mjs";
import { having, kill } from "./processes.mjs";
import { NotOffered, Scene } from "./scene.mjs";
import { STEPS } from "./story.mjs";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const CACHE = join(ROOT, "target/agents");
const EVIDENCE = join(CACHE, "evidence");
const PROGRAM = resolve(process.env.PITON || join(ROOT, "target/debug/piton"));
/** All of it: longer than this, something hangs that has no end of its own. */
const RUN_MS_MAX = 90 * 60_000;
const END_MS = 15_000;
const END_POLL_MS = 20;

/** Inherited by all that this run starts, so that it can be found and ended, and nothing else. */
const MARKER = { TEST_AGENTS_RUN: randomBytes(8).toString("hex") };

const tally = { passed: 0, failed: 0, notOffered: [], leftOut: [] };
/** Where the data folders, the agents' own folders and the workspaces of this run are. */
let runFolder = null;

function tell(verdict, agent, step, more = "") {
  console.log(`${verdict.padEnd(11)} ${agent.padEnd(11)} ${step}${more && `: ${more}`}`);
}

function leaveOut(agent, what, why) {
  tally.leftOut.push(`${agent} ${what}`);
  tell("LEFT OUT", agent, what, why);
}

function notOffered(agent, what, why) {
  tally.notOffered.push(`${agent} ${what}`);
  tell("NOT OFFERED", agent, what, why);
}

/**
 * Of the environment only what has nothing to do with models: no key and no proxy gets to an agent. The home
 * folder is the run's own, the same from its beginning to its end: no user's conversations are touched.
 */
function environment(path, home) {
  const kept = ["USER", "LOGNAME", "LANG", "TMPDIR"];
  const own = Object.fromEntries(kept.filter((name) => process.env[name]).map((name) => [name, process.env[name]]));
  return { ...own, HOME: home, PATH: path, SHELL: "/bin/sh", NO_COLOR: "1", ...MARKER };
}

/** A repository with one commit: the note tells of it. */
function makeWorkspace(folder) {
  const workspace = join(folder, "work");
  mkdirSync(workspace);
  writeFileSync(join(workspace, "README.md"), "A workspace.\n");
  const who = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org"];
  for (const args of [["init", "-q"], ["add", "."], [...who, "commit", "-q", "-m", "first"]]) {
    const git = spawnSync("git", args, { cwd: workspace, encoding: "utf8", timeout: END_MS });
    if (git.status !== 0) throw new Error(`git ${args.join(" ")}: ${git.stderr}`);
  }
  return workspace;
}

/** The settings of Piton: this agent as it is installed, with its own folder. */
function writeConfig(folder, agent, bin, env) {
  const quoted = (list) => list.map((text) => JSON.stringify(text)).join(", ");
  const variables = Object.entries(env).map(([name, value]) => `${name} = ${JSON.stringify(value)}`);
  const config = join(folder, "piton.toml");
  const command = quoted([join(bin, agent.program), ...agent.args]);
  writeFileSync(config, `[agents.${agent.id}]\ncommand = [${command}]\nenv = { ${variables.join(", ")} }\n`);
  return config;
}

async function play(agent, bin, path, folder) {
  const model = await startModel();
  const workspace = makeWorkspace(folder);
  const home = join(folder, "home");
  mkdirSync(home);
  const own = agent.setUp({ folder, home, model: model.address, bin });
  const config = writeConfig(folder, agent, bin, own);
  const env = environment(path, home);
  const piton = new Piton({ program: PROGRAM, folder, config, env });
  const program = join(bin, agent.program);
  const scene = new Scene({ agent, piton, model, workspace, home, program, env: { ...env, ...own }, marker: MARKER });
  const failedBefore = tally.failed;
  try {
    await piton.start();
    await playSteps(agent, scene);
  } catch (error) {
    tally.failed += 1;
    tell("FAIL", agent.id, "start", error.message);
  } finally {
    if (tally.failed > failedBefore || process.env.KEEP) await keepEvidence(agent, scene, folder);
    await piton.end("SIGTERM");
    model.stop();
    endAll();
  }
}

async function playSteps(agent, scene) {
  let stuck = "";
  for (const [step, act] of STEPS) {
    const why = agent.notOffered?.[step];
    if (stuck) {
      leaveOut(agent.id, step, `“${stuck}” did not come to its end`);
      continue;
    }
    if (why) {
      notOffered(agent.id, step, why);
      continue;
    }
    const begin = performance.now();
    scene.step = step;
    try {
      const more = await act(scene);
      const seconds = `${((performance.now() - begin) / 1000).toFixed(1)} s`;
      tally.passed += 1;
      tell("PASS", agent.id, step, more ? `${seconds}, ${more}` : seconds);
    } catch (error) {
      if (error instanceof NotOffered) {
        notOffered(agent.id, step, error.message);
        continue;
      }
      tally.failed += 1;
      tell("FAIL", agent.id, step, error.message);
      await scene.look().catch(() => "");
      // The next step prompts, which needs an agent that listens.
      if (!(await scene.isAtRest())) stuck = step;
    }
  }
}

/** What is needed to find out why. */
async function keepEvidence(agent, scene, folder) {
  const place = join(EVIDENCE, agent.id);
  rmSync(place, { recursive: true, force: true });
  mkdirSync(place, { recursive: true });
  const write = (name, value) => writeFileSync(join(place, name), JSON.stringify(value, null, 1));
  const { requests, complaints } = scene.model;
  write("model.json", { complaints, requests });
  const printed = scene.printed.map(({ step, command, text }) => `=== ${step}: piton ${command}\n${text}`);
  writeFileSync(join(place, "printed.txt"), printed.join("\n"));
  cpSync(join(folder, "server.log"), join(place, "server.log"));
  try {
    write("records.json", await scene.session.records());
    write("status.json", await scene.session.status());
  } catch (error) {
    console.log(`     the records of ${agent.id} could not be read: ${error.message}`);
  }
  console.log(`     see ${place}`);
}

/** Ends what this run has started and still lives. Nothing else happens meanwhile. */
function endAll() {
  const end = Date.now() + END_MS;
  for (let left = having(MARKER); left.length > 0; left = having(MARKER)) {
    if (Date.now() > end) throw new Error(`These cannot be ended: ${left.join(", ")}`);
    left.forEach((pid) => kill(pid));
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, END_POLL_MS);
  }
}

/** Where the agent is, or nothing if npm does not give it. */
function installed(agent, path) {
  try {
    return install(CACHE, agent, path);
  } catch (error) {
    leaveOut(agent.id, "all", `${agent.package}@${agent.version} cannot be installed: ${error.message}`);
    return null;
  }
}

async function main(wanted) {
  if (process.platform !== "linux") throw new Error("This needs Linux: processes are found by /proc");
  if (!existsSync(PROGRAM)) throw new Error(`There is no ${PROGRAM}: build it with \`cargo build -p piton-cli\``);
  const unknown = wanted.filter((id) => !AGENTS.some((agent) => agent.id === id));
  if (unknown.length > 0) throw new Error(`No such agent: ${unknown.join(", ")}`);
  mkdirSync(CACHE, { recursive: true });
  const path = pathWithNode(CACHE);
  runFolder = realpathSync(mkdtempSync(join(tmpdir(), "piton-agents-")));
  try {
    for (const agent of AGENTS.filter(({ id }) => wanted.length === 0 || wanted.includes(id))) {
      const bin = installed(agent, path);
      if (!bin) continue;
      const folder = join(runFolder, agent.id);
      mkdirSync(folder);
      await play(agent, bin, path, folder);
    }
  } finally {
    removeFolder();
  }
  console.log(`Not offered: ${tally.notOffered.join("; ") || "nothing"}`);
  console.log(`Left out: ${tally.leftOut.join("; ") || "nothing"}`);
  console.log(`${tally.passed} passed, ${tally.failed} failed`);
  return tally.failed > 0 ? 1 : 0;
}

function removeFolder() {
  if (process.env.KEEP) console.log(`     kept: ${runFolder}`);
  else if (runFolder) rmSync(runFolder, { recursive: true, force: true, maxRetries: 3 });
  runFolder = null;
}

/** Whatever happens, nothing stays behind. */
function giveUp(why) {
  console.log(`FAIL ${why}`);
  endAll();
  removeFolder();
  process.exit(1);
}

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => giveUp(`ended by ${signal}`));
setTimeout(() => giveUp(`not done within ${RUN_MS_MAX / 60_000} minutes`), RUN_MS_MAX).unref();

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  giveUp(error.stack);
}
