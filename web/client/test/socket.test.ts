import { describe, expect, it } from "vitest";
import { PitonClient } from "../src/client.js";
import { ListStore } from "../src/list-store.js";
import { PitonSocket } from "../src/socket.js";
import { FakeEnvironment, json, settle } from "./fakes.js";

/** A WebSocket whose other side is the test. */
class FakeSocket {
  static all: FakeSocket[] = [];
  readonly sent: { id: string; method: string; params: Record<string, unknown> }[] = [];
  readyState = 0;
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: string }) => void) | null = null;
  onclose: ((event: { code: number }) => void) | null = null;
  onerror: (() => void) | null = null;
  readonly url: string;
  readonly protocols: string[];

  constructor(url: string, protocols: string[]) {
    this.url = url;
    this.protocols = protocols;
    FakeSocket.all.push(this);
  }

  send(text: string): void {
    this.sent.push(JSON.parse(text));
  }

  close(code = 1000): void {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.onclose?.({ code });
  }

  open(): void {
    this.readyState = 1;
    this.onopen?.();
  }

  /** What the server says. */
  say(message: unknown): void {
    this.onmessage?.({ data: JSON.stringify(message) });
  }

  /** Answers the last request of a method. */
  answer(method: string, result: unknown): void {
    const request = this.sent.findLast((one) => one.method === method);
    this.say({ id: request?.id, result });
  }
}

function record(session: string, seq: number, more = false): unknown {
  const event = more ? "session.state_changed" : "session.record";
  const payload = { session_id: session, task_id: null, seq, ts: "t", ...(more ? { more, status: "running", new_state: "RUNNING" } : { kind: "run.paused", record: { seq, ts: "t", kind: "run.paused" } }) };
  return { event, payload };
}

function world() {
  FakeSocket.all = [];
  const environment = new FakeEnvironment(() => json({ sessions: [], next: null }), FakeSocket);
  const client = new PitonClient({ address: "https://piton.test", token: "a.b", environment });
  const socket = new PitonSocket(client);
  const seqs: number[] = [];
  const changes: (string | null)[] = [];
  const onRecords = (deliveries: { record: { seq: number }; change: { status: string } | null }[]) => {
    for (const delivery of deliveries) {
      seqs.push(delivery.record.seq);
      changes.push(delivery.change?.status ?? null);
    }
  };
  const records = socket.records("s", { after: 0, onRecords });
  const last = () => {
    const socket = FakeSocket.all.at(-1);
    if (!socket) throw new Error("no socket");
    return socket;
  };
  return { environment, client, socket, records, seqs, changes, last };
}

describe("PitonSocket", () => {
  it("carries the token among the subprotocols, and subscribes after the last record over lost sockets", async () => {
    const { environment, records, seqs, changes, last } = world();
    records.start();
    await settle();
    expect(last().url).toBe("wss://piton.test/api/v1/ws");
    expect(last().protocols).toEqual(["piton.v1", "bearer.a.b"]);
    last().open();
    last().answer("session.subscribe", {});
    await settle();
    expect(records.connection.value.phase).toBe("live");
    last().say(record("s", 1));
    last().say(record("other", 7));
    last().say(record("s", 2, true));
    last().close(1006);
    await environment.advance(2_000);
    expect(records.connection.value.phase).toBe("reconnecting");
    last().open();
    expect(last().sent[0]).toMatchObject({ method: "session.subscribe", params: { session_id: "s", after: 1 } });
    last().say(record("s", 1));
    last().say(record("s", 2, true));
    last().say(record("s", 2));
    await settle();
    expect(seqs).toEqual([1, 2]);
    expect(changes).toEqual([null, "running"]);
  });

  it("connects again when a record is missing", async () => {
    const { environment, records, seqs, last } = world();
    records.start();
    await settle();
    last().open();
    last().say(record("s", 1));
    last().say(record("s", 3));
    await environment.advance(2_000);
    last().open();
    expect(last().sent[0]?.params["after"]).toBe(1);
    last().say(record("s", 2));
    last().say(record("s", 3));
    expect(seqs).toEqual([1, 2, 3]);
  });

  it("answers calls, and fails those whose socket is lost", async () => {
    const { environment, socket, records, last } = world();
    await expect(socket.call("task.session.status")).rejects.toThrow("not connected");
    records.start();
    await settle();
    last().open();
    const good = socket.call("task.session.status", { session_id: "s" });
    last().answer("task.session.status", { state: "RUNNING" });
    expect(await good).toEqual({ state: "RUNNING" });
    const lost = socket.call("task.session.list").catch((error: Error) => error.name);
    last().close(1006);
    await environment.advance(100);
    expect(await lost).toBe("ConnectionError");
  });

  it("asks whether the server is there, and gives up a socket that is silent", async () => {
    const { environment, records, last } = world();
    records.start();
    await settle();
    const first = last();
    first.open();
    await environment.advance(16_000);
    expect(first.sent.some((one) => one.method === "ping")).toBe(true);
    await environment.advance(60_000);
    expect(first.readyState).toBe(3);
    expect(last()).not.toBe(first);
  });

  it("is signed out when the token is revoked, and closes with its last subscription", async () => {
    const { environment, client, records, socket, last } = world();
    records.start();
    await settle();
    last().open();
    last().close(1008);
    await environment.advance(60_000);
    expect(records.connection.value.phase).toBe("signed_out");
    client.setToken("c.d");
    await settle();
    last().open();
    last().answer("session.subscribe", {});
    await settle();
    expect(records.connection.value.phase).toBe("live");
    records.stop();
    await settle();
    expect(socket.connection.value.phase).toBe("stopped");
  });

  it("says that a session was deleted", async () => {
    const { records, last } = world();
    records.start();
    await settle();
    last().open();
    const problem = { type: "", title: "gone", status: 404, code: "session_not_found", hint: "" };
    last().say({ event: "session.unsubscribed", payload: { session_id: "s", error: problem } });
    expect(records.connection.value).toMatchObject({ phase: "refused", problem: { code: "session_not_found" } });
  });

  it("lets no old request undo a newer one when a session is left and opened again", async () => {
    const { records, socket, seqs, last } = world();
    const index = socket.index(() => {});
    index.start();
    records.start();
    await settle();
    last().open();
    last().answer("tasks.subscribe", {});
    last().answer("session.subscribe", {});
    await settle();
    records.stop();
    const again = socket.records("s", { after: 0, onRecords: (deliveries) => void seqs.push(...deliveries.map((one) => one.record.seq)) });
    again.start();
    await settle();
    const methods = () => last().sent.map((one) => one.method);
    expect(methods()).toEqual(["session.subscribe", "tasks.subscribe", "session.unsubscribe"]);
    last().answer("session.unsubscribe", {});
    await settle();
    expect(methods().at(-1)).toBe("session.subscribe");
    last().answer("session.subscribe", {});
    last().say(record("s", 1));
    await settle();
    expect(again.connection.value.phase).toBe("live");
    expect(seqs).toEqual([1]);
  });

  it("carries the list of sessions, and a whole listing after each connection", async () => {
    const { environment, client, last } = world();
    const shared = new PitonSocket(client);
    const list = new ListStore(client, { socket: shared });
    const changes: string[] = [];
    list.onChange(({ after }) => void changes.push(after.session_id));
    list.start();
    await settle();
    last().open();
    expect(last().sent[0]).toMatchObject({ method: "tasks.subscribe", params: { sessions: true } });
    last().answer("tasks.subscribe", {});
    const entry = (id: string, seq: number) => ({ event: "index", payload: { session_id: id, last_seq: seq, active_at: String(seq) } });
    last().say({ event: "listing", payload: { sessions: 2, tasks: 0, truncated: false } });
    last().say(entry("a", 1));
    expect(list.list.value.isLoaded).toBe(false);
    last().say(entry("b", 2));
    await settle();
    expect(list.connection.value.phase).toBe("live");
    expect(list.list.value.sessions.map((one) => one.session_id)).toEqual(["b", "a"]);
    last().close(1006);
    await settle();
    expect(list.connection.value.phase).toBe("reconnecting");
    await environment.advance(2_000);
    last().open();
    last().answer("tasks.subscribe", {});
    last().say({ event: "listing", payload: { sessions: 1, tasks: 0, truncated: false } });
    last().say(entry("a", 3));
    await settle();
    expect(list.list.value.sessions.map((one) => one.session_id)).toEqual(["a"]);
    expect(changes).toEqual(["a"]);
    list.stop();
  });
});
