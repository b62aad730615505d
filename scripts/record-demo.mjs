#!/usr/bin/env node
// Plays `piton demo` and writes what it printed, when it printed it, as docs/demo.svg: a picture
// that plays once and then stands still. Needs nothing but node and the built binary.

import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const binary = process.argv[2] ?? `${root}/target/debug/piton`;
const out = process.argv[3] ?? `${root}/docs/demo.svg`;

const ROWS = 26;
const COLUMNS = 92;
const CELL = { width: 8.4, height: 19 };
const MARGIN = 18;

// Colours that can be read on the picture's own dark ground, by what the escape means.
const COLOURS = { 31: "#ff7b72", 32: "#7ee787", 33: "#e3b341", 36: "#79c0ff" };

/** What was printed, in pieces, each with its moment in seconds. */
function play() {
  return new Promise((resolve, reject) => {
    const begin = performance.now();
    const pieces = [];
    const demo = spawn(binary, ["demo", "--pace", "55", "--color", "always"], {
      env: { PATH: process.env.PATH, TMPDIR: process.env.TMPDIR ?? "/tmp", COLUMNS: String(COLUMNS) },
      stdio: ["ignore", "pipe", "inherit"],
    });
    demo.stdout.setEncoding("utf8");
    demo.stdout.on("data", (text) => pieces.push({ at: (performance.now() - begin) / 1000, text }));
    demo.on("error", reject);
    demo.on("close", (code) => {
      if (code === 0) resolve(pieces);
      else reject(new Error(`the demo ended with ${code}: nothing was recorded`));
    });
  });
}

/** Lines of runs of text that look alike and came together. */
function layOut(pieces) {
  const lines = [[]];
  let style = "";
  for (const { at, text } of pieces) {
    for (const part of text.split(/(\x1b\[[0-9;]*m|\n)/)) {
      const escape = /^\x1b\[([0-9;]*)m$/.exec(part);
      if (escape) style = escape[1] === "0" ? "" : [style, escape[1]].filter(Boolean).join(";");
      else if (part === "\n") lines.push([]);
      else if (part !== "") lines.at(-1).push({ at, text: part, style });
    }
  }
  if (lines.at(-1).length === 0) lines.pop();
  return lines;
}

const escaped = (text) =>
  text.replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);

/** The session's and processes' own names differ every time; a recording need not. */
const steady = (text) =>
  text.replace(/worker \d+/g, "worker 4711").replace(/(sess|rt)_[0-9a-f]+/g, (id) => id.slice(0, 14) + "…".repeat(id.length > 14));

function attributes(style) {
  const codes = style.split(";");
  const colour = codes.map((code) => COLOURS[code]).find(Boolean);
  return [
    codes.includes("1") ? 'font-weight="bold"' : "",
    codes.includes("2") ? 'fill="#8b949e"' : "",
    colour ? `fill="${colour}"` : "",
  ].join(" ").trim();
}

function draw(lines) {
  const width = Math.round(COLUMNS * CELL.width + 2 * MARGIN);
  const height = ROWS * CELL.height + 2 * MARGIN;
  const end = Math.max(...lines.flat().map((run) => run.at));
  const texts = lines.map((line, row) => {
    const y = (MARGIN + (row + 0.75) * CELL.height).toFixed(1);
    const runs = line.map(
      ({ at, text, style }) =>
        `<tspan class="t" style="animation-delay:${at.toFixed(2)}s" ${attributes(style)}>${escaped(steady(text))}</tspan>`,
    );
    return `<text x="${MARGIN}" y="${y}" xml:space="preserve">${runs.join("")}</text>`;
  });
  // The picture moves up as soon as a line below its edge begins.
  const stops = [];
  lines.forEach((line, row) => {
    if (row >= ROWS && line.length > 0) {
      stops.push({ at: line[0].at, by: (row - ROWS + 1) * CELL.height });
    }
  });
  const rest = stops.at(-1)?.by ?? 0;
  const frames = stops.map(({ at, by }) => `${((100 * at) / end).toFixed(2)}%{transform:translateY(-${by}px)}`);
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-labelledby="title text">
<title id="title">piton demo</title>
<desc id="text">${escaped(steady(lines.map((line) => line.map((run) => run.text).join("")).join("\n")))}</desc>
<style>
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#e6edf3}
.t{opacity:0;animation:t 1ms linear forwards}
@keyframes t{to{opacity:1}}
.s{animation:s ${end.toFixed(2)}s steps(1,jump-end) forwards}
@keyframes s{0%{transform:none}${frames.join("")}100%{transform:translateY(-${rest}px)}}
@media (prefers-reduced-motion:reduce){.t{animation:none;opacity:1}.s{animation:none;transform:translateY(-${rest}px)}}
</style>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
<svg y="${MARGIN / 2}" height="${height - MARGIN}" width="${width}"><g class="s">
${texts.join("\n")}
</g></svg>
</svg>
`;
}

writeFileSync(out, draw(layOut(await play())));
console.error(`written: ${out}`);
