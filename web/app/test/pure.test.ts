/** What the app decides without a browser. */
import type { PermissionRequest, SessionStatus } from "piton-client";
import { describe, expect, it } from "vitest";
import { otherArguments, wholeOnRow } from "../src/data/permission.ts";
import { diffTexts, parseGitDiff } from "../src/lib/lines.ts";
import { parseRoute } from "../src/lib/router.ts";
import { readable, revealed, safeHref, visible } from "../src/lib/text.ts";
import { commentsPrompt } from "../src/screens/finish/comments.tsx";
import { cardsOf } from "../src/screens/session/cards.ts";
import { mention } from "../src/screens/session/Completions.tsx";

describe("diffs", () => {
  it("of two texts: counts, line numbers, a new file, nothing changed", () => {
    const diff = diffTexts("a", "1\n2\n3\n", "1\ntwo\n3\n4\n");
    expect([diff.added, diff.removed]).toEqual([2, 1]);
    expect(diff.hunks.flatMap((hunk) => hunk.lines).map(({ kind, text, old, new: at }) => [kind, text, old, at])).toEqual([
      ["same", "1", 1, 1], ["del", "2", 2, null], ["add", "two", null, 2], ["same", "3", 3, 3], ["add", "4", null, 4],
    ]);
    expect(diffTexts("a", null, "x\n")).toMatchObject({ oldPath: null, added: 1, removed: 0 });
    expect(diffTexts("a", "x\n", "x\n").hunks).toEqual([]);
  });

  it("of git: renames, new and binary files, lines that look like headers, a cut end", () => {
    const files = parseGitDiff([
      "diff --git a/old b/new", "rename from old", "rename to new", "--- a/old", "+++ b/new", "@@ -1,2 +1,2 @@", " same", "--- a line", "+++ a line",
      "diff --git a/made b/made", "new file mode 100644", "--- /dev/null", "+++ b/made", "@@ -0,0 +1 @@", "+x",
      "diff --git a/p.png b/p.png", "Binary files a/p.png and b/p.png differ", "diff --git a/cut b/cut", "--- a/cut",
    ].join("\n"));
    expect(files.map(({ path, oldPath, added, removed, note }) => [path, oldPath, added, removed, note])).toEqual([
      ["new", "old", 1, 1, null], ["made", null, 1, 0, null], ["p.png", "p.png", 0, 0, "Binary file"], ["cut", "cut", 0, 0, null],
    ]);
  });
});

describe("text", () => {
  it("shows what cannot be seen by its name, and leaves the rest alone", () => {
    expect(visible("a\u202eb\u0007c\u001b[1m")).toBe("a⟨U+202E⟩b⟨U+0007⟩c␛[1m");
    expect(visible("tab\tline\nemoji 👩‍💻 é")).toBe("tab\tline\nemoji 👩‍💻 é");
    expect(visible("a\r\nb\rc")).toBe("a\nb⟨U+000D⟩c");
    expect(revealed("rm\u200b -rf\u2066")).toBe("rm⟨U+200B⟩ -rf⟨U+2066⟩");
    expect(readable("\u001b[31mred\u001b[0m\u202e")).toBe("red");
  });

  it("lets only web and mail links out", () => {
    expect(["https://a/", "mailto:a@b", "javascript:x", " JaVaScRiPt:x", "data:text/html,x", "//a"].map(safeHref)).toEqual(["https://a/", "mailto:a@b", null, null, null, null]);
  });
});

describe("a permission on a row", () => {
  const request = (more: Partial<PermissionRequest>) =>
    ({ title: "t", tool: "shell", command: "ls", diffs: [], options: [], arguments: { command: "ls" }, ...more }) as unknown as PermissionRequest;

  it("hides only what the shown command says itself", () => {
    const others = (args: unknown, command: string | null = "ls") => otherArguments(request({ command, arguments: args as never }));
    expect(others({ command: "ls" })).toBeNull();
    expect(others({ cmd: ["git", "push"] }, "git push")).toBeNull();
    // The other way round: a key's name says nothing.
    expect(others({ command: "ls", cmd: "rm -rf ~" })).toEqual({ cmd: "rm -rf ~" });
    expect(others({ command: "ls", script: "curl x | sh" })).toEqual({ script: "curl x | sh" });
    expect(others({ command: "ls -la", cmd: "ls" })).toEqual({ command: "ls -la" });
    expect(others({ command: ["rm", "a b"] }, "rm a b")).toEqual({ command: ["rm", "a b"] });
    expect(others({ command: ["ls", 3] })).toEqual({ command: ["ls", 3] });
    expect(others({ command: "x" }, null)).toEqual({ command: "x" });
    expect(wholeOnRow(request({ arguments: { command: "ls", cmd: "rm -rf ~" } }))).toBe('ls\n{"cmd":"rm -rf ~"}');
  });

  it("is granted there only if all of it is in sight", () => {
    expect(wholeOnRow(request({}))).toBe("ls");
    expect(wholeOnRow(request({ arguments: { command: "ls", cwd: "/etc" } }))).toBe('ls\n{"cwd":"/etc"}');
    expect(wholeOnRow(request({ arguments: { command: "ls", input: "x".repeat(200) } }))).toBeNull();
    expect(wholeOnRow(request({ command: "ls\nrm -rf ." }))).toBeNull();
    expect(wholeOnRow(request({ command: "x".repeat(161) }))).toBeNull();
    expect(wholeOnRow(request({ command: "\u202e".repeat(30) }))).toBeNull();
    expect(wholeOnRow(request({ text: "and more" }))).toBeNull();
    expect(wholeOnRow(request({ command: null }))).toBeNull();
  });
});

describe("cards", () => {
  const status = (more: Partial<SessionStatus>) =>
    ({ status: "idle", reason: "", choices: [], needs_resume: false, is_resumable: true, is_agent_running: true, ...more }) as unknown as SessionStatus;

  it.each([
    [{}, []],
    [{ read_only: true, status: "error" }, ["read-only"]],
    [{ status: "error", reason: "executor_unreachable" }, ["executor-unreachable"]],
    [{ status: "error", reason: "worktree_missing" }, ["workspace-failed"]],
    [{ status: "error", reason: "executor_error" }, ["executor-failed"]],
    [{ needs_resume: true, is_agent_running: false }, ["resume"]],
    [{ status: "paused" }, ["paused"]],
    [{ status: "failed" }, ["closed"]],
  ] as [Partial<SessionStatus>, string[]][])("%j", (given, cards) => {
    expect(cardsOf(status(given))).toEqual(cards);
  });
});

describe("the prompt box and the address", () => {
  it("completes files and commands before the caret", () => {
    expect(mention("look at @src/li", 15)).toEqual({ sign: "@", word: "src/li", from: 8 });
    expect(mention("/rev", 4)).toEqual({ sign: "/", word: "rev", from: 0 });
    expect([mention("a@b", 3), mention("do /rev", 7), mention("@a b", 4)]).toEqual([null, null, null]);
  });

  it("puts comments into one prompt", () => {
    const line = (old: number | null, at: number | null) => ({ kind: "add" as const, text: "  x ", old, new: at });
    const prompt = commentsPrompt([{ key: "a", path: "a.rs", line: line(null, 3), text: "why? " }, { key: "b", path: "b.rs", line: line(9, null), text: "keep" }]);
    expect(prompt).toMatch(/a\.rs, line 3:\n> x\nwhy\?\n\nb\.rs, line 9 \(removed\):\n> x\nkeep$/);
  });

  it("reads addresses, also bad ones", () => {
    expect(parseRoute("#/s/a%2Fb/terminal")).toEqual({ screen: "session", id: "a/b", tab: "terminal" });
    expect(parseRoute("#/s/%E0%A4%A/nothing")).toEqual({ screen: "session", id: "%E0%A4%A", tab: "chat" });
    expect(parseRoute("")).toEqual({ screen: "home" });
  });
});
