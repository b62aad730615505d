import { expect, test } from "vitest";

import { pitonSandbox, statOf } from "../../src/run/piton.js";

/** A server that answers by path. */
function server(answers: Record<string, unknown>, status = 200) {
  const asked: string[] = [];
  const fetch = (url: string | URL | Request, init?: RequestInit) => {
    const path = String(url as string).replace("http://piton/api/v1/sessions/ses_1", "");
    asked.push(path);
    expect(new Headers(init?.headers).get("Authorization")).toBe("Bearer key.secret");
    return Promise.resolve(new Response(JSON.stringify(answers[path] ?? { code: "session_not_found", detail: "No such session" }), { status: path in answers ? status : 404 }));
  };
  return { asked, sandbox: pitonSandbox({ baseUrl: "http://piton", token: "key.secret", sessionId: "ses_1", fetch }) };
}

test("truth from a workspace that is a repository", async () => {
  const { sandbox } = server({
    "/git/status": { repository: true, branch: "main", head: "abc", changed: [{ status: " M", path: "a" }], truncated: true },
    "/git/diff?staged=true": { diff: "", truncated: false },
    "/git/diff?staged=false": { diff: "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1,2 @@\n-x\n+y\n+z\n", truncated: false },
  });
  expect(await sandbox.truth()).toEqual({ branch: "main", head: "abc", changed: [[" M", "a"]], more: 1, stat: { files: 1, added: 2, removed: 1 } });
  expect(await sandbox.identity()).toEqual({ sandboxSessionId: "ses_1", activeBranch: "main", repoId: null });
});

test("without a repository, what is in the folder", async () => {
  const { sandbox } = server({
    "/git/status": { repository: false, branch: null, head: null, changed: [], truncated: false },
    "/files": { files: [{ name: "a.md", kind: "file", bytes: 1 }], truncated: false },
  });
  expect(await sandbox.truth()).toMatchObject({ changed: [["??", "a.md"]], head: null });
});

test("a session that is not there is gone; a server that does not answer is not known to be", async () => {
  expect(await server({}).sandbox.isAlive?.()).toBe(false);
  expect(await server({ "": {} }).sandbox.isAlive?.()).toBe(true);
  await expect(server({ "": { code: "internal" } }, 500).sandbox.isAlive?.()).rejects.toMatchObject({ code: "internal" });
  const offline = pitonSandbox({ token: "t", sessionId: "s", fetch: () => Promise.reject(new TypeError("offline")) });
  await expect(offline.isAlive?.()).rejects.toMatchObject({ code: "server_unreachable" });
});

test("a diff is counted by its hunks", () => {
  const diff = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n-one\n+two\n+++ three\n x\ndiff --git a/b b/b\nnew file\n--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+y\n";
  expect(statOf(diff)).toEqual({ files: 2, added: 3, removed: 1 });
});
