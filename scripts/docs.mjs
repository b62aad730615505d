#!/usr/bin/env node
// The documentation's own tool. It needs a built program (PITON, or target/debug/piton) and Node.js.
//
//   node scripts/docs.mjs            write the generated pages of docs/reference
//   node scripts/docs.mjs --check    fail if a generated page is stale, a link leads nowhere, a page names
//                                    a command, an option, a setting, a default or an operation that the
//                                    program does not have, a path that does not exist, or a word that only
//                                    we understand, or if the recording of the demo is stale
//   node scripts/docs.mjs --run [PAGE…]   run the commands of the pages, each page in a sandbox, and the
//                                    scripts of examples
//
// What runs is every block of a page that is marked `sh`. Comments in the page, which readers do not see,
// steer it; they stand right before the block:
//
//   <!-- setup: COMMAND -->     run this first
//   <!-- exit: 5 -->            the block ends with this exit code
//   <!-- not run: REASON -->    checked, but not run
//   <!-- file: NAME -->         the block, of any kind, is this file of the sandbox
//
// SESSION, CHECKPOINT, WAIT and TASK in a command stand for the newest one of the sandbox.

import { execFile, execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { commandFaults, defaultFaults, indexFaults, linkFaults, pages, pathFaults, recordingFaults, settingsFaults, wordFaults } from './docs/check.mjs';
import { generated } from './docs/generate.mjs';
import { operationFaults, server } from './docs/operations.mjs';
import { runExample, runPage } from './docs/run.mjs';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
process.chdir(root);
const piton = resolve(process.env.PITON ?? 'target/debug/piton');
if (!existsSync(piton)) {
  console.error(`docs: ${piton} does not exist: build it with \`cargo build -p piton-cli\`, or set PITON`);
  process.exit(2);
}

const [mode, ...names] = process.argv.slice(2);
const list = ['-c', 'safe.directory=*', 'ls-files', '--cached', '--others', '--exclude-standard'];
const tracked = execFileSync('git', list).toString().split('\n').filter((path) => path && existsSync(path));
const markdown = tracked.filter((path) => path.endsWith('.md'));
// What users read beside the pages.
const isShown = (path) => /^docs\/api\/.*\.json$|^docs\/.*\.svg$|^crates\/piton-cli\/.*\.snap$/.test(path);

if (mode === undefined) {
  for (const [path, text] of await generated(piton)) {
    const is = existsSync(path) ? readFileSync(path, 'utf8') : '';
    if (is !== text) writeFileSync(path, text);
    console.log(`${is === text ? 'unchanged' : 'written  '}  ${path}`);
  }
} else if (mode === '--check') {
  const stale = (await generated(piton)).filter(([path, text]) => !existsSync(path) || readFileSync(path, 'utf8') !== text);
  const faults = stale.map(([path]) => `${path} is stale: run \`make docs\``);
  faults.push(...linkFaults(markdown), ...commandFaults(piton, pages(markdown)), ...wordFaults([...markdown.filter((path) => path.startsWith('docs/')), 'README.md', ...tracked.filter(isShown)]));
  faults.push(...pathFaults(markdown), ...recordingFaults('docs/demo.svg', 'crates/piton-cli/tests/it/cli/snapshots/it__cli__demo__demo_claims.snap'));
  faults.push(...settingsFaults(piton, [...pages(markdown), ...markdown.filter((path) => path.startsWith('examples/'))]));
  faults.push(...indexFaults('docs/errors/README.md'), ...defaultFaults(piton, 'docs/settings.md'), ...operationFaults('docs/reference/http.md', readFileSync('docs/reference/http.md', 'utf8'), server()));
  for (const fault of faults) console.error(fault);
  console.log(faults.length === 0 ? 'docs: good' : `docs: ${faults.length} faults`);
  process.exit(faults.length === 0 ? 0 : 1);
} else if (mode === '--run') {
  const isChosen = (path) => names.length === 0 || names.some((name) => path.includes(name));
  // Examples that say which guide they belong to; the others are parts of them.
  const isExample = (path) => /^examples\/.*\.sh$/.test(path) && readFileSync(path, 'utf8').includes('\n# Guide: ');
  const chosen = [...pages(markdown), ...tracked.filter(isExample)].filter(isChosen);
  const failed = await runEach(chosen);
  console.log(failed === 0 ? 'docs: all commands did what their page says' : `docs: ${failed} failed`);
  process.exit(failed === 0 ? 0 : 1);
} else if (mode === '--run-one') {
  // One page or example, in a process of its own: see runEach.
  const [path] = names;
  process.exit((path.endsWith('.md') ? runPage(piton, path) : runExample(piton, path)) === 0 ? 0 : 1);
} else {
  console.error('docs: expected nothing, --check or --run [PAGE…]');
  process.exit(2);
}

/** Several pages at once: their commands wait for processes more than they compute. @returns {Promise<number>} */
async function runEach(paths) {
  const waiting = [...paths];
  let failed = 0;
  const worker = async () => {
    for (let path = waiting.shift(); path; path = waiting.shift()) {
      await new Promise((done) => {
        execFile(process.execPath, [fileURLToPath(import.meta.url), '--run-one', path], { maxBuffer: 1 << 26 }, (error, stdout, stderr) => {
          process.stdout.write(stdout + stderr);
          if (error) failed += 1;
          done();
        });
      });
    }
  };
  await Promise.all(Array.from({ length: 4 }, worker));
  return failed;
}
