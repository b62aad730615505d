// What the runner of all tests says: run with a cargo that builds one program, which is a script.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';

const folder = mkdtempSync(join(tmpdir(), 'piton-runner-'));
after(() => rmSync(folder, { recursive: true }));

/** Runs the runner on a program of tests that prints these lines and ends with a status. */
function runner(lines, status) {
  const script = (name, text) => {
    const path = join(folder, name);
    writeFileSync(path, `#!/bin/sh\n${text}\n`);
    chmodSync(path, 0o755);
    return path;
  };
  const program = script('program', `cat >&2 <<'END'\n${lines.join('\n')}\nEND\nexit ${status}`);
  const artifact = {
    reason: 'compiler-artifact',
    profile: { test: true },
    executable: program,
    manifest_path: join(folder, 'Cargo.toml'),
    target: { kind: ['lib'], name: 'some' },
  };
  const cargo = script('cargo', `case "$*" in *--no-run*) echo '${JSON.stringify(artifact)}' ;; *) echo 'test result: ok. 0 passed; 0 failed; 0 ignored;' ;; esac`);
  const ran = spawnSync(process.execPath, [join(import.meta.dirname, 'test.mjs')], { env: { ...process.env, CARGO: cargo }, encoding: 'utf8' });
  return { status: ran.status, lines: ran.stdout.split('\n') };
}

test('what a program left out is said although it passed, and nothing else of it', () => {
  const left = 'LEFT OUT: a shell: it does not start';
  const { status, lines } = runner(['test one ... ok', left, 'test result: ok. 1 passed; 0 failed; 0 ignored;'], 0);
  assert.equal(status, 0);
  assert.deepEqual(lines.filter((line) => line.includes('LEFT OUT')), [left]);
  assert.ok(!lines.includes('test one ... ok'));
});

test('a program that fails is shown whole, and fails the run', () => {
  const { status, lines } = runner(['something broke'], 1);
  assert.equal(status, 1);
  assert.ok(lines.includes('something broke'), lines.join('\n'));
});
