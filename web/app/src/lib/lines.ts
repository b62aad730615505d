// Line diffs: between two texts (an agent's edit), and as `git diff` prints them.

export type Line = { kind: "same" | "add" | "del"; text: string; old: number | null; new: number | null };
export type Hunk = { header: string; lines: Line[] };
export type FileDiff = {
  path: string;
  oldPath: string | null;
  hunks: Hunk[];
  added: number;
  removed: number;
  /** What git says instead of lines: "Binary files differ", a changed mode. */
  note: string | null;
};

/** More lines than this on both sides are shown as one replacement: the table would be too large. */
const CELLS_MAX = 4_000_000;

type Step = { kind: Line["kind"]; text: string };

function middle(a: string[], b: string[]): Step[] {
  if (a.length * b.length > CELLS_MAX) {
    return [...a.map((text): Step => ({ kind: "del", text })), ...b.map((text): Step => ({ kind: "add", text }))];
  }
  // Longest common subsequence, from the end, so that the walk below goes forward.
  const width = b.length + 1;
  const table = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      const at = i * width + j;
      table[at] =
        a[i] === b[j] ? (table[at + width + 1] ?? 0) + 1 : Math.max(table[at + width] ?? 0, table[at + 1] ?? 0);
    }
  }
  const steps: Step[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    const [left, right] = [a[i], b[j]];
    if (left !== undefined && left === right) {
      steps.push({ kind: "same", text: left });
      i += 1;
      j += 1;
    } else if (
      left !== undefined &&
      (right === undefined || (table[(i + 1) * width + j] ?? 0) >= (table[i * width + j + 1] ?? 0))
    ) {
      steps.push({ kind: "del", text: left });
      i += 1;
    } else if (right !== undefined) {
      steps.push({ kind: "add", text: right });
      j += 1;
    }
  }
  return steps;
}

function split(text: string): string[] {
  if (text === "") return [];
  const lines = text.split("\n");
  if (lines[lines.length - 1] === "") lines.pop();
  return lines;
}

/** What changes between two texts, with a few lines around each change. */
export function diffTexts(path: string, before: string | null, after: string, context = 3): FileDiff {
  const a = split(before ?? "");
  const b = split(after);
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const same = (text: string): Step => ({ kind: "same", text });
  const steps = [
    ...a.slice(0, head).map(same),
    ...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)),
    ...a.slice(a.length - tail).map(same),
  ];
  let [oldLine, newLine] = [1, 1];
  const lines = steps.map(({ kind, text }): Line => {
    const line: Line = { kind, text, old: kind === "add" ? null : oldLine, new: kind === "del" ? null : newLine };
    if (kind !== "add") oldLine += 1;
    if (kind !== "del") newLine += 1;
    return line;
  });
  const near = new Uint8Array(lines.length);
  lines.forEach((line, at) => {
    if (line.kind === "same") return;
    near.fill(1, Math.max(0, at - context), Math.min(lines.length, at + context + 1));
  });
  const hunks: Hunk[] = [];
  let open: Hunk | null = null;
  lines.forEach((line, at) => {
    if (!near[at]) {
      open = null;
      return;
    }
    if (!open) {
      open = { header: `@@ line ${line.new ?? line.old ?? 1} @@`, lines: [] };
      hunks.push(open);
    }
    open.lines.push(line);
  });
  const countOf = (kind: Line["kind"]) => lines.filter((line) => line.kind === kind).length;
  return { path, oldPath: before === null ? null : path, hunks, added: countOf("add"), removed: countOf("del"), note: null };
}

const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/;

function unquote(name: string): string {
  const trimmed = name.replace(/\t.*$/, "");
  const inner = /^"(.*)"$/.exec(trimmed)?.[1];
  if (inner === undefined) return trimmed;
  const unescaped: number[] = [];
  for (let i = 0; i < inner.length; i += 1) {
    const octal = /^\\([0-7]{3})/.exec(inner.slice(i))?.[1];
    if (octal) {
      unescaped.push(Number.parseInt(octal, 8));
      i += 3;
    } else if (inner[i] === "\\") {
      i += 1;
      unescaped.push(...new TextEncoder().encode(inner[i] ?? ""));
    } else {
      unescaped.push(...new TextEncoder().encode(inner[i] ?? ""));
    }
  }
  return new TextDecoder().decode(new Uint8Array(unescaped));
}

/** Without git's `a/` and `b/`; `/dev/null` is no path. */
function named(line: string): string | null {
  const name = unquote(line);
  return name === "/dev/null" ? null : name.replace(/^[ab]\//, "");
}

/** What `git diff` prints. A diff that was cut off is read as far as it goes. */
export function parseGitDiff(diff: string): FileDiff[] {
  const files: FileDiff[] = [];
  let file: FileDiff | null = null;
  let hunk: Hunk | null = null;
  let [oldLine, newLine] = [0, 0];
  for (const line of diff.split("\n")) {
    if (line.startsWith("diff --git ")) {
      const path = /^diff --git (?:"?a\/.*?"?) "?b\/(.*?)"?$/.exec(line)?.[1] ?? line.slice(11);
      file = { path, oldPath: path, hunks: [], added: 0, removed: 0, note: null };
      hunk = null;
      files.push(file);
      continue;
    }
    if (!file) continue;
    const at = HUNK.exec(line);
    if (at) {
      [oldLine, newLine] = [Number(at[1]), Number(at[2])];
      hunk = { header: line, lines: [] };
      file.hunks.push(hunk);
    } else if (hunk && line.startsWith("+")) {
      hunk.lines.push({ kind: "add", text: line.slice(1), old: null, new: newLine++ });
      file.added += 1;
    } else if (hunk && line.startsWith("-")) {
      hunk.lines.push({ kind: "del", text: line.slice(1), old: oldLine++, new: null });
      file.removed += 1;
    } else if (hunk && line.startsWith(" ")) {
      hunk.lines.push({ kind: "same", text: line.slice(1), old: oldLine++, new: newLine++ });
    } else if (!hunk) {
      readHeader(file, line);
    }
  }
  return files;
}

function readHeader(file: FileDiff, line: string): void {
  if (line.startsWith("--- ")) file.oldPath = named(line.slice(4));
  else if (line.startsWith("+++ ")) file.path = named(line.slice(4)) ?? file.oldPath ?? file.path;
  else if (line.startsWith("rename to ")) file.path = unquote(line.slice(10));
  else if (line.startsWith("rename from ")) file.oldPath = unquote(line.slice(12));
  else if (line.startsWith("Binary files")) file.note = "Binary file";
  else if (line.startsWith("new file mode")) file.oldPath = null;
  else if (line.startsWith("old mode")) file.note = `Mode was ${line.slice(9)}`;
}
