// Links and commands of the pages, without running anything but `--help`.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { blocks, transcripts } from './blocks.mjs';
import { help, subcommands } from './generate.mjs';

/** Pages whose commands people type. */
export function pages(markdown) {
  return markdown.filter((path) => path === 'README.md' || (/^docs\//.test(path) && path !== 'docs/reference/cli.md'));
}

const withoutBlocks = (text) => text.replace(/^\s*```[\s\S]*?^\s*```$/gm, '');

/** How GitHub names the anchor of a heading. */
function anchor(heading) {
  const plain = heading.replace(/`/g, '').replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase();
  return plain.replace(/[^\p{L}\p{N} _-]/gu, '').trim().replace(/ /g, '-');
}

export function linkFaults(markdown) {
  const faults = [];
  const anchors = new Map();
  const of = (path) => {
    if (!anchors.has(path)) {
      const headings = withoutBlocks(readFileSync(path, 'utf8')).matchAll(/^#+ (.*)$/gm);
      anchors.set(path, new Set([...headings].map((match) => anchor(match[1]))));
    }
    return anchors.get(path);
  };
  for (const path of markdown) {
    const text = withoutBlocks(readFileSync(path, 'utf8'));
    for (const [link, to, hash] of text.matchAll(/\]\(([^)#:\s]*)(#[^)\s]*)?\)/g)) {
      const target = to ? join(dirname(path), to) : path;
      if (!existsSync(target)) faults.push(`${path}: ${link} leads nowhere`);
      else if (hash && target.endsWith('.md') && !of(target).has(hash.slice(1))) faults.push(`${path}: ${link} names no heading`);
    }
  }
  return faults;
}

/**
 * Paths of the tree in `code` that do not exist. `PATH::test` names its file; a file's name alone stands for
 * one beside the path before it in the line.
 */
export function pathFaults(paths) {
  const faults = [];
  for (const page of paths) {
    withoutBlocks(readFileSync(page, 'utf8')).split('\n').forEach((line) => {
      let folder;
      for (const [, code] of line.matchAll(/`([^`]+)`/g)) {
        const path = code.split('::')[0];
        const isWhole = /^(crates|docs|examples|scripts|web|\.ci)\/[\w./-]+$/.test(path) && !path.startsWith('web/dist');
        if (isWhole) folder = path.endsWith('/') ? path : dirname(path);
        const isBeside = folder !== undefined && /^[\w/-]+\.(rs|ts|tsx|mjs)$/.test(path);
        if ((isWhole && !existsSync(path)) || (isBeside && !isWhole && !existsSync(join(folder, path)))) faults.push(`${page}: \`${code}\` does not exist`);
      }
    });
  }
  return faults;
}

/** What a recording of the demo claims, if the demo that is tested claims something else. */
export function recordingFaults(recording, snapshot) {
  const claims = readFileSync(snapshot, 'utf8').split(/^---$/m)[2].trim().split('\n');
  const text = /<desc[^>]*>([\s\S]*?)<\/desc>/.exec(readFileSync(recording, 'utf8'))?.[1] ?? '';
  const shown = [...text.matchAll(/✓ (.*)/g)].map(([, claim]) => claim.replace(/\d+/g, 'N').trim());
  const at = claims.findIndex((claim, i) => claim !== shown[i]);
  if (at < 0 && shown.length === claims.length) return [];
  return [`${recording} is stale: it shows "${shown[at] ?? shown.at(-1)}" where the demo claims "${claims[at] ?? 'nothing'}"; run \`make demo-svg\``];
}

/** Words that only we understand; each has a plain one. */
const PRIVATE = /\b(is told|are told|was told|owed|owing|afresh|anew|somebody|nobody|whoever|go(es|ne)? on with|goes on|in vain|at hand|asker|S[0-4]('s)?)\b/i;

/**
 * Lines that use a private word: of pages, also of the generated ones, whose words are those of the help
 * and of the API's description; of that description itself; and of the snapshots of what is printed.
 */
export function wordFaults(paths) {
  const faults = [];
  for (const path of paths) {
    const text = readFileSync(path, 'utf8');
    text.split('\n').forEach((line, i) => {
      const found = line.match(PRIVATE);
      if (found) faults.push(`${path}:${i + 1}: "${found[0]}": say it in plain words`);
    });
  }
  return faults;
}

/** Commands of piton in shell blocks, transcripts and `code`, as lists of words. */
function commands(text) {
  const found = transcripts(text).filter((line) => line.startsWith('piton ')).flatMap(inLine);
  for (const block of blocks(text).filter(({ file }) => file === null)) {
    const whole = block.text.replace(/\\\n\s*/g, ' ');
    for (const line of whole.split('\n')) found.push(...inLine(line));
  }
  for (const [, code] of withoutBlocks(text).matchAll(/`(piton [^`]*)`/g)) found.push(...inLine(code));
  return found;
}

function inLine(line) {
  const plain = line.replace(/(^|\s)#\s.*$/, '').replace(/'[^']*'|"[^"]*"/g, 'TEXT');
  return [...plain.matchAll(/(?:^|[\s(|;&])piton((?: [^|;&)<>]+)?)/g)].map((match) => match[1].trim().split(/\s+/).filter(Boolean));
}

/** Commands and options that the program does not have. */
export function commandFaults(piton, paths) {
  const known = new Map();
  const of = (path) => {
    const key = path.join(' ');
    if (!known.has(key)) {
      const text = help(piton, path);
      known.set(key, { subcommands: subcommands(text), options: new Set(text.match(/--?[a-zA-Z][a-z-]*/g) ?? []) });
    }
    return known.get(key);
  };
  const faults = [];
  const check = (page, words) => {
    const path = [];
    let isValue = false;
    for (const word of words) {
      const at = of(path);
      if (isValue) {
        isValue = false;
        continue;
      }
      isValue = ['--data', '--config', '--color'].includes(word);
      if (word.startsWith('--') || /^-[a-zA-Z]$/.test(word)) {
        const option = word.split('=')[0];
        if (option !== '--' && !at.options.has(option)) faults.push(`${page}: \`piton ${words.join(' ')}\`: no option ${option}`);
      } else if (at.subcommands.length > 0 && /^[a-z][a-z-]*$/.test(word)) {
        // `piton agent echo` is hidden: the agent starts it, people do not.
        if (!at.subcommands.includes(word) && !['agent', 'help'].includes(word)) {
          faults.push(`${page}: \`piton ${words.join(' ')}\`: no command ${word}`);
          return;
        }
        if (word === 'agent' || word === 'help') return;
        path.push(word);
      }
    }
  };
  for (const page of paths) {
    for (const words of commands(readFileSync(page, 'utf8'))) {
      // `piton tokens new|list` names several.
      const at = words.findIndex((word) => /^[a-z-]+(\\?\|[a-z-]+)+$/.test(word));
      if (at < 0) check(page, words);
      else for (const one of words[at].split(/\\?\|/)) check(page, [...words.slice(0, at), one, ...words.slice(at + 1)]);
    }
  }
  return [...new Set(faults)];
}

/** Settings in pages that the program does not accept. */
export function settingsFaults(piton, paths) {
  const faults = [];
  const folder = mkdtempSync(join(tmpdir(), 'piton-docs-'));
  const file = join(folder, 'config.toml');
  try {
    for (const page of paths) {
      for (const [, toml] of readFileSync(page, 'utf8').matchAll(/^```toml\n([\s\S]*?)^```$/gm)) {
        writeFileSync(file, toml);
        const env = { PATH: process.env.PATH, HOME: folder, NO_COLOR: '1' };
        const shown = spawnSync(piton, ['--config', file, 'config', 'show'], { env });
        if (shown.status !== 0) faults.push(`${page}: ${shown.stderr.toString().split('\n')[0]}`);
      }
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
  return faults;
}

/** What `config show` says, as the page of settings writes it; undefined where the page says it in words. */
function shownDefault({ key, value }, home) {
  if (key === 'chat.agent' || key === 'mask.keys') return undefined;
  if (key === 'notify.events') return value.map((one) => `\`${one}\``).join(', ');
  const isNone = value === null || (Array.isArray(value) && value.length === 0) || value.hidden === 0;
  return isNone ? 'none' : `\`${String(value).replace(home, '~')}\``;
}

/** Defaults in the table of settings that are not the program's. */
export function defaultFaults(piton, page) {
  const home = mkdtempSync(join(tmpdir(), 'piton-docs-'));
  try {
    const env = { PATH: process.env.PATH, HOME: home, NO_COLOR: '1' };
    const shown = JSON.parse(spawnSync(piton, ['config', 'show', '--json'], { env }).stdout.toString());
    const written = new Map([...readFileSync(page, 'utf8').matchAll(/^\| `([a-z._]+)` \| `PITON_[A-Z_]+` \| (.*?) \|/gm)].map((match) => [match[1], match[2]]));
    const rows = shown.settings.filter(({ key }) => written.has(key));
    const faults = rows.length < 40 ? [`${page}: only ${rows.length} settings found`] : [];
    for (const row of rows) {
      const is = shownDefault(row, home);
      if (is !== undefined && is !== written.get(row.key)) faults.push(`${page}: the default of ${row.key} is ${is}, not ${written.get(row.key)}`);
    }
    return faults;
  } finally {
    rmSync(home, { recursive: true });
  }
}

/** Rows of the index of error codes that do not say what the code's page says. */
export function indexFaults(index) {
  const rows = readFileSync(index, 'utf8').matchAll(/^\| \[`(\w+)`\]\((\w+\.md)\) \| (.*) \|$/gm);
  return [...rows].flatMap(([, code, file, title]) => {
    const [heading] = readFileSync(join(dirname(index), file), 'utf8').split('\n');
    return heading === `# ${code}: ${title}` ? [] : [`${index}: ${code} is "${title}" here, and its page begins with "${heading}"`];
  });
}
