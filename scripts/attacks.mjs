// The attacks and faults that are tested where they are decided, again and again: some of them are races. Part
// of `make soak`; the others are in crates/piton-cli/tests/it/attacks.rs, which says what each is about.
// Usage: node scripts/attacks.mjs [ROUNDS] [CARGO_OPTION...]

import { spawn } from 'node:child_process';
import { basename, dirname } from 'node:path';

const cargo = process.env.CARGO ?? 'cargo';
const [rounds = '10', ...options] = process.argv.slice(2);

/** @type {[string, string, string, string][]} what was done, the crate, its program of tests, the test */
const ATTACKS = [
  ['a git filter that appears while git runs', 'piton-workspace', 'it', 'git::a_filter_that_appears_later_is_not_run'],
  ['the same, in a worktree', 'piton-workspace', 'it', 'worktree::a_filter_that_appears_later_is_not_run'],
  ['a hostile repository', 'piton-runtime', 'it', 'worktrees::a_hostile_repository_runs_nothing'],
  ['a message that is too long', 'piton-core', 'it', 'spool_import::what_was_too_long_marks_the_message_and_the_outcome'],
  ['a message of fifty megabytes', 'piton-testkit', 'it', 'agents::long_messages::a_message_of_fifty_megabytes_is_named_and_left_out'],
  ['a spool that lost its end', 'piton-exec', 'lib', 'spool::tests::an_end_that_was_flushed_and_is_missing_is_named'],
  ['a damaged spool', 'piton-testkit', 'it', 'agents::not_agents::a_damaged_spool_is_named_and_kept'],
  ['a session that was taken away', 'piton-store', 'lib', 'sqlite::tests::taken::a_session_that_was_taken_away_is_missed'],
  ['a metadata log that was taken away', 'piton-store', 'lib', 'sqlite::tests::taken::the_metadata_log_is_missed'],
  ['anchors that were taken away', 'piton-store', 'lib', 'sqlite::tests::taken::lost_anchors_are_missed'],
  ['a changed page of the index', 'piton-store', 'lib', 'sqlite::tests::taken::a_changed_page_of_the_index_is_noticed'],
  ['a session of files that was taken away', 'piton-store', 'lib', 'files::tests::taken::a_session_that_was_taken_away_is_missed'],
  ['a metadata log of files that was taken away', 'piton-store', 'lib', 'files::tests::taken::the_metadata_log_is_missed'],
  ['anchors of files that were taken away', 'piton-store', 'lib', 'files::tests::taken::lost_anchors_are_missed_and_recorded'],
  ['a crash that looks like a theft', 'piton-store', 'lib', 'files::tests::taken::no_crash_looks_like_a_theft'],
];

/** @returns {Promise<{status: number, output: string}>} */
function run(command, args, { cwd, shown = false } = {}) {
  return new Promise((resolve, reject) => {
    // What is left out without a tool would pass.
    const child = spawn(command, args, { cwd, env: { ...process.env, CI: '1' }, stdio: ['ignore', 'pipe', shown ? 'inherit' : 'pipe'] });
    const pieces = [];
    child.stdout.on('data', (piece) => pieces.push(piece));
    child.stderr?.on('data', (piece) => pieces.push(piece));
    child.on('error', reject);
    child.on('close', (code) => resolve({ status: code ?? 1, output: Buffer.concat(pieces).toString() }));
  });
}

/** Builds the programs of tests. @returns {Promise<Map<string, {path: string, folder: string}>>} */
async function build() {
  const packages = [...new Set(ATTACKS.map(([, name]) => name))].flatMap((name) => ['-p', name]);
  const args = ['test', '--no-run', ...packages, '--message-format', 'json-render-diagnostics', ...options];
  const { status, output } = await run(cargo, args, { shown: true });
  if (status !== 0) process.exit(status);
  const programs = new Map();
  for (const line of output.split('\n').filter((line) => line.startsWith('{'))) {
    const message = JSON.parse(line);
    if (message.reason !== 'compiler-artifact' || !message.profile.test || !message.executable) continue;
    const folder = dirname(message.manifest_path);
    const [kind] = message.target.kind;
    programs.set(`${basename(folder)} ${kind === 'test' ? message.target.name : kind}`, { path: message.executable, folder });
  }
  return programs;
}

const programs = await build();
for (let round = 0; round < Number(rounds); round += 1) {
  for (const [what, name, kind, test] of ATTACKS) {
    const program = programs.get(`${name} ${kind}`);
    if (!program) throw new Error(`${name} has no program of tests ${kind}`);
    console.log(`round ${round}: ${what}`);
    const { status, output } = await run(program.path, ['--exact', test], { cwd: program.folder });
    // A test that was renamed passes, too: none is run.
    if (status === 0 && /^test result: ok\. 1 passed;/m.test(output)) continue;
    console.log(`${output}\n==> FAILED: ${name} ${test}`);
    process.exit(1);
  }
}
console.log(`${ATTACKS.length} attacks, ${rounds} rounds: none succeeded`);
