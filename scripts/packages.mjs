// Makes the packages that carry the binary and tries each from its file, as a stranger would install it:
//   node scripts/packages.mjs BINARY VERSION FOLDER
// npm: piton-cli-VERSION.tgz (`npx piton-cli`); PyPI: a wheel (`uvx --from piton-cli piton`). The name
// `piton` belongs to another project on PyPI, so both are called piton-cli; the command is `piton`.
//
// Each is run by npx and by uvx from its file: the version, and the demonstration, which starts a server and an
// agent from the installed program. Without uvx the wheel is installed by pip alone: with CI set that is an error.

import { execFileSync, spawnSync } from 'node:child_process';
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

/** Runs the installed program as a user does who has nothing else: `call` is the program, or what starts it. */
function tryProgram(call, env = {}) {
  const [program, ...args] = call;
  const home = mkdtempSync(join(work, 'home-'));
  const options = { ...quiet, cwd: home, env: { ...process.env, HOME: home, ...env } };
  const said = execFileSync(program, [...args, '--version'], options).toString().trim();
  if (said !== `piton ${version}`) throw new Error(`${call.join(' ')} says ${JSON.stringify(said)}, not piton ${version}`);
  execFileSync(program, [...args, 'demo'], options);
}

const has = (program) => spawnSync(program, ['--version'], { stdio: 'ignore' }).status === 0;

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
  tryProgram(['npx', '--yes', '--offline', '--package', join(out, file), 'piton'], { npm_config_cache: join(work, 'npm-cache') });
  return `${file} made, run by npx from its file`;
}

function wheel() {
  const file = execFileSync('python3', ['scripts/wheel.py', binary, version, out], quiet).toString().trim();
  if (has('uvx')) {
    tryProgram(['uvx', '--offline', '--from', join(out, file), 'piton'], { UV_CACHE_DIR: join(work, 'uv-cache') });
    return `${file} made, run by uvx from its file`;
  }
  if (process.env.CI) throw new Error('uvx is needed to try the wheel: pip install uv');
  const home = join(work, 'venv');
  execFileSync('python3', ['-m', 'venv', home], quiet);
  execFileSync(join(home, 'bin/pip'), ['install', '--quiet', '--disable-pip-version-check', '--no-index', join(out, file)], quiet);
  tryProgram([join(home, 'bin/piton')]);
  return `${file} made, installed by pip from its file, run. NOT TRIED through uvx: pip install uv`;
}

try {
  mkdirSync(out, { recursive: true });
  for (const make of [npm, wheel]) console.log(`packages: ${make()}`);
} finally {
  rmSync(work, { recursive: true });
}
