/**
 * The interruption summary: what a model is given, once, when its run is resumed. The text is the one
 * that Piton's server gives to agents; both are held to the same vectors
 * (crates/piton-core/tests/fixtures/interruption-summary.json).
 */
import type { LoopPhase, ToolCall } from "./types.js";

/** What the workspace says of itself. */
export interface Truth {
  branch: string | null;
  head: string | null;
  /** Git's two letters, and the path. */
  changed: Array<[status: string, path: string]>;
  /** Changed files that are not among them. */
  more: number;
  stat: { files: number; added: number; removed: number } | null;
}

export interface InterruptionFindings {
  phase: LoopPhase;
  round: number;
  /** The answer that was cut off. */
  answer: string;
  /** Of the answer, its last characters; all of it by default. */
  answerCharsMax?: number;
  /** Tool calls without a result. */
  calls: ToolCall[];
  coderState: string | null;
  truth: Truth | null;
  /** Why there is no truth. */
  truthError?: string | null;
}

/** Changed files that are named. */
export const CHANGED_FILES_MAX = 50;
/** Characters of a command, a path or another argument. */
const VALUE_CHARS_MAX = 400;
const ARGUMENTS_MAX = 6;
const COMMANDS = ["command", "cmd", "script", "code"];
const PATHS = ["file_path", "filePath", "absolute_path", "path", "notebook_path", "filepath", "filename"];
/** Fields of a call that say nothing about what it does. */
const SILENT = ["toolCallId", "sessionUpdate", "status", "content", "title", "kind", "locations", "_meta"];
/** Lines that begin with these would look like parts of the text. */
const MARKERS = ["===", "[USER]:", "[ASSISTANT]:", "[TOOL "];

const INTERRUPTIONS: Record<LoopPhase, string> = {
  streaming_llm: "connection dropped while you were generating a response",
  executing_tools: "connection dropped while executing tool calls",
  delegating_coder: "connection dropped during Coder delegation",
};

/** The summary, and behind it what is asked of the model now. */
export function interruptionSummary(findings: InterruptionFindings, request: string): string {
  const lines = ["[SESSION_RESUMED]"];
  if (findings.truth) workspace(lines, findings.truth);
  else if (findings.truthError) {
    lines.push(`Workspace state at recovery: unknown (${oneLine(findings.truthError)}).`);
    lines.push("Look at the workspace before you change anything.");
  }
  lines.push(`Interruption: ${INTERRUPTIONS[findings.phase]} (round ${findings.round}).`);
  if (findings.answer) {
    lines.push("The end of your partial answer, which may be incomplete:");
    quote(lines, endOf(findings.answer, findings.answerCharsMax));
  }
  if (findings.calls.length > 0) {
    lines.push(
      "The outcome of these tool calls is unknown. Each may have happened, wholly or in part. " +
        "Check the workspace against what they were to do: if the changes are there, continue " +
        "with the next step; if not, make the calls again:",
    );
    for (const call of findings.calls) lines.push(`- ${callLine(call)}`);
  }
  template(lines, findings);
  lines.push("Do not repeat work that is already reflected in the workspace.");
  lines.push("[END_OF_SESSION_RESUMED]");
  return `${lines.join("\n")}\n\n${request}`;
}

/** What the phase asks of the model. */
function template(lines: string[], findings: InterruptionFindings): void {
  switch (findings.phase) {
    case "streaming_llm":
      lines.push(
        findings.truth
          ? "Resume your response. The workspace state above reflects the current truth."
          : "Resume your response.",
      );
      break;
    case "executing_tools":
      if (findings.calls.length === 0) {
        lines.push(
          "The tool batch may or may not have completed. Check the workspace against what the tools " +
            "were supposed to do. If the expected changes are present, proceed to the next step. If " +
            "not, re-attempt the tool calls.",
        );
      }
      break;
    case "delegating_coder":
      if (findings.coderState) {
        lines.push("Last known Coder state:");
        quote(lines, findings.coderState);
      } else lines.push("Last known Coder state: none was reported.");
      lines.push(
        "The Coder's work may be partially complete. Check the workspace. Decide whether to " +
          "re-delegate the remaining work or proceed based on what's done.",
      );
  }
}

function workspace(lines: string[], truth: Truth): void {
  lines.push("Workspace state at recovery:");
  lines.push(`- HEAD: ${truth.head ?? "no commit yet"} (${truth.branch ?? "no branch"})`);
  if (truth.stat) {
    const { files, added, removed } = truth.stat;
    lines.push(`- Diff summary: ${files} files, ${added} lines added, ${removed} removed`);
  }
  if (truth.changed.length === 0) {
    lines.push("- Changed files: none");
    return;
  }
  lines.push("- Changed files:");
  for (const [status, path] of truth.changed) lines.push(`${status} ${path.replace(/[\n\r]/g, " ")}`);
  if (truth.more > 0) lines.push(`(and ${truth.more} more files)`);
}

/** As many of the changed files as are named, and how many are not. */
export function cutChanged(changed: Truth["changed"], moreUnlisted = 0): Pick<Truth, "changed" | "more"> {
  const more = Math.max(0, changed.length - CHANGED_FILES_MAX) + moreUnlisted;
  return { changed: changed.slice(0, CHANGED_FILES_MAX), more };
}

/** A tool call as one line: its name, the command, the paths, the other arguments. */
export function callLine(call: ToolCall): string {
  const parts = [oneLine(call.name)];
  const given = call.arguments;
  if (typeof given === "string") parts.push(`\`${cut(oneLine(given))}\``);
  else if (Array.isArray(given) || typeof given === "number" || typeof given === "boolean") {
    parts.push(`\`${cut(JSON.stringify(given))}\``);
  } else if (given && typeof given === "object") {
    const named = given as Record<string, unknown>;
    const command = COMMANDS.map((key) => commandOf(named[key])).find((found) => found !== undefined);
    if (command !== undefined) parts.push(`\`${cut(oneLine(command))}\``);
    const paths = PATHS.map((key) => named[key]).filter((path): path is string => typeof path === "string");
    const known = [...new Set(paths)];
    if (known.length > 0) parts.push(`on ${known.map((path) => cut(oneLine(path))).join(", ")}`);
    const isKnown = (key: string) =>
      PATHS.includes(key) || SILENT.includes(key) || (command !== undefined && COMMANDS.includes(key));
    const rest = Object.keys(named).filter((key) => !isKnown(key) && named[key] !== undefined).sort();
    const shown = rest
      .slice(0, ARGUMENTS_MAX)
      .map((key) => `${oneLine(key)} = ${cut(JSON.stringify(named[key]))}`);
    if (rest.length > ARGUMENTS_MAX) shown.push(`${rest.length - ARGUMENTS_MAX} more arguments`);
    if (shown.length > 0) parts.push(`with ${shown.join(", ")}`);
  }
  return parts.join(" ");
}

/** A command, also one that is a list of words. */
function commandOf(value: unknown): string | undefined {
  if (typeof value === "string" && value) return value;
  if (!Array.isArray(value)) return undefined;
  const words = value.filter((word) => typeof word === "string");
  return words.length > 0 ? words.join(" ") : undefined;
}

function quote(lines: string[], text: string): void {
  text.split("\n").forEach((line, at) => {
    const looksLikeAPart = at > 0 && MARKERS.some((marker) => line.trimStart().startsWith(marker));
    lines.push(looksLikeAPart ? `> > ${line}` : `> ${line}`);
  });
}

function oneLine(text: string): string {
  return text.replace(/\r\n|\n|\r/g, " ");
}

function cut(text: string): string {
  if (text.length <= VALUE_CHARS_MAX) return text;
  const characters = [...text];
  return characters.length > VALUE_CHARS_MAX ? `${characters.slice(0, VALUE_CHARS_MAX).join("")} [cut]` : text;
}

/** The end of a text, and that there was more before it. */
function endOf(text: string, charsMax = Infinity): string {
  if (text.length <= charsMax) return text;
  const characters = [...text];
  return characters.length > charsMax ? `[…] ${characters.slice(characters.length - charsMax).join("")}` : text;
}
