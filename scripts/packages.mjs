// Makes the packages that carry the binary and tries each from its file, as a stranger would install it:
//   node scripts/packages.mjs BINARY VERSION FOLDER
// npm: piton-cli-VERSION.tgz (`npx piton-cli`); PyPI: a wheel (`uvx --from piton-cli piton`). The name
// `piton` belongs to another project on PyPI, so both are called piton-cli; the command is `piton`.

import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

const [binary, version, folder] = process.argv.slice(2);
if (!folder) {
  console.error('packages: expected BINARY VERSION FOLDER');
  process.exit(2);
}
const out = resolve(folder);
const work = mkdtempSync(join(tmpdir(), 'piton-packages-'));
const quiet = { stdio: ['ignore', 'pipe', 'inherit'] };

function expectVersion(program, args = []) {
  const said = execFileSync(program, [...args, '--version'], quiet).toString().trim();
  if (said !== `piton ${version}`) throw new Error(`${program} says ${JSON.stringify(said)}, not piton ${version}`);
}

function npm() {
  const source = join(work, 'npm');
  mkdirSync(join(source, 'bin'), { recursive: true });
  copyFileSync(binary, join(source, 'bin/piton'));
  chmodSync(join(source, 'bin/piton'), 0o755);
  for (const licence of ['LICENSE-MIT', 'LICENSE-APACHE', 'README.md']) copyFileSync(licence, join(source, licence));
  const description = {
    name: 'piton-cli', version, description: 'Durable, resumable sessions for AI agents', license: '(MIT OR Apache-2.0)',
    bin: { piton: 'bin/piton' }, os: ['linux'], cpu: ['x64'],
  };
  writeFileSync(join(source, 'package.json'), `${JSON.stringify(description, null, 2)}\n`);
  const file = execFileSync('npm', ['pack', '--silent', '--pack-destination', out], { ...quiet, cwd: source }).toString().trim();
  const home = join(work, 'npm-home');
  mkdirSync(home);
  execFileSync('npm', ['install', '--silent', '--no-audit', '--no-fund', join(out, file)], { ...quiet, cwd: home });
  expectVersion(join(home, 'node_modules/.bin/piton'));
  return file;
}

function wheel() {
  const file = execFileSync('python3', ['scripts/wheel.py', binary, version, out], quiet).toString().trim();
  const home = join(work, 'venv');
  execFileSync('python3', ['-m', 'venv', home], quiet);
  execFileSync(join(home, 'bin/pip'), ['install', '--quiet', '--disable-pip-version-check', '--no-index', join(out, file)], quiet);
  expectVersion(join(home, 'bin/piton'));
  return file;
}

try {
  mkdirSync(out, { recursive: true });
  for (const make of [npm, wheel]) console.log(`packages: ${make()} made, installed from its file, run`);
} finally {
  rmSync(work, { recursive: true });
}
