// How much of the main thread a run takes, in Chromium. Prints a table.
import { openPage, Profile } from "./browser.mjs";
import { TestServer } from "./server.mjs";

const server = await TestServer.start();
const profile = new Profile();
try {
  const browser = await profile.open();
  const { page } = await openPage(browser, `${server.address}/blank.html`);
  const rows = await page.evaluate(async () => {
    const { browserStorage, createRun, RunRecorder, tabLock, systemClock } = await import("/dist/run/index.js");
    const storage = browserStorage();
    const quantile = (times, q) => times.toSorted((a, b) => a - b)[Math.min(times.length - 1, Math.floor(times.length * q))];
    const identity = { sandboxSessionId: "b", activeBranch: "main", repoId: "r" };
    const found = [];
    let own = 0;
    const timed = (run) => (...args) => {
      const from = performance.now();
      try {
        return run(...args);
      } finally {
        own += performance.now() - from;
      }
    };
    // All that the package runs by itself: timers, and what IndexedDB calls back.
    for (const [type, name] of [[IDBRequest, "onsuccess"], [IDBTransaction, "oncomplete"]]) {
      const event = Object.getOwnPropertyDescriptor(type.prototype, name);
      Object.defineProperty(type.prototype, name, { ...event, set(run) { event.set.call(this, timed(run)); } });
    }
    const clock = { ...systemClock, setTimeout: (run, ms) => setTimeout(timed(run), ms) };
    const begin = async (chatId, flushEveryMs) => {
      const recorder = new RunRecorder({ chatId, provider: "p", model: "m", identity, storage, clock, lock: tabLock({ storage }), flushEveryMs });
      await recorder.begin({ baseMessageCount: 0, deltaMessages: [{ role: "user", content: "x".repeat(15 * 1024 - 600) }] });
      return recorder;
    };
    const recorder = await begin("bench", 3_600_000);
    recorder.startRound(1);
    const measure = async (name, act, goal) => {
      const times = [];
      for (let n = 0; n < 300; n++) {
        const from = performance.now();
        const done = act();
        times.push(performance.now() - from);
        await done;
        if (n % 10 === 0) await new Promise((resolve) => setTimeout(resolve));
      }
      found.push({ what: name, p50: quantile(times, 0.5), p95: quantile(times, 0.95), max: Math.max(...times), goal });
    };
    await measure("flush of 15 KB, main thread, ms", () => recorder.flush(), "max <= 5");
    await measure("save of 15 KB, main thread, ms", () => recorder.responseReceived(), "p95 <= 2");
    const durable = [];
    for (let n = 0; n < 100; n++) {
      const from = performance.now();
      await recorder.responseReceived();
      durable.push(performance.now() - from);
    }
    found.push({ what: "save of 15 KB until it is on the disk, ms", p50: quantile(durable, 0.5), p95: quantile(durable, 0.95), max: Math.max(...durable), goal: "" });
    await recorder.end("clear");

    /** 200 pieces a second for five seconds; `give` hands each to the package. */
    const pace = async (give) => {
      const seconds = [];
      for (let second = 0; second < 5; second++) {
        own = 0;
        const from = performance.now();
        for (let token = 0; token < 200; token++) {
          await give(" token");
          const next = from + (token + 1) * 5;
          while (performance.now() < next) await new Promise((resolve) => setTimeout(resolve, 1));
        }
        seconds.push(own);
      }
      return { p50: quantile(seconds, 0.5), p95: quantile(seconds, 0.95), max: Math.max(...seconds), goal: "<= 10" };
    };
    const streaming = await begin("stream", 400);
    streaming.startRound(1);
    const text = timed((piece) => streaming.text(piece));
    found.push({ what: "200 tokens/s, the recorder: own ms per second of stream", ...await pace(text) });
    await streaming.end("clear");

    // The whole loop: what happens between a piece and the request for the next one is its work.
    let measured;
    const run = createRun({
      chatId: "loop", provider: "p", model: "m", storage, clock, lock: tabLock({ storage }),
      sandbox: { identity: () => ({ sandboxSessionId: "b", activeBranch: "main", repoId: "r" }), truth: () => Promise.reject(new Error("not asked")) },
      async *stream() {
        const pieces = [];
        let taken = () => undefined;
        let wake = () => undefined;
        const paced = pace((piece) => new Promise((resolve) => {
          taken = resolve;
          pieces.push(piece);
          wake();
        })).then((result) => {
          measured = result;
          pieces.push(null);
          wake();
        });
        for (;;) {
          while (pieces.length === 0) await new Promise((resolve) => (wake = resolve));
          const piece = pieces.shift();
          if (piece === null) break;
          const from = performance.now();
          yield { type: "text", text: piece };
          own += performance.now() - from;
          taken();
        }
        await paced;
      },
    });
    await run.send("go");
    found.push({ what: "200 tokens/s, createRun: own ms per second of stream", ...measured });
    return found;
  });
  const number = (value) => value.toFixed(2).padStart(8);
  console.log(`${"piton-client/run in Chromium".padEnd(58)}${"p50".padStart(8)}${"p95".padStart(8)}${"max".padStart(8)}  goal`);
  for (const { what, p50, p95, max, goal } of rows) console.log(`${what.padEnd(58)}${number(p50)}${number(p95)}${number(max)}  ${goal}`);
} finally {
  await profile.remove();
  await server.stop();
}
