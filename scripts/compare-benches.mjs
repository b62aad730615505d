// Compares the benchmarks of two checkouts, an older and a newer one, in alternating rounds:
//   node scripts/compare-benches.mjs OLD NEW [--rounds 5] [PACKAGE:BENCH[:ARGUMENTS] ...]
// Prints a table with the median ratio of each figure that both print; above 1 the newer one is slower.
// Build both before (`cargo bench --no-run`), and leave the machine alone meanwhile.

import { spawnSync } from 'node:child_process';

const RATIO_MAX = 1.1;
const BENCHES = ['piton-testkit:log:--only a,b,c,e,f,g,j', 'piton-cli:server:--only lmnp', 'piton-cli:cli:'];
/** Seconds, bytes, or just a number. */
const UNITS = { 'µs': 1e-6, ms: 1e-3, s: 1, MiB: 1, '/s': 1, '': 1 };

const given = process.argv.slice(2);
const at = given.indexOf('--rounds');
const rounds = at < 0 ? 5 : Number(given.splice(at, 2)[1]);
const [old, newer, ...named] = given;
if (!newer || !(rounds > 0)) {
  console.error('usage: compare-benches.mjs OLD NEW [--rounds N] [PACKAGE:BENCH[:ARGUMENTS] ...]');
  process.exit(2);
}

/** What a bench prints: figures by their name, in one unit. */
function figures(checkout, bench) {
  const [crate, name, rest = ''] = bench.split(':');
  const args = ['bench', '-q', '-p', crate, '--bench', name, '--', ...rest.split(' ').filter(Boolean)];
  const { status, stdout, stderr } = spawnSync('cargo', args, { cwd: checkout, encoding: 'utf8', maxBuffer: 1 << 26 });
  if (status !== 0) throw new Error(`${checkout}: cargo ${args.join(' ')}: ${stderr.slice(-2000)}`);
  const found = new Map();
  for (const line of stdout.split('\n')) {
    const [, what, ours] = line.match(/^\| ([a-z]\. [^|]+) \| ([^|]+) \|/) ?? [];
    if (!what) continue;
    const [, number, unit] = ours.trim().match(/^([\d.]+) ?(\S*)$/) ?? [];
    if (number === undefined || UNITS[unit] === undefined) continue;
    const same = [...found.keys()].filter((known) => known.replace(/ \(\d+\)$/, '') === what).length;
    found.set(same ? `${what} (${same + 1})` : what, { value: Number(number) * UNITS[unit], shown: ours.trim(), isRate: unit === '/s' });
  }
  return found;
}

const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};

/** By figure: in each round what the older and the newer one took. */
const seen = new Map();
for (const bench of named.length > 0 ? named : BENCHES) {
  for (let round = 0; round < rounds; round += 1) {
    const sides = round % 2 === 0 ? [old, newer] : [newer, old];
    const made = new Map(sides.map((side) => [side, figures(side, bench)]));
    for (const [what, before] of made.get(old)) {
      const after = made.get(newer).get(what);
      if (!after) continue;
      if (!seen.has(what)) seen.set(what, []);
      seen.get(what).push([before, after]);
    }
    console.error(`${bench}: round ${round + 1} of ${rounds}`);
  }
}

console.log(`| Measurement | Older | Newer | Ratio | Lowest to highest | Target | |\n|---|---|---|---|---|---|---|`);
for (const [what, pairs] of seen) {
  const ratio = ([before, after]) => (before.isRate ? before.value / after.value : after.value / before.value);
  const ratios = pairs.map(ratio).filter(Number.isFinite);
  if (ratios.length === 0) continue;
  const middle = (side) => {
    const values = pairs.map((pair) => pair[side]);
    return values.toSorted((a, b) => a.value - b.value)[values.length >> 1].shown;
  };
  const [low, high] = [Math.min(...ratios), Math.max(...ratios)].map((value) => value.toFixed(2));
  const is = median(ratios) <= RATIO_MAX ? 'met' : 'MISSED';
  console.log(`| ${what} | ${middle(0)} | ${middle(1)} | ${median(ratios).toFixed(2)}× | ${low} to ${high} | ≤ ${RATIO_MAX.toFixed(2)} | ${is} |`);
}
