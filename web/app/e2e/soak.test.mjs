// The long variants: only in `make soak`.
import assert from "node:assert/strict";
import { answers, card, noErrors, sameAsLog, send, session, squeeze } from "./lib/page.mjs";
import { soak } from "./lib/runner.mjs";

const ROUNDS = 12;

soak("the server is killed and restarted again and again during one turn: the page loses nothing", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "demo" });
  const page = await pages.open(session(id));
  await page.evaluate(() => { window.mark = "same page"; });
  await send(page, "stream 900 100");
  await server.until(id, (status) => status.status === "running");
  for (let round = 0; round < ROUNDS; round += 1) {
    const before = (await answers(page)).join(" ").length;
    await server.kill();
    await card(page, "reconnecting").waitFor({ timeout: 10_000 });
    await server.start();
    // The turn went on meanwhile, and the page shows it again.
    await page.waitForFunction((length) => [...document.querySelectorAll('.message[data-role="agent"] .md')].map((part) => part.textContent).join(" ").length > length, before, { timeout: 40_000 });
    assert.equal(await card(page, "interrupted").count(), 0);
  }
  await server.until(id, (status) => status.status === "idle", 120_000);
  await page.getByText("word900").first().waitFor({ timeout: 40_000 });
  const words = squeeze((await answers(page)).join(" ")).split(" ");
  assert.deepEqual(words, Array.from({ length: 900 }, (_, n) => `word${n + 1}`));
  assert.equal(await page.evaluate(() => window.mark), "same page");
  await sameAsLog(server, page, id);
  noErrors(page);
});

soak("a page that is open for three minutes of streaming: a bounded number of nodes, and a heap that does not grow with the session", async ({ server, pages }) => {
  const id = await server.session({ agent_profile_id: "echo" });
  const page = await pages.open(session(id));
  const cdp = await page.context().newCDPSession(page);
  const heap = async () => {
    await cdp.send("HeapProfiler.collectGarbage");
    return (await cdp.send("Runtime.getHeapUsage")).usedSize / 1e6;
  };
  const sizes = [];
  for (let minute = 0; minute < 3; minute += 1) {
    await server.prompt(id, Array.from({ length: 50 }, () => "stream 200 5").join("\n"));
    await server.until(id, (status) => status.status === "idle" && status.queue.length === 0, 120_000);
    sizes.push(await heap());
    const [nodes, rows] = await page.evaluate(() => [document.querySelectorAll("*").length, document.querySelectorAll(".virtual-row").length]);
    assert.ok(nodes < 3_000 && rows < 120, `${nodes} nodes, ${rows} rows`);
  }
  console.log(`      heap after each minute: ${sizes.map((size) => `${size.toFixed(1)} MB`).join(", ")}`);
  // What is said is kept once: it is some hundred kilobytes a minute.
  assert.ok(sizes[2] - sizes[0] < 10, `the heap grew by ${(sizes[2] - sizes[0]).toFixed(1)} MB`);
  noErrors(page);
});
