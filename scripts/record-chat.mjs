#!/usr/bin/env node
// Plays the first minute with Piton in a real terminal (tmux) and writes what was on the screen, when it was
// there, as docs/first-minute.svg: a picture that plays once and then stands still. The agent is the
// scripted one of the browser tests; everything else is the built binary, its server and its processes.
// Needs node, git, jq, tmux and the built binary: node scripts/record-chat.mjs [BINARY [FILE]]

import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const binary = resolve(process.argv[2] ?? `${root}/target/debug/piton`);
const out = resolve(process.argv[3] ?? `${root}/docs/first-minute.svg`);

const [COLUMNS, ROWS] = [84, 28];
const CELL = { width: 8.4, height: 18 };
const MARGIN = 14;
const LOOK_MS = 60;
const PAUSE_S_MAX = 1.4;
const WAIT_MS_MAX = 30_000;

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** A home, a project and a terminal of their own. */
function makeStage() {
  const folder = mkdtempSync(join(tmpdir(), "piton-record-"));
  const [bin, home, project] = ["bin", "home", "home/api"].map((name) => join(folder, name));
  for (const each of [bin, join(home, ".config/piton"), join(project, "tests")]) mkdirSync(each, { recursive: true });
  symlinkSync(binary, join(bin, "piton"));
  const agent = `${root}/web/app/e2e/lib/demo-agent.mjs`;
  writeFileSync(join(home, ".config/piton/config.toml"), `[agents.demo]\ncommand = [${JSON.stringify(process.execPath)}, ${JSON.stringify(agent)}]\n`);
  chmodSync(join(home, ".config/piton/config.toml"), 0o600);
  writeFileSync(join(project, "tests/clock.rs"), "use chrono::Local;\n\n#[test]\nfn midnight() {\n    let today = Local::now().date_naive();\n    assert_eq!(clock::today(), today);\n}\n");
  const env = {
    PATH: `${bin}:${process.env.PATH}`, HOME: home, TMPDIR: folder, LANG: "C.UTF-8", TERM: "xterm-256color", PS1: "$ ",
    GIT_AUTHOR_NAME: "Ada", GIT_AUTHOR_EMAIL: "ada@example.org", GIT_COMMITTER_NAME: "Ada", GIT_COMMITTER_EMAIL: "ada@example.org",
  };
  const run = (program, ...args) => execFileSync(program, args, { cwd: project, env, stdio: ["ignore", "pipe", "ignore"] }).toString();
  run("git", "init", "-q", "-b", "fix-clock");
  run("git", "add", ".");
  run("git", "commit", "-q", "-m", "first");
  const tmux = (...args) => run("tmux", "-S", join(folder, "tmux"), "-f", "/dev/null", ...args);
  tmux("new-session", "-d", "-x", String(COLUMNS), "-y", String(ROWS), "bash", "--norc", "--noprofile");
  tmux("set-option", "-g", "status", "off");
  const end = () => {
    const pids = [];
    try {
      for (const line of run("piton", "sessions", "list", "--json").split("\n").filter(Boolean)) {
        run("piton", "sessions", "cancel", JSON.parse(line).session_id);
      }
    } catch (error) {
      pids.push(String(error));
    }
    for (const act of [() => run("piton", "sessions", "close", "@last"), () => run("piton", "stop"), () => tmux("kill-server")]) {
      try {
        act();
      } catch {
        // Nothing was left to end.
      }
    }
    rmSync(folder, { recursive: true, force: true });
  };
  return { tmux, run, end, home };
}

/** tmux sets a style once and lets it count for the lines that follow: here each line begins with its style. */
function whole(lines) {
  let style = "";
  return lines.map((line) => {
    const begin = style;
    for (const [, codes] of line.matchAll(/\x1b\[([0-9;]*)m/g)) style = /^0?$/.test(codes) ? "" : `${style}\x1b[${codes}m`;
    return begin + line;
  });
}

/** Looks at the screen until it is told to stop; keeps each screen that differs from the one before. */
function watch(tmux, home) {
  const frames = [];
  const begin = performance.now();
  let isOn = true;
  const done = (async () => {
    while (isOn) {
      const lines = whole(tmux("capture-pane", "-e", "-p").replaceAll(home, "~").replace(/\n$/, "").split("\n"));
      const at = (performance.now() - begin) / 1000;
      if (frames.length === 0 || frames.at(-1).lines.join("\n") !== lines.join("\n")) frames.push({ at, lines });
      await sleep(LOOK_MS);
    }
  })();
  return { frames, stop: () => ((isOn = false), done) };
}

async function play({ tmux, run, home }) {
  const type = async (text) => {
    for (const key of text) {
      tmux("send-keys", "-l", key);
      await sleep(28);
    }
    await sleep(250);
  };
  const enter = () => tmux("send-keys", "Enter");
  const see = async (pattern) => {
    const until = Date.now() + WAIT_MS_MAX;
    for (;;) {
      const screen = tmux("capture-pane", "-p");
      if (pattern.test(screen)) return;
      if (Date.now() > until) throw new Error(`the screen never showed ${pattern}:\n${screen}`);
      await sleep(100);
    }
  };
  await see(/^\$/m);
  const { frames, stop } = watch(tmux, home);
  await type("piton chat --agent demo");
  enter();
  await see(/alt-enter/);
  await sleep(600);
  await type("tests/clock.rs fails every night");
  enter();
  await see(/git push origin fix-clock[\s\S]*Allow/);
  await sleep(1200);
  // The terminal dies with the question on its screen, and the server after it.
  const client = run("pgrep", "-f", "piton chat --agent demo").trim().split("\n")[0];
  process.kill(Number(client), "SIGKILL");
  await see(/Killed/);
  await sleep(500);
  tmux("send-keys", "-l", "stty sane; clear");
  enter();
  await sleep(300);
  await type("kill -9 $(piton status --json | jq .pid)    # the server dies, too");
  enter();
  await sleep(800);
  await type("piton attach");
  enter();
  await see(/git push origin fix-clock[\s\S]*Allow/);
  await sleep(1500);
  tmux("send-keys", "1");
  await see(/Pushed\./);
  await sleep(1500);
  await stop();
  return frames;
}

/** Long waits are cut: a recording is for watching. */
function paced(frames) {
  let shift = 0;
  return frames.map((frame, i) => {
    if (i > 0) shift += Math.max(0, frame.at - frames[i - 1].at - PAUSE_S_MAX);
    return { ...frame, at: frame.at - shift };
  });
}

const BASIC = ["#484f58", "#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff", "#76e3ea", "#b1bac4"];
function colourOf(codes) {
  if (codes[0] === 2) return `rgb(${codes.slice(1, 4).join(",")})`;
  const n = codes[1] ?? 7;
  if (n < 16) return BASIC[n % 8];
  if (n > 231) return `rgb(${Array(3).fill(8 + (n - 232) * 10).join(",")})`;
  const level = (v) => (v === 0 ? 0 : 55 + v * 40);
  return `rgb(${[Math.floor((n - 16) / 36), Math.floor((n - 16) / 6) % 6, (n - 16) % 6].map(level).join(",")})`;
}

/** A line of the screen as runs of text that look alike. */
function runsOf(line) {
  const runs = [];
  let style = {}; // each line is whole: see `watch`
  for (const part of line.split(/(\x1b\[[0-9;]*m|\x1b\([A-Z]|[\x0e\x0f])/)) {
    const escape = /^\x1b\[([0-9;]*)m$/.exec(part);
    if (!escape) {
      if (part !== "" && !/^\x1b|^[\x0e\x0f]$/.test(part)) runs.push({ text: part, ...style });
      continue;
    }
    const codes = (escape[1] || "0").split(";").map(Number);
    for (let i = 0; i < codes.length; i += 1) {
      const code = codes[i];
      if (code === 0) style = {};
      else if (code === 1) style = { ...style, bold: true };
      else if (code === 2) style = { ...style, dim: true };
      else if (code === 3) style = { ...style, italic: true };
      else if (code === 22) style = { ...style, bold: false, dim: false };
      else if (code === 39) style = { ...style, fill: undefined };
      else if (code >= 30 && code <= 37) style = { ...style, fill: BASIC[code - 30] };
      else if (code >= 90 && code <= 97) style = { ...style, fill: BASIC[code - 90] };
      else if (code === 38) {
        const rest = codes.slice(i + 1);
        style = { ...style, fill: colourOf(rest) };
        i += rest[0] === 2 ? 4 : 2;
      } else if (code === 48) i += codes[i + 1] === 2 ? 4 : 2;
    }
  }
  return runs;
}

const escaped = (text) => text.replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);

function textOf(line, row) {
  let column = 0;
  const spans = runsOf(line).map(({ text, bold, dim, italic, fill }) => {
    const x = (MARGIN + column * CELL.width).toFixed(1);
    column += [...text].length;
    const look = [bold && 'font-weight="bold"', italic && 'font-style="italic"', (dim || fill) && `fill="${fill ?? "#8b949e"}"`, dim && fill && 'opacity=".7"'];
    return text.trim() === "" ? "" : `<tspan x="${x}" ${look.filter(Boolean).join(" ")}>${escaped(text)}</tspan>`;
  });
  return `y="${(MARGIN + (row + 0.75) * CELL.height).toFixed(1)}" xml:space="preserve">${spans.join("")}</text>`;
}

function draw(frames) {
  const width = Math.round(COLUMNS * CELL.width + 2 * MARGIN);
  const height = ROWS * CELL.height + 2 * MARGIN;
  const texts = [];
  // A line of the screen is one text for as long as it stays the same.
  for (let row = 0; row < ROWS; row += 1) {
    let from = 0;
    for (let i = 1; i <= frames.length; i += 1) {
      const line = frames[from].lines[row] ?? "";
      if (i < frames.length && (frames[i].lines[row] ?? "") === line) continue;
      const isLast = i === frames.length;
      if (line.trim() !== "") {
        const begin = `on 1ms ${frames[from].at.toFixed(2)}s forwards`;
        const animation = isLast ? begin : `${begin},off 1ms ${frames[i].at.toFixed(2)}s forwards`;
        texts.push(`<text class="${isLast ? "z" : "t"}" style="animation:${animation}" ${textOf(line, row)}`);
      }
      from = i;
    }
  }
  const last = frames.at(-1).lines.map((line) => runsOf(line).map((run) => run.text).join("").trimEnd()).join("\n");
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-labelledby="title text">
<title id="title">The first minute with Piton</title>
<desc id="text">${escaped(last)}</desc>
<style>
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#e6edf3;opacity:0}
@keyframes on{to{opacity:1}}
@keyframes off{to{opacity:0}}
@media (prefers-reduced-motion:reduce){.t{display:none}.z{animation:none!important;opacity:1}}
</style>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
${texts.join("\n")}
</svg>
`;
}

const stage = makeStage();
try {
  writeFileSync(out, draw(paced(await play(stage))));
  console.error(`written: ${out}`);
} finally {
  stage.end();
}
