// A page with a run, as an app would write it. Its parameters come in the address.
import { defineResumeBanner } from "/dist/run/banner.js";
import { gitTruth } from "/dist/run/git.js";
import { createRun, systemClock, tabLock, browserStorage } from "/dist/run/index.js";
import { openAiStream } from "/dist/run/openai.js";

const given = new URLSearchParams(location.search);
// One of the page's last events alone must be enough: the others do not reach the package.
if (given.has("only")) {
  for (const type of ["visibilitychange", "freeze", "pagehide"]) {
    if (type !== given.get("only")) addEventListener(type, (event) => event.stopImmediatePropagation(), { capture: true });
  }
}
const chat = given.get("chat");
const post = async (path, body) => {
  const response = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ chat, ...body }) });
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return response.json();
};
const skewMs = Number(given.get("skewMs") ?? 0);
const clock = { ...systemClock, now: () => Date.now() + skewMs };
const storage = browserStorage({ clock });
const stream = openAiStream({ baseUrl: `${location.origin}/v1`, headers: { "x-chat": chat } });

window.run = createRun({
  chatId: chat,
  provider: given.get("provider") ?? "scripted",
  model: given.get("model") ?? "script-1",
  stream,
  storage,
  clock,
  // Plain HTTP from another device has no Web Locks.
  lock: tabLock({ storage, clock, ...(given.has("noLocks") ? { locks: null } : {}) }),
  sandbox: {
    identity: () => ({
      sandboxSessionId: given.get("sandbox") ?? "box-1",
      activeBranch: given.get("branch") ?? "main",
      repoId: given.get("repo") ?? "repo-1",
    }),
    truth: gitTruth((command) => post("/exec", { command })),
    isAlive: () => post("/alive", {}),
    create: () => post("/create", {}),
  },
  tools: {
    read: { description: "Reads a file", kind: "read", run: () => "line of the file\n".repeat(100) },
    append: { description: "Adds a line", kind: "change", run: ({ line }) => post("/append", { line }) },
    code: {
      description: "Delegates to a coder",
      kind: "delegate",
      async run({ lines }, { onState, signal }) {
        const open = [...lines];
        while (open.length > 0) {
          const line = open.shift();
          await post("/append", { line });
          onState({ plan: "Write the lines", tasks: [...open], files: ["work.txt"] });
          window.codedLine = line;
          if (given.has("coderHangs")) await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
        }
        return "coded";
      },
    },
  },
  telemetry: (event) => {
    (window.events ??= []).push(event);
    post("/report", { event }).catch(() => undefined);
  },
  limits: {
    flushEveryMs: Number(given.get("flushEveryMs") ?? 400),
    ...(given.has("timeoutMs") ? { streamTimeoutMs: Number(given.get("timeoutMs")), toolTimeoutMs: Number(given.get("timeoutMs")) } : {}),
  },
});

defineResumeBanner();
const banner = document.querySelector("piton-resume-banner");
banner.recovery = run.recovery;
const text = document.getElementById("text");
run.subscribe(() => {
  text.textContent = run.getState().text;
});
// What this page has received, so that a test knows what a kill took.
setInterval(() => {
  const word = /w(\d+) $/.exec(run.getState().text)?.[1];
  if (word) post("/seen", { word: Number(word) }).catch(() => undefined);
}, 100);

window.opened = run.open();
if (given.has("send")) window.opened.then(() => run.send(given.get("send")));
