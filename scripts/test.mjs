// Builds the tests of the workspace and runs them. As `cargo test --workspace`, but several programs at
// once: most tests wait for processes and timers more than they compute. The simulator, which computes
// only, runs by itself. Arguments go to cargo: `scripts/test.mjs --locked`.
//
// A few tests that fail beside others are run once more, alone: what passes then depends on how busy the
// machine is. It is named at the end, to be mended; what fails alone too fails the run.

import { spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { basename, dirname } from 'node:path';

const cargo = process.env.CARGO ?? 'cargo';
const options = process.argv.slice(2);
const AT_ONCE = Math.max(3, availableParallelism());
/** More failures than these are not the machine's. */
const REPEATED_MAX = 4;
/** The longest first, so that none of them begins last; the rest in the order of cargo. */
const LONGEST = ['piton-cli it', 'piton-testkit it', 'piton-graph it', 'piton-agentctl processes', 'piton-agentctl it', 'piton-store lib'];

/** @returns {Promise<{status: number, seconds: number, output: string}>} */
function run(command, args, { cwd, env, shown = false }) {
  const begin = performance.now();
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd, env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', shown ? 'inherit' : 'pipe'] });
    const pieces = [];
    child.stdout.on('data', (piece) => pieces.push(piece));
    child.stderr?.on('data', (piece) => pieces.push(piece));
    child.on('error', reject);
    child.on('close', (code, signal) => {
      const seconds = (performance.now() - begin) / 1000;
      const output = Buffer.concat(pieces).toString() + (signal ? `\nended by ${signal}\n` : '');
      resolve({ status: code ?? 1, seconds, output });
    });
  });
}

/** Builds all tests. @returns {Promise<{name: string, path: string, folder: string}[]>} */
async function build() {
  const args = ['test', '--no-run', '--workspace', '--message-format', 'json-render-diagnostics', ...options];
  const { status, output, seconds } = await run(cargo, args, { shown: true });
  if (status !== 0) process.exit(status);
  console.log(`built in ${seconds.toFixed(1)} s`);
  const programs = [];
  for (const line of output.split('\n')) {
    if (!line.startsWith('{')) continue;
    const message = JSON.parse(line);
    if (message.reason !== 'compiler-artifact' || !message.profile.test || !message.executable) continue;
    const folder = dirname(message.manifest_path);
    const [kind] = message.target.kind;
    const name = `${basename(folder)} ${kind === 'test' ? message.target.name : kind}`;
    programs.push({ name, path: message.executable, folder });
  }
  if (programs.length === 0) throw new Error('cargo built no tests');
  return programs;
}

/** What libtest says at the end of each program. */
function summary(output) {
  const count = (what) => [...output.matchAll(new RegExp(`^test result: .* (\\d+) ${what};`, 'gm'))]
    .reduce((sum, [, n]) => sum + Number(n), 0);
  return { passed: count('passed'), failed: count('failed'), ignored: count('ignored') };
}

/** What a program says that it did not test: a tool is missing on this machine. In CI that fails. */
function leftOut(output) {
  return output.split('\n').filter((line) => line.startsWith('LEFT OUT'));
}

async function test(job) {
  const { status, seconds, output } = await run(job.path, job.args ?? [], { cwd: job.folder, env: job.env });
  const { passed, failed, ignored } = summary(output);
  const left = ignored > 0 ? `, ${ignored} ignored` : '';
  console.log(`${job.name}: ${passed} passed${left}, ${seconds.toFixed(1)} s`);
  if (status === 0) {
    for (const line of leftOut(output)) console.log(line);
    return { passed, seconds };
  }
  console.log(`\n${output}\n==> ${job.name} FAILED: ${failed} tests, status ${status}\n`);
  return { passed, seconds, failed: job, tests: failures(output) };
}

/** The tests that libtest names as failed. A program that ended in the middle names none. */
function failures(output) {
  if (!/^test result: FAILED/m.test(output)) return [];
  const [, list] = output.match(/^failures:\n((?: {4}\S.*\n)+)\ntest result: FAILED/m) ?? [];
  return (list ?? '').split('\n').map((line) => line.trim()).filter((line) => line !== '');
}

/** Runs failed tests once more, one after the other. @returns {Promise<boolean>} whether all passed */
async function repeat(failed) {
  const tests = failed.flatMap((result) => result.tests.map((name) => ({ name, job: result.failed })));
  if (failed.some((result) => result.tests.length === 0) || tests.length > REPEATED_MAX) return false;
  const broken = [];
  for (const { name, job } of tests) {
    console.log(`\n${job.name}: ${name} failed beside others; once more, alone`);
    const { status, output } = await run(job.path, ['--exact', name], { cwd: job.folder, env: job.env });
    if (status !== 0 || summary(output).passed !== 1) {
      broken.push(name);
      console.log(output);
    }
  }
  console.log(`FAILED BESIDE OTHERS: ${tests.map(({ name }) => name).join(', ')}`);
  if (broken.length > 0) console.log(`FAILED ALONE TOO: ${broken.join(', ')}`);
  return broken.length === 0;
}

async function all(jobs, atOnce) {
  const waiting = [...jobs];
  const results = [];
  const begin = performance.now();
  const worker = async () => {
    for (let job = waiting.shift(); job; job = waiting.shift()) results.push(await test(job));
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  return { results, seconds: (performance.now() - begin) / 1000 };
}

const rank = ({ name }) => (LONGEST.indexOf(name) + LONGEST.length + 1) % (LONGEST.length + 1);
const programs = (await build()).map((program) => ({ ...program, env: { CARGO: cargo, CARGO_MANIFEST_DIR: program.folder } }));
const isSimulator = ({ name }) => name === 'piton-testkit sim';
const docs = { name: 'documentation', path: cargo, args: ['test', '--doc', '--workspace', ...options] };
const others = [docs, ...programs.filter((program) => !isSimulator(program)).sort((a, b) => rank(a) - rank(b))];
const simulated = await all(programs.filter(isSimulator), 1);
const tested = await all(others, AT_ONCE);
const results = [...simulated.results, ...tested.results];
const failed = results.filter((result) => result.failed);
const passed = results.reduce((sum, result) => sum + result.passed, 0);
console.log(`${passed} tests passed: the simulator in ${simulated.seconds.toFixed(0)} s, the others in ${tested.seconds.toFixed(0)} s`);
if (failed.length > 0 && !await repeat(failed)) {
  console.log(`FAILED: ${failed.map((result) => result.failed.name).join(', ')}`);
  process.exit(1);
}
