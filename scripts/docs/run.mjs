// Runs the shell blocks of one page, in order, in a sandbox: a home, a data folder and a git repository of
// its own. Programs of the system that a test must not call are replaced by ones that only say so.

import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { blocks } from './blocks.mjs';

/** A block that is not done by then has failed. */
const BLOCK_MS_MAX = 60_000;

/** What a page may name and a test must not call. */
const STUBS = ['npm', 'npx', 'systemctl', 'loginctl', 'journalctl', 'launchctl', 'ssh', 'scp', 'rsync', 'docker', 'tailscale', 'make', 'cargo', 'claude', 'codex', 'gemini', 'opencode'];

/** The names by which a page calls ids, and the commands that find the newest one; of checkpoints the second. */
const NEWEST = {
  SESSION: ['last-session', "piton sessions list --limit 1 --json 2>/dev/null | jq -er 'select(.session_id).session_id'"],
  WAIT: ['last-wait', "piton sessions waits --json | tail -n 1 | jq -er .wait_id"],
  CHECKPOINT: ['last-checkpoint', 'piton sessions checkpoints "$(last-session)" --json | jq -er ".checkpoints[-2].checkpoint_id"'],
  TASK: ['last-task', "piton tasks list --json | head -n 1 | jq -er .task_id"],
};

/** @returns {number} how many blocks failed */
export function runPage(piton, name) {
  const found = blocks(readFileSync(name, 'utf8'));
  if (found.length === 0) return 0;
  const sandbox = makeSandbox(piton);
  let failed = 0;
  try {
    for (const block of found) {
      const where = `${name}:${block.line}`;
      if (block.file !== null) {
        writeFileSync(join(sandbox.folder, 'project', block.file), `${block.text}\n`);
        continue;
      }
      if (block.notRun !== null) {
        const syntax = spawnSync('bash', ['-n'], { input: block.text });
        const good = syntax.status === 0;
        console.log(`${good ? 'not run' : 'FAILED '}  ${where}  (${block.notRun})`);
        if (!good) failed += 1;
        continue;
      }
      const script = [...block.setup, ...block.text.split('\n')].map(runnable).join('\n');
      const began = Date.now();
      const done = spawnSync('bash', ['-euo', 'pipefail', '-c', script], {
        cwd: join(sandbox.folder, 'project'), env: sandbox.env, stdio: ['ignore', 'pipe', 'pipe'], timeout: BLOCK_MS_MAX, maxBuffer: 1 << 24,
      });
      const good = done.status === block.exit;
      console.log(`${good ? 'good   ' : 'FAILED '}  ${where}  ${Date.now() - began} ms`);
      if (!good || process.env.VERBOSE) {
        if (!good) console.log(`  expected exit code ${block.exit}, got ${done.status ?? done.signal ?? done.error}`);
        for (const line of `${script}\n---\n${done.stdout}${done.stderr}`.trimEnd().split('\n')) console.log(`  | ${line}`);
      }
      if (!good) failed += 1;
    }
  } finally {
    sandbox.end();
  }
  return failed;
}

/** Runs a script of `examples`, which has a sandbox of its own. @returns {number} 1 if it failed */
export function runExample(piton, name) {
  const sandbox = makeSandbox(piton);
  try {
    const began = Date.now();
    const done = spawnSync('bash', [join(process.cwd(), name)], {
      cwd: join(sandbox.folder, 'project'), env: sandbox.env, stdio: ['ignore', 'pipe', 'pipe'], timeout: BLOCK_MS_MAX,
    });
    console.log(`${done.status === 0 ? 'good   ' : 'FAILED '}  ${name}  ${Date.now() - began} ms`);
    if (done.status === 0 && !process.env.VERBOSE) return 0;
    for (const line of `${done.stdout}${done.stderr}`.trimEnd().split('\n')) console.log(`  | ${line}`);
    return done.status === 0 ? 0 : 1;
  } finally {
    sandbox.end();
  }
}

/** A line as the sandbox runs it. */
function runnable(line) {
  if (/^\s*#/.test(line)) return line;
  let text = line;
  for (const [word, [program]] of Object.entries(NEWEST)) {
    text = text.replace(new RegExp(`(?<=[ /"])${word}(?=$|[ /."])`, 'g'), `$(${program})`);
  }
  // The server runs until it is stopped; the next line wants it to listen.
  return /^piton (--\S+ \S+ )?serve\b/.test(text)
    ? `{ ${text.replace(/\s#\s.*$/, '')} >/dev/null 2>>serve.log & }; until-served $!`
    : text;
}

function makeSandbox(piton) {
  const folder = mkdtempSync(join(tmpdir(), 'piton-docs-'));
  const [bin, home, project] = ['bin', 'home', 'project'].map((name) => join(folder, name));
  for (const each of [bin, home, project, join(home, '.config/piton')]) mkdirSync(each, { recursive: true });
  symlinkSync(piton, join(bin, 'piton'));
  const program = (name, text) => {
    writeFileSync(join(bin, name), `#!/usr/bin/env bash\n${text}\n`);
    chmodSync(join(bin, name), 0o755);
  };
  for (const name of STUBS) program(name, `echo "${name} is not run by this test: $*" >&2`);
  for (const [name, text] of Object.values(NEWEST)) program(name, text);
  program('until-served', `for i in $(seq 200); do
  kill -0 "$1" || exit 1
  [ "$(piton status --json | jq -r .pid)" = "$1" ] && exit 0
  sleep 0.1
done
exit 1`);
  // `piton agents doctor` asks for the version that real agents need.
  program('node', `[ "\${1:-}" = --version ] && exec echo v22.0.0\nexec '${process.execPath}' "$@"`);
  // Agents that people have are played by the built-in one.
  const agents = ['claude-code', 'codex', 'gemini', 'opencode'].map((name) => `[agents.${name}]\ncommand = ["${join(bin, 'piton')}", "agent", "echo"]\n`);
  writeFileSync(join(home, '.config/piton/config.toml'), `[server]\nlisten = "127.0.0.1:0"\n\n${agents.join('\n')}`);
  const env = {
    PATH: `${bin}:${process.env.PATH}`, HOME: home, PITON_CHECKOUT: process.cwd(), NO_COLOR: '1', LANG: 'C.UTF-8', TMPDIR: folder,
    GIT_AUTHOR_NAME: 'Ada', GIT_AUTHOR_EMAIL: 'ada@example.org', GIT_COMMITTER_NAME: 'Ada', GIT_COMMITTER_EMAIL: 'ada@example.org',
  };
  const run = (file, ...args) => execFileSync(file, args, { cwd: project, env, stdio: ['ignore', 'pipe', 'ignore'] }).toString();
  writeFileSync(join(project, 'main.py'), 'print("hello")\n');
  run('git', 'init', '-q', '-b', 'main');
  run('git', 'add', '.');
  run('git', 'commit', '-q', '-m', 'first');
  const end = () => {
    // A block may name a data folder of its own. Closing a session ends its agent; then nothing of the
    // sandbox runs any more.
    const quiet = (data, ...args) => spawnSync(join(bin, 'piton'), ['--data', data, ...args], { env, cwd: project, timeout: 20_000 });
    const files = readdirSync(folder, { recursive: true }).filter((path) => path.endsWith('run/server.json'));
    for (const data of files.map((path) => join(folder, dirname(dirname(path))))) {
      const listed = quiet(data, 'sessions', 'list', '--limit', '200', '--json').stdout?.toString() ?? '';
      for (const line of listed.split('\n').filter(Boolean)) {
        const { session_id: id, status } = JSON.parse(line);
        if (id && !['completed', 'failed', 'cancelled'].includes(status)) {
          quiet(data, 'sessions', 'cancel', id);
          quiet(data, 'sessions', 'close', id);
        }
      }
      quiet(data, 'stop');
    }
    rmSync(folder, { recursive: true, force: true });
  };
  return { folder, env, end };
}
