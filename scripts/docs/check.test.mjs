// The checks of the documentation find what they are for: each is given a page with one fault, and a page
// without. A check that matches nothing would pass for ever.

import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, test } from 'node:test';
import { blocks, transcripts } from './blocks.mjs';
import { commandFaults, defaultFaults, indexFaults, linkFaults, pathFaults, recordingFaults, settingsFaults, wordFaults } from './check.mjs';
import { methods, operationFaults, operations, operationsPage, scopes } from './operations.mjs';

const piton = resolve(process.env.PITON ?? 'target/debug/piton');
assert.ok(existsSync(piton), `${piton} is built`);
const folder = mkdtempSync(join(tmpdir(), 'piton-docs-test-'));
after(() => rmSync(folder, { recursive: true }));

let made = 0;
function page(text) {
  const path = join(folder, `${(made += 1)}.md`);
  writeFileSync(path, text);
  return path;
}

const block = (kind, text) => `\`\`\`${kind}\n${text}\n\`\`\`\n`;

test('a link that leads nowhere, and one to a heading that is not there', () => {
  assert.deepEqual(linkFaults([page('# Here\n[good](#here)\n')]), []);
  assert.equal(linkFaults([page('[bad](none.md)\n')]).length, 1);
  assert.equal(linkFaults([page('# Here\n[bad](#there)\n')]).length, 1);
});

test('commands and options, in shell blocks, in transcripts and in text', () => {
  for (const wrap of [(line) => block('sh', line), (line) => block('text', `$ ${line}\n  what it prints`), (line) => `Run \`${line}\`.\n`]) {
    assert.deepEqual(commandFaults(piton, [page(wrap('piton sessions list --limit 3'))]), []);
    assert.equal(commandFaults(piton, [page(wrap('piton sessions fly'))]).length, 1);
    assert.equal(commandFaults(piton, [page(wrap('piton sessions list --zap'))]).length, 1);
  }
});

test('words that only we understand', () => {
  assert.deepEqual(wordFaults([page('The session continues.\n')]), []);
  for (const word of ['goes on', 'afresh', 'nobody', 'S2']) assert.equal(wordFaults([page(`It is ${word} here.\n`)]).length, 1, word);
});

test('paths of the tree that do not exist', () => {
  const good = 'See `crates/piton-core/src/lib.rs`, `id.rs`, `scripts/docs/` and `scripts/docs.mjs::x`, not `rewind.rs`.\n';
  assert.deepEqual(pathFaults([page(good.replace(', not `rewind.rs`', '')), page('`gone.rs` alone is an example.\n')]), []);
  assert.equal(pathFaults([page(good)]).length, 1);
  assert.equal(pathFaults([page('`crates/piton-core/src/gone.rs`, `crates/piton-core/src/lib.rs::x`\n')]).length, 1);
});

test('a recording that claims something else than the demo', () => {
  const snapshot = page('---\nsource: x\n---\nevery record is there (N of them)\nthe run continues\n');
  const recording = (...claims) => page(`<svg><desc id="text">1. A step\n${claims.map((claim) => `   ✓ ${claim}\n`).join('')}</desc></svg>`);
  assert.deepEqual(recordingFaults(recording('every record is there (36 of them)', 'the run continues'), snapshot), []);
  assert.equal(recordingFaults(recording('every record is there (36 of them)', 'the run goes on'), snapshot).length, 1);
  assert.equal(recordingFaults(recording('every record is there (36 of them)'), snapshot).length, 1);
  assert.equal(recordingFaults(recording('every record is there (36 of them)', 'the run continues', 'more'), snapshot).length, 1);
});

test('settings that the program does not accept', () => {
  assert.deepEqual(settingsFaults(piton, [page(block('toml', '[agents]\nidle_timeout = "2h"'))]), []);
  assert.equal(settingsFaults(piton, [page(block('toml', '[agents]\nidle = "2h"'))]).length, 1);
});

test('a default that is not the program\'s', () => {
  const settings = readFileSync('docs/settings.md', 'utf8');
  assert.deepEqual(defaultFaults(piton, page(settings)), []);
  const wrong = settings.replace('| `30m` |', '| `99m` |');
  assert.notEqual(wrong, settings);
  assert.match(defaultFaults(piton, page(wrong))[0], /agents\.idle_timeout is `30m`, not `99m`/);
});

test('an index that calls a code something else than its page', () => {
  writeFileSync(join(folder, 'lost.md'), '# lost: It is lost\n');
  assert.deepEqual(indexFaults(page('| [`lost`](lost.md) | It is lost |\n')), []);
  assert.equal(indexFaults(page('| [`lost`](lost.md) | It is gone |\n')).length, 1);
});

const DESCRIPTION = { paths: {
  '/api/v1/sessions/{session_id}/cancel': { post: { tags: ['sessions'], summary: 'Cancel.' } },
  '/health': { get: { tags: ['server'], summary: 'Answer.' } },
} };
const HANDLER = '#[utoipa::path(post, path = "/sessions/{session_id}/cancel", tag = "sessions",\n    responses((status = 200)))]\npub(crate) async fn cancel(\n    Controller(caller): Controller,\n) -> Result<()> {';
const TABLE = '\noperations! {\n    "ping" Read;\n    "task.session.cancel" Control "POST" "/sessions/{session_id}/cancel";\n}\n';

test('operations and methods that a page names or leaves out', () => {
  const has = { operations: operations(DESCRIPTION), methods: methods(TABLE) };
  const good = '`POST /sessions/ID/cancel`, `POST /cancel {run}`, `POST …/cancel`, `GET /health`, `ping`, `task.session.cancel`';
  assert.deepEqual(operationFaults('p', good, has), []);
  const faults = (from, to) => operationFaults('p', good.replace(from, to), has);
  assert.equal(faults('POST /sessions/ID/cancel', 'GET /sessions/ID/cancel').length, 1);
  assert.equal(faults('GET /health', 'GET /healthy').length, 1);
  assert.match(faults('`task.session.cancel`', '')[0], /`task\.session\.cancel` is missing/);
  assert.match(faults('`ping`', '`ping`, `task.session.fly`')[0], /`task\.session\.fly`: the server has no such method/);
});

test('the scope of an operation is its handler\'s, and one without a handler is refused', () => {
  assert.deepEqual([...scopes([HANDLER])], [['POST /sessions/{session_id}/cancel', 'control']]);
  const has = { operations: operations(DESCRIPTION), scopes: new Map(), methods: methods(TABLE) };
  assert.throws(() => operationsPage(has), /no handler says which scope POST/);
});

test('what steers a page: files, exit codes, transcripts', () => {
  const text = `<!-- file: a.yaml -->\n${block('yaml', 'x: 1')}<!-- exit: 5 -->\n${block('sh', 'false')}${block('text', '$ piton status')}`;
  assert.deepEqual(blocks(text).map(({ file, exit, text: body }) => [file, exit, body]), [['a.yaml', 0, 'x: 1'], [null, 5, 'false']]);
  assert.deepEqual(transcripts(text), ['piton status']);
});
