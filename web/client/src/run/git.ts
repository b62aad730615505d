/** The truth of a workspace that is a git repository, through any function that runs a shell command there. */
import { cutChanged, type Truth } from "./summary.js";
import { RunError } from "./types.js";

export interface ExecResult {
  stdout: string;
  exitCode: number;
}

/** Runs a shell command in the sandbox. Throws when the sandbox cannot be reached. */
export type Exec = (command: string, signal?: AbortSignal) => Promise<ExecResult | string>;

const MARK = "--piton-truth--";

/** One round trip; it succeeds also where there is no commit yet. */
const TRUTH_COMMAND = [
  "git -c core.quotePath=false --no-optional-locks status --porcelain --untracked-files=all",
  `echo ${MARK}`,
  "{ git rev-parse --verify --quiet HEAD || true; }",
  `echo ${MARK}`,
  "{ git symbolic-ref --short --quiet HEAD || true; }",
  `echo ${MARK}`,
  "{ git --no-optional-locks diff --shortstat HEAD 2>/dev/null || true; }",
].join(" && ");

export function gitTruth(exec: Exec): (signal?: AbortSignal) => Promise<Truth> {
  return async (signal) => {
    const result = await exec(TRUTH_COMMAND, signal);
    const { stdout, exitCode } = typeof result === "string" ? { stdout: result, exitCode: 0 } : result;
    const [status, head, branch, stat] = stdout.split(`${MARK}\n`);
    if (exitCode !== 0 || status === undefined || head === undefined || branch === undefined || stat === undefined) {
      throw new RunError("truth_unavailable", `git did not answer in the sandbox (exit code ${exitCode})`);
    }
    const lines = status.split("\n").filter((line) => line.length > 3);
    const changed = lines.map((line): [string, string] => [line.slice(0, 2), line.slice(3)]);
    return { branch: branch.trim() || null, head: head.trim() || null, ...cutChanged(changed), stat: shortStat(stat) };
  };
}

function shortStat(text: string): NonNullable<Truth["stat"]> {
  const count = (what: RegExp) => Number(what.exec(text)?.[1] ?? 0);
  return { files: count(/(\d+) files? changed/), added: count(/(\d+) insertion/), removed: count(/(\d+) deletion/) };
}
