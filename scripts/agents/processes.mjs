// Which processes are whose, by /proc. A process is known by a variable in the environment that it
// was started with, never by its name: other people's agents have the same names.

import { readdirSync, readFileSync } from "node:fs";

const pids = () => readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map(Number);

function read(pid, file) {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "latin1");
  } catch {
    // It has ended meanwhile, or belongs to another user.
    return "";
  }
}

/** Its state and its parent; the name before them may hold anything, blanks and brackets too. */
function stat(pid) {
  const text = read(pid, "stat");
  const [state, parent] = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return { state, parent: Number(parent) };
}

const lives = (pid) => !["", "Z", "X"].includes(stat(pid).state ?? "");

/** Those that live and were started with all of these variables. */
export function having(variables) {
  const wanted = Object.entries(variables).map(([name, value]) => `${name}=${value}`);
  return pids().filter((pid) => {
    const has = read(pid, "environ").split("\0");
    return wanted.every((variable) => has.includes(variable)) && lives(pid);
  });
}

/** Those among these that are no child of another one among these. */
export function roots(family) {
  return family.filter((pid) => !family.includes(stat(pid).parent));
}

/** A process and all below it. Descendants that changed their environment are found, too. */
export function withDescendants(pid) {
  const all = pids().map((each) => ({ pid: each, parent: stat(each).parent }));
  const children = (parent) => all.filter((each) => each.parent === parent);
  const below = (parent) => children(parent).flatMap((each) => [each.pid, ...below(each.pid)]);
  return [pid, ...below(pid)];
}

/** A process as it is now: a number that was given to another one is another process. */
export function known(pid) {
  return { pid, began: began(pid), command: read(pid, "cmdline").replaceAll("\0", " ").trim() };
}

function began(pid) {
  const text = read(pid, "stat");
  return text.slice(text.lastIndexOf(")") + 2).split(" ")[19];
}

export const isSame = ({ pid, began: before }) => lives(pid) && began(pid) === before;

export function kill(pid, signal = "SIGKILL") {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if (error.code !== "ESRCH") throw error;
  }
}
