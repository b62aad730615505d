import { expect, test } from "vitest";

import { PitonClient } from "../../src/index.js";
import { contentOf } from "../../src/run/banner.js";
import { joinJob, pitonSandbox, recordJob, statOf } from "../../src/run/piton.js";
import { FakeEnvironment, problem, settle } from "../fakes.js";
import { Browser, checkpoint, say, testRun } from "./helpers.js";

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

/** A chat whose run a session does, and a server that answers in this order; then it has no such session. */
async function jobOf(answers: Array<Response | Error>) {
  const environment = new FakeEnvironment(() => {
    const answer = answers.shift() ?? problem(404, "session_not_found");
    if (answer instanceof Error) throw answer;
    return answer;
  });
  const client = new PitonClient({ address: "http://piton.test", token: "a.b", environment });
  const browser = new Browser();
  const { run } = testRun(browser, () => [say("free")]);
  await recordJob({ chatId: "chat", jobId: "ses_1", storage: browser.storage(), lock: browser.locks.tab() });
  await run.open();
  return { environment, client, browser, run };
}

test("a job whose session was deleted frees the chat, and says so; a server that cannot be reached is asked again", async () => {
  const { environment, client, run } = await jobOf([new TypeError("offline"), new TypeError("offline"), problem(503, "store_overloaded")]);
  expect(run.getState().recovery.status).toBe("job");
  const job = joinJob(client, run.recovery);
  let ended: unknown = null;
  job?.ended.catch((error: unknown) => (ended = error));
  // Each request is tried several times by itself, too.
  for (let minutes = 0; ended === null && minutes < 10; minutes++) await environment.advance(60_000);
  expect(ended).toMatchObject({ code: "session_not_found" });
  expect(environment.requests.length).toBeGreaterThan(3);
  expect(run.getState().recovery).toMatchObject({ status: "none", reason: "no_checkpoint" });
  expect(await run.send("go")).toBe("completed");
});

test("a job that is not followed any more asks for nothing", async () => {
  const { environment, client, run } = await jobOf(Array.from({ length: 100 }, () => new TypeError("offline")));
  const job = joinJob(client, run.recovery);
  await settle();
  job?.close();
  // The request that is on its way may be tried to its end.
  await environment.advance(60_000);
  const { length } = environment.requests;
  await environment.advance(600_000);
  expect(environment.requests.length).toBe(length);
  expect(run.getState().recovery.status).toBe("job");
});

test("a server does not take over a chat with an interrupted run: nothing of it is lost", async () => {
  const browser = new Browser();
  await browser.storage().save(checkpoint({ accumulated: "Half" }));
  const job = { chatId: "chat", jobId: "ses_1", storage: browser.storage(), lock: browser.locks.tab() };
  await expect(recordJob(job)).rejects.toMatchObject({ code: "run_interrupted" });
  expect((await browser.storage().load("chat")).checkpoint).toMatchObject({ accumulated: "Half", jobId: null });
  expect(browser.locks.held.size).toBe(0);
  await testRun(browser, () => []).run.recovery.dismiss();
  await recordJob(job);
  expect((await browser.storage().load("chat")).checkpoint?.jobId).toBe("ses_1");
});

test("a workspace of a session stays: a run in it does not become too old", () => {
  expect(pitonSandbox({ token: "t", sessionId: "s" }).isPersistent).toBe(true);
});

test("a job whose session never begins can be dismissed: the chat is free again", async () => {
  const { run } = await jobOf([]);
  expect(contentOf(run.getState().recovery)).toMatchObject({ sentence: "The run continues on the server.", buttons: [{ act: "dismiss" }] });
  await run.recovery.dismiss();
  expect(run.getState().recovery).toMatchObject({ status: "none", reason: "no_checkpoint" });
  expect(await run.send("go")).toBe("completed");
});

test("the end of a job frees the chat of that job alone", async () => {
  const { environment, client, browser, run } = await jobOf([new TypeError("offline"), new TypeError("offline"), new TypeError("offline")]);
  const job = joinJob(client, run.recovery);
  // In another tab: dismissed, and given to another session.
  await testRun(browser, () => []).run.recovery.dismiss();
  await recordJob({ chatId: "chat", jobId: "ses_2", storage: browser.storage(), lock: browser.locks.tab() });
  let isEnded = false;
  job?.ended.catch(() => (isEnded = true));
  for (let minutes = 0; !isEnded && minutes < 10; minutes++) await environment.advance(60_000);
  expect(isEnded).toBe(true);
  expect((await browser.storage().load("chat")).checkpoint?.jobId).toBe("ses_2");
  expect(run.getState().recovery).toMatchObject({ status: "job", jobId: "ses_2" });
});
