// /demo/browser-run: a loop that runs in this page, with the workspace of a Piton session as its sandbox.
import { type HTMLAttributes, render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ProblemError } from "piton-client";
import { browserStorage, createRun, type Run, type RunMessage, tabLock } from "piton-client/run";
import { defineResumeBanner, type ResumeBannerElement } from "piton-client/run/banner";
import { type JoinedJob, joinJob, pitonSandbox, recordJob } from "piton-client/run/piton";
import { client } from "../data/account.ts";
import { load, save } from "../lib/storage.ts";
import { scriptedModel } from "./script.ts";

const CHAT = "demo";
const storage = browserStorage();
const lock = tabLock({ storage });
const SESSION_KEY = "piton.demo.session";

/** The session whose workspace is used: the one of the last visit, or a new one. Its agent is not started. */
async function workspace(): Promise<string> {
  const known = load(SESSION_KEY);
  if (known) {
    const isThere = await client.call("get", "/api/v1/sessions/{session_id}", { path: { session_id: known } }).then(() => true, () => false);
    if (isThere) return known;
  }
  const made = await client.call("post", "/api/v1/sessions", { body: { title: "Browser run demo", start: false, mcp_servers: [] } });
  save(SESSION_KEY, made.session_id);
  return made.session_id;
}

function makeRun(sessionId: string, token: string): Run {
  const sandbox = pitonSandbox({ token, sessionId, newSession: { title: "Browser run demo" }, onCreated: (made) => save(SESSION_KEY, made) });
  return createRun({
    chatId: CHAT,
    storage,
    lock,
    provider: "demo",
    model: "script",
    stream: scriptedModel,
    sandbox,
    tools: {
      write_note: {
        description: "Writes a note into the workspace",
        kind: "change",
        async run({ path }: { path: string }) {
          const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/octet-stream" };
          const body = `# ${path}\n\nWritten by a page at ${new Date().toISOString()}\n`;
          const content = `/api/v1/sessions/${encodeURIComponent(sandbox.sessionId)}/files/content`;
          const response = await fetch(`${content}?path=${encodeURIComponent(path)}`, { method: "PUT", headers, body });
          if (!response.ok) throw new Error(`The server answered ${response.status}`);
          return `${path} is written`;
        },
      },
    },
  });
}

/** A session whose agent runs on the server does the work: this page, and any that comes back, only follows it. */
async function runOnServer(run: Run): Promise<void> {
  if (run.recovery.getState().status === "offered") await run.recovery.dismiss();
  const { session_id: jobId } = await client.call("post", "/api/v1/sessions", { body: { title: "Browser run demo on the server", agent_profile_id: "echo" } });
  await recordJob({ chatId: CHAT, jobId, storage, lock });
  try {
    await client.call("post", "/api/v1/sessions/{session_id}/messages", { path: { session_id: jobId }, body: { content: "stream 60 100" } });
  } catch (cause) {
    // The server refused: no run of its owns the chat. Whether a request that got no answer arrived is not known, so the
    // session keeps the chat, and the banner has Dismiss.
    if (cause instanceof ProblemError) await run.recovery.dismiss();
    throw cause;
  }
}

/** The session that does the work, live; it stays on the page when it has ended. */
function Job({ run, jobId }: { run: Run; jobId: string }) {
  const [end, setEnd] = useState<string | null>(null);
  const [text, setText] = useState("");
  useEffect(() => {
    const joined: JoinedJob | null = joinJob(client, run.recovery);
    if (!joined) return;
    setEnd(null);
    joined.ended.then(() => setEnd("The run has ended on the server."), (cause: unknown) => setEnd(cause instanceof Error ? cause.message : String(cause)));
    const unsubscribe = joined.store.view.subscribe((view) => {
      const last = view.items.findLast((item) => item.type === "agent");
      setText(last?.type === "agent" ? (last.text ?? "") : "");
    });
    return () => {
      unsubscribe();
      joined.close();
    };
  }, [run, jobId]);
  return (
    <section class="card stack" aria-label="Run on the server">
      <p>{end ?? "The run continues on the server, whatever happens to this page."} <a href={`/#/s/${jobId}`}>Open the session</a></p>
      <p id="job-answer" class="muted">{text}</p>
    </section>
  );
}

/** What a person should know about the browser's stores; one of the two is enough. */
function storageSentence(problems: readonly string[]): string | null {
  if (problems.includes("conversation_damaged")) return "The saved conversation was damaged and set aside. A new one begins.";
  const isLost = ["local_storage", "indexed_db"].every((store) => problems.some((problem) => problem.startsWith(store)));
  return isLost ? "This browser stores nothing for this site, or its storage is full: if the page is closed, the run is lost." : null;
}

function Demo() {
  const [run, setRun] = useState<Run | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [, redraw] = useState(0);
  const banner = useRef<ResumeBannerElement>(null);
  useEffect(() => {
    const token = client.token.value;
    if (!token) return;
    let made: Run | null = null;
    workspace()
      .then(async (sessionId) => {
        made = makeRun(sessionId, token);
        made.subscribe(() => redraw((count) => count + 1));
        setRun(made);
        await made.open();
      })
      .catch((cause: unknown) => setError(cause instanceof Error ? cause.message : String(cause)));
    return () => made?.close();
  }, []);
  useEffect(() => {
    if (run && banner.current) banner.current.recovery = run.recovery;
  }, [run]);

  const state = run?.getState();
  const isBusy = state?.status === "running";
  const isJob = state?.recovery.status === "job";
  const lastJob = useRef<string | null>(null);
  if (state?.recovery.status === "job") lastJob.current = state.recovery.jobId;
  const jobId = lastJob.current;
  return (
    <main class="page" id="main" aria-label="Browser run demo">
      <div class="page-inner stack">
        <header class="page-header"><h1>A run in this page</h1></header>
        <p>
          The loop below runs in your browser, not on the server: a scripted model writes three notes into the workspace of a Piton
          session. Start it, then lock the phone, switch away, reload, or kill the browser. Come back and press <strong>Resume</strong>.
        </p>
        <p class="muted"><a href="/">Back to Piton</a></p>
        {!client.token.value && <p class="card">Sign in first: run <code>piton open</code>, then open this page again.</p>}
        {error && <p class="card" role="alert">{error}</p>}
        {state && storageSentence(state.storageProblems) && <p class="card" role="alert">{storageSentence(state.storageProblems)}</p>}
        <piton-resume-banner ref={banner} />
        {run && jobId && <Job run={run} jobId={jobId} />}
        {state?.messages.map((message, at) => <Message key={at} message={message} />)}
        {state?.recovery.status === "offered" && state.recovery.checkpoint.accumulated && (
          <p class="card muted"><strong>model</strong> {state.recovery.checkpoint.accumulated} [cut off]</p>
        )}
        {state?.text && <p class="card" aria-live="polite">{state.text}</p>}
        {state?.error && <p class="card" role="alert">{state.error.message}</p>}
        <div class="row-wrap">
          <button type="button" class="button" data-look="primary" disabled={!run || isBusy || isJob} onClick={() => void run?.send("Write the three notes.").catch((cause: unknown) => setError(String(cause)))}>
            Start
          </button>
          <button type="button" class="button" disabled={!isBusy} onClick={() => run?.abort()}>Stop</button>
          <button type="button" class="button" disabled={!run || isBusy || isJob} onClick={() => run && void runOnServer(run).then(() => run.recovery.check()).catch((cause: unknown) => setError(String(cause)))}>
            Run on the server
          </button>
          <span class="muted">{isBusy ? `Round ${state.round}, ${state.phase ?? ""}` : (state?.status ?? "")}</span>
        </div>
      </div>
    </main>
  );
}

function Message({ message }: { message: RunMessage }) {
  if (message.role === "user" && message.content.startsWith("[SESSION_RESUMED]")) {
    return <details class="card"><summary>What the model was given after the interruption</summary><pre>{message.content}</pre></details>;
  }
  if (message.role === "tool") return <p class="card muted">● {message.content}</p>;
  return <p class="card"><strong>{message.role === "user" ? "you" : "model"}</strong> {message.content}</p>;
}

declare module "preact" {
  // eslint-disable-next-line @typescript-eslint/no-namespace
  namespace JSX {
    interface IntrinsicElements {
      "piton-resume-banner": HTMLAttributes<ResumeBannerElement>;
    }
  }
}

export function show(root: HTMLElement): void {
  defineResumeBanner();
  document.title = "A run in this page · Piton";
  render(<Demo />, root);
}
