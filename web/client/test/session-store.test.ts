/** Opening a session while the server is away: it waits, and loads by itself. */
import { describe, expect, it } from "vitest";
import { PitonClient, SessionStore } from "../src/index.js";
import { FakeEnvironment, FakeStream, json, problem, settle } from "./fakes.js";

const STATUS = { session_id: "sess_1", status: "idle", state: "WAITING_FOR_INPUT", reason: "run_completed", sentence: "", waits: [], choices: [] };
const BOOTSTRAP = { status: STATUS, messages: [], queue: { prompts: [] }, agent: { config_options: [], commands: [], plan: [], chosen: {}, mcp_servers: [] }, last_seq: 3 };

type Away = "network" | "hangs" | 503 | 500 | 404 | null;

function world(away: Away, options: { resumeOnOpen?: boolean } = {}) {
  const server = { away, asked: [] as string[], keys: new Set<string | null>() };
  const environment = new FakeEnvironment((url, init) => {
    const what = url.replace(/.*sess_1\/?/, "").replace(/\?.*/, "");
    server.asked.push(what);
    if (what === "open") server.keys.add(new Headers(init.headers).get("idempotency-key"));
    if (server.away === "network") throw new TypeError("fetch failed");
    if (server.away === "hangs") return new Promise<Response>(() => {});
    if (server.away !== null) return problem(server.away, server.away === 404 ? "session_not_found" : server.away === 503 ? "store_busy" : "store_damaged");
    if (what === "events") return new FakeStream().response;
    return json(what === "bootstrap" ? BOOTSTRAP : STATUS);
  });
  const store = new SessionStore(new PitonClient({ address: "http://piton.test", token: "a.b", environment }), "sess_1", options);
  const phases: string[] = [];
  store.connection.subscribe((state) => void phases.push(state.phase));
  const count = (what: string) => server.asked.filter((one) => one === what).length;
  return { server, environment, store, phases, count };
}

describe("a session that is opened", () => {
  it.each(["network", 503] as const)("while the server is away (%s) is reconnecting, and loads by itself", async (away) => {
    const { server, environment, store, phases } = world(away);
    const opened = store.open();
    await environment.advance(60_000);
    expect([store.load.value, store.problem.value, store.connection.value.phase]).toEqual(["loading", null, "reconnecting"]);
    // The time that the page shows counts from the beginning.
    expect(environment.now() - store.connection.value.since).toBeGreaterThan(50_000);
    server.away = null;
    await environment.advance(31_000);
    await opened;
    expect([store.load.value, store.connection.value.phase]).toEqual(["ready", "live"]);
    expect(phases).not.toContain("refused");
    store.close();
  });

  it("waits longer after each attempt, and at most 30 seconds", async () => {
    const { environment, store, count } = world(503);
    void store.open();
    await environment.advance(10 * 60_000);
    expect(count("bootstrap")).toBeGreaterThan(15);
    expect(count("bootstrap")).toBeLessThan(60);
    store.close();
  });

  it.each(["online", "visible"] as const)("asks at once when the page is %s again", async (wake) => {
    const { server, environment, store } = world("network");
    void store.open();
    await environment.advance(120_000);
    server.away = null;
    environment.wake(wake);
    await settle();
    expect(store.load.value).toBe("ready");
    store.close();
  });

  it("does not wait for a request that hangs on the network that was lost", async () => {
    const { server, environment, store } = world("hangs");
    void store.open();
    await settle();
    server.away = null;
    environment.wake("online");
    await settle();
    expect(store.load.value).toBe("ready");
    store.close();
  });

  it.each([404, 500] as const)("fails when the server refuses for good (%s)", async (away) => {
    const { environment, store, count } = world(away);
    await store.open();
    await environment.advance(120_000);
    expect([store.load.value, store.problem.value !== null, count("bootstrap")]).toEqual(["failed", true, 1]);
  });

  it("asks no more when it was closed", async () => {
    const { server, environment, store } = world("network");
    const opened = store.open();
    await environment.advance(5_000);
    store.close();
    await environment.advance(5_000);
    await opened;
    const before = server.asked.length;
    server.away = null;
    await environment.advance(120_000);
    expect([server.asked.length, store.load.value]).toEqual([before, "loading"]);
  });

  it("resumes its agent under one key, also if the server goes away in between", async () => {
    const { server, environment, store, count } = world(null, { resumeOnOpen: true });
    const first = store.open();
    store.load.subscribe((load) => {
      if (load === "ready") server.away = "network";
    });
    await environment.advance(20_000);
    expect(count("open")).toBeGreaterThan(3);
    server.away = null;
    await environment.advance(31_000);
    await first;
    expect(server.keys.size).toBe(1);
    expect(store.status.value?.status).toBe("idle");
    store.close();
  });
});
