// `npm run bench`: how fast the app is with a long session. Figures, no verdict: PITON is the binary, MINUTES how long
// records are streamed (by default 1; 30 shows whether the heap grows).
import { Front } from "./lib/front.mjs";
import { launch, Pages } from "./lib/browser.mjs";
import { Server } from "./lib/server.mjs";

const MESSAGES = Number(process.env["MESSAGES"] ?? 10_000);
const MINUTES = Number(process.env["MINUTES"] ?? 1);
const PER_SECOND = 200;
const PER_PROMPT = 2_500;

const percentile = (values, part) => [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * part))];

const server = new Server();
await server.start();
const isServed = (await (await fetch(`${server.address}/`)).text()).includes('id="app"');
const front = new Front(server.address, { serveApp: !isServed });
await front.listen();
const browser = await launch();
try {
  const id = await server.session({ agent_profile_id: "echo", title: "Long" });
  for (let n = 0; n < MESSAGES / PER_PROMPT; n += 1) await server.prompt(id, Array.from({ length: PER_PROMPT }, (_, k) => `say message ${k + 1}`).join("\n"));
  await server.until(id, (status) => status.status === "idle" && status.queue.length === 0 && status.last_seq > MESSAGES * 2, 300_000);
  const pages = new Pages(browser, front.address, server.token);
  const context = await pages.context();
  await context.addInitScript(() => {
    window.longTasks = [];
    new PerformanceObserver((list) => window.longTasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: "longtask", buffered: true });
  });
  const opened = [];
  for (let n = 0; n < 5; n += 1) {
    const at = Date.now();
    const page = await pages.open(`#/s/${id}`, { context });
    await page.getByText(`message ${PER_PROMPT}`, { exact: true }).first().waitFor();
    await page.locator(".composer textarea").click();
    opened.push(Date.now() - at);
    if (n < 4) await page.close();
  }
  console.log(`open ${MESSAGES} messages until the prompt box takes a click: ${Math.min(...opened)} to ${Math.max(...opened)} ms, median ${percentile(opened, 0.5)} (5 times)`);
  const page = context.pages().at(-1);
  await page.evaluate(() => {
    window.delays = [];
    window.longTasks.length = 0;
    let last = "";
    new MutationObserver(() => {
      const stamp = document.querySelector(".message[data-streaming] .md")?.textContent.trim().split(" ").at(-1);
      if (!stamp || stamp === last || stamp.length < 16) return;
      last = stamp;
      requestAnimationFrame(() => setTimeout(() => window.delays.push(Date.now() - Number(stamp) / 1000), 0));
    }).observe(document.body, { subtree: true, childList: true, characterData: true });
  });
  const heap = async () => {
    const session = await context.newCDPSession(page);
    await session.send("HeapProfiler.collectGarbage");
    const { usedSize } = await session.send("Runtime.getHeapUsage");
    return usedSize / 1e6;
  };
  const before = await heap();
  const nodes = await page.evaluate(() => document.querySelectorAll("*").length);
  for (let minute = 0; minute < MINUTES; minute += 1) {
    // A message a second, as agents write: the last one is drawn again with each chunk.
    await server.prompt(id, Array.from({ length: 55 }, () => `stream-now ${PER_SECOND} ${1000 / PER_SECOND}`).join("\n"));
    await server.until(id, (status) => status.status === "idle" && status.queue.length === 0, 180_000);
  }
  const { delays, longTasks } = await page.evaluate(() => ({ delays: window.delays, longTasks: window.longTasks }));
  console.log(`arrival to paint, ${PER_SECOND} records a second for ${MINUTES} min: p50 ${percentile(delays, 0.5)} ms, p95 ${percentile(delays, 0.95)} ms, p99 ${percentile(delays, 0.99)} ms of ${delays.length}`);
  console.log(`long tasks: ${longTasks.length}, longest ${Math.round(Math.max(0, ...longTasks))} ms`);
  console.log(`heap: ${before.toFixed(1)} MB before, ${(await heap()).toFixed(1)} MB after; nodes: ${nodes} before, ${await page.evaluate(() => document.querySelectorAll("*").length)} after`);
} finally {
  await browser.close();
  await front.close();
  await server.remove();
}
