import { describe, expect, it } from "vitest";
import { ConnectionError, hasCode, PitonClient, ProblemError, SessionApi } from "../src/index.js";
import { Outbox } from "../src/outbox.js";
import { FakeEnvironment, json, problem, settle } from "./fakes.js";

type Answer = Response | Error;

function world(answers: Answer[]) {
  const environment = new FakeEnvironment(() => {
    const answer = answers.shift();
    if (!answer) throw new TypeError("refused");
    if (answer instanceof Error) throw answer;
    return answer;
  });
  const client = new PitonClient({ address: "http://piton.test/", token: "a.b", environment });
  const sent = () => environment.requests.map(({ url, init }) => ({ url, method: init.method, headers: new Headers(init.headers), body: init.body ? JSON.parse(String(init.body)) : null }));
  return { environment, client, sent };
}

class MemoryStorage {
  readonly values = new Map<string, string>();
  isFull = false;
  get length() {
    return this.values.size;
  }
  key = (index: number) => [...this.values.keys()][index] ?? null;
  getItem = (key: string) => this.values.get(key) ?? null;
  setItem = (key: string, value: string) => {
    if (this.isFull) throw new Error("QuotaExceededError");
    this.values.set(key, value);
  };
  removeItem = (key: string) => void this.values.delete(key);
}

const ACCEPTED = { run_id: "r", message_id: "m", pending: false, queued: true, position: 1 };

describe("requests", () => {
  it("fill the path, carry the token, and send a change again under its key", async () => {
    const { client, environment, sent } = world([new TypeError("cut"), json(ACCEPTED, 202)]);
    const asked = client.call("post", "/api/v1/sessions/{session_id}/messages", { path: { session_id: "a/b" }, body: { content: "x" } });
    await environment.advance(1_000);
    expect(await asked).toEqual(ACCEPTED);
    expect(sent().map((one) => one.url)).toEqual(Array(2).fill("http://piton.test/api/v1/sessions/a%2Fb/messages"));
    const keys = sent().map((one) => one.headers.get("idempotency-key"));
    expect(keys[0]).toBeTruthy();
    expect(keys[1]).toBe(keys[0]);
    expect(sent()[0]?.headers.get("authorization")).toBe("Bearer a.b");
  });

  it("edit a queued prompt's text without its attachments, or all of it", async () => {
    const { client, sent } = world([json({ session_id: "s", message_id: "m" }), json({ session_id: "s", message_id: "m" })]);
    const blocks = [{ type: "text" as const, text: "y" }];
    const api = new SessionApi(client, "s");
    await api.editQueued("m", "x", 7);
    await api.editQueued("m", blocks);
    expect(sent().map((one) => one.body)).toEqual([{ text: "x", version: 7 }, { content: blocks }]);
  });

  it("say why the server refuses, and do not ask again", async () => {
    const { client, sent } = world([problem(409, "run_in_progress")]);
    const refused = await client.call("post", "/api/v1/sessions/{session_id}/cancel", { path: { session_id: "s" } }).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(ProblemError);
    expect(hasCode(refused, "run_in_progress")).toBe(true);
    expect(sent().length).toBe(1);
  });

  it("are connection errors when nobody answers, or a proxy does", async () => {
    const { client, environment } = world([]);
    const asked = client.call("get", "/api/v1/sessions").catch((error: unknown) => error);
    await environment.advance(5_000);
    expect(await asked).toBeInstanceOf(ConnectionError);
    const proxied = world([new Response("<html>", { status: 502 })]);
    const error = await proxied.client.call("get", "/api/v1/sessions").catch((one: unknown) => one);
    expect(error).toMatchObject({ status: 502, isTemporary: true });
  });

  it("say that the token is not accepted, but not because of an older one", async () => {
    const { client } = world([problem(401, "access_token_expired"), problem(401, "unauthenticated")]);
    await client.call("get", "/api/v1/sessions").catch(() => {});
    expect(client.signedOut.value?.code).toBe("access_token_expired");
    const late = client.call("get", "/api/v1/sessions").catch(() => {});
    client.setToken("c.d");
    await late;
    expect(client.signedOut.value).toBeNull();
  });
});

describe("Outbox", () => {
  it("keeps a prompt until the server has it, over a reload, under one key", async () => {
    const storage = new MemoryStorage();
    const before = world([]);
    const sending = new Outbox(before.client, storage).send("s", "hello").catch((error: unknown) => error);
    await before.environment.advance(5_000);
    expect(await sending).toBeInstanceOf(ConnectionError);
    expect(storage.values.size).toBe(1);

    const after = world([json(ACCEPTED, 202)]);
    const outbox = new Outbox(after.client, storage);
    expect(outbox.prompts.value.map((prompt) => prompt.content)).toEqual(["hello"]);
    await outbox.flush();
    expect(outbox.prompts.value).toEqual([]);
    expect(storage.values.size).toBe(0);
    const key = (sent: ReturnType<typeof before.sent>) => sent[0]?.headers.get("idempotency-key");
    expect(key(after.sent())).toBe(key(before.sent()));
    expect(after.sent()[0]?.body).toEqual({ content: "hello", if_busy: "queue" });
  });

  it("sends in order, keeps what is refused, and lets it be dropped", async () => {
    const { client } = world([problem(409, "session_closed"), json(ACCEPTED, 202)]);
    const outbox = new Outbox(client, new MemoryStorage());
    await outbox.send("s", "one").catch(() => {});
    await outbox.send("s", "two");
    const [refused] = outbox.prompts.value;
    expect(refused).toMatchObject({ content: "one", refusal: { code: "session_closed" } });
    await outbox.flush();
    outbox.drop(refused?.key ?? "");
    expect(outbox.prompts.value).toEqual([]);
  });

  it("keeps the prompts of two tabs that share a storage", async () => {
    const storage = new MemoryStorage();
    const [one, two] = [world([]), world([])];
    const [first, second] = [new Outbox(one.client, storage), new Outbox(two.client, storage)];
    const sent = [first.send("s", "one", { idempotencyKey: "a" }), second.send("s", "two", { idempotencyKey: "b" })].map((answer) => answer.catch((error: unknown) => error));
    await one.environment.advance(5_000);
    await two.environment.advance(5_000);
    for (const answer of sent) expect(await answer).toBeInstanceOf(ConnectionError);
    first.refresh();
    expect(first.prompts.value.map((prompt) => prompt.content)).toEqual(["one", "two"]);
    // A new tab finds both, and delivers them in the order in which they were written.
    const after = world([json(ACCEPTED, 202), json(ACCEPTED, 202)]);
    await new Outbox(after.client, storage).flush();
    expect(after.sent().map((request) => request.body?.content)).toEqual(["one", "two"]);
    expect(storage.values.size).toBe(0);
    first.refresh();
    expect(first.prompts.value).toEqual([]);
  });

  it("lets no later prompt overtake an earlier one after a reconnection", async () => {
    const { client, environment, sent } = world([]);
    const outbox = new Outbox(client, new MemoryStorage());
    const early = outbox.send("s", "early").catch((error: unknown) => error);
    await environment.advance(5_000);
    expect(await early).toBeInstanceOf(ConnectionError);
    const before = sent().length;
    environment.onFetch = () => json(ACCEPTED, 202);
    // The prompt comes before the flush of the reconnection does.
    await outbox.send("s", "late");
    await outbox.flush();
    expect(sent().slice(before).map((request) => request.body?.content)).toEqual(["early", "late"]);
    expect(outbox.prompts.value).toEqual([]);
  });

  it("does not let one session's lost connection hold another's prompt, and survives a damaged entry", async () => {
    const storage = new MemoryStorage();
    storage.setItem("piton.outbox.x", "{damaged");
    const { client } = world([json(ACCEPTED, 202)]);
    const outbox = new Outbox(client, storage);
    expect(outbox.prompts.value).toEqual([]);
    expect(await outbox.send("s", "x")).toEqual(ACCEPTED);
  });

  it("says when nothing can be kept, and sends all the same", async () => {
    const storage = new MemoryStorage();
    storage.isFull = true;
    const { client } = world([json(ACCEPTED, 202)]);
    const outbox = new Outbox(client, storage);
    const sending = outbox.send("s", "x");
    expect(outbox.isDurable.value).toBe(false);
    await sending;
    expect(outbox.prompts.value).toEqual([]);
    expect(new Outbox(client, null).isDurable.value).toBe(false);
  });

  it("does not deliver what is too old for its key", async () => {
    const storage = new MemoryStorage();
    const { client, environment, sent } = world([]);
    void new Outbox(client, storage).send("s", "x").catch(() => {});
    await environment.advance(5_000);
    const asked = sent().length;
    environment.sleep(24 * 3_600_000);
    const outbox = new Outbox(client, storage);
    await outbox.flush();
    await settle();
    expect(sent().length).toBe(asked);
    expect(outbox.prompts.value[0]?.refusal?.code).toBe("request_timeout");
  });
});
