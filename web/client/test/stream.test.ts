import { describe, expect, it } from "vitest";
import { PitonClient } from "../src/client.js";
import { type Delivery, RecordStream } from "../src/stream.js";
import { FakeEnvironment, FakeStream, problem, settle } from "./fakes.js";

function frame(seq: number): string {
  return `id: ${seq}\nevent: run.paused\ndata: {"seq":${seq},"ts":"t","kind":"run.paused"}\n\n`;
}

function change(seq: number): string {
  return `event: session.state_changed\ndata: {"seq":${seq},"status":"running","new_state":"RUNNING"}\n\n`;
}

/** A server that answers each connection by the next of `answers`, and then never. */
function world(answers: (Response | Error)[]) {
  const asked: (string | null)[] = [];
  const environment = new FakeEnvironment((_, init) => {
    asked.push(new Headers(init.headers).get("last-event-id"));
    const answer = answers.shift() ?? new Promise<Response>(() => {});
    if (answer instanceof Error) throw answer;
    return answer;
  });
  const client = new PitonClient({ address: "http://piton.test", token: "a.b", environment });
  const got: Delivery[] = [];
  const stream = new RecordStream(client, "sess_1", { after: 0, onRecords: (deliveries) => void got.push(...deliveries) });
  const phases: string[] = [];
  stream.connection.subscribe((state) => void phases.push(state.phase));
  return { asked, environment, client, got, stream, phases, seqs: () => got.map((one) => one.record.seq) };
}

describe("RecordStream", () => {
  it("continues after the last record, without a gap or a repeat", async () => {
    const [first, second] = [new FakeStream(), new FakeStream()];
    const { stream, environment, asked, seqs, phases } = world([first.response, new TypeError("refused"), second.response]);
    stream.start();
    await settle();
    first.write(frame(1) + frame(2) + frame(3).slice(0, 20));
    await settle();
    first.fail();
    await environment.advance(5_000);
    second.write(frame(2) + frame(3));
    await settle();
    expect(seqs()).toEqual([1, 2, 3]);
    expect(asked).toEqual(["0", "2", "2"]);
    expect(phases).toEqual(["stopped", "connecting", "live", "reconnecting", "live"]);
  });

  it("connects again when a record is missing", async () => {
    const [first, second] = [new FakeStream(), new FakeStream()];
    const { stream, environment, asked, seqs } = world([first.response, second.response]);
    stream.start();
    await settle();
    first.write(frame(1) + frame(3));
    await environment.advance(2_000);
    second.write(frame(2) + frame(3));
    await settle();
    expect(seqs()).toEqual([1, 2, 3]);
    expect(asked).toEqual(["0", "1"]);
  });

  it("gives a change of the status with its record only, also over a cut between the two", async () => {
    const [first, second] = [new FakeStream(), new FakeStream()];
    const { stream, environment, got } = world([first.response, second.response]);
    stream.start();
    await settle();
    first.write(frame(1) + change(2));
    await settle();
    first.end();
    await environment.advance(2_000);
    second.write(change(2) + frame(2));
    await settle();
    expect(got.map((one) => [one.record.seq, one.change?.status ?? null])).toEqual([[1, null], [2, "running"]]);
  });

  it("waits longer after each failure, and at most 30 seconds", async () => {
    const { stream, environment, asked } = world(Array.from({ length: 40 }, () => new TypeError("refused")));
    stream.start();
    await settle();
    const times: number[] = [];
    let known = asked.length;
    for (let ms = 0; ms < 120_000; ms += 25) {
      await environment.advance(25);
      if (asked.length > known) times.push(environment.now());
      known = asked.length;
    }
    const delays = times.slice(1).map((at, index) => at - (times[index] ?? 0));
    expect(delays[0]).toBeLessThanOrEqual(1_000);
    for (const [index, delay] of delays.entries()) if (index > 0) expect(delay).toBeGreaterThanOrEqual(delays[index - 1] ?? 0);
    expect(Math.max(...delays)).toBeLessThanOrEqual(30_000);
    expect(delays.at(-1)).toBeGreaterThanOrEqual(15_000);
  }, 20_000);

  it("is reconnecting while the device is offline, and connects at once when it is back", async () => {
    const [first, second] = [new FakeStream(), new FakeStream()];
    const refused = Array.from({ length: 3 }, () => new TypeError("offline"));
    const { stream, environment, phases, asked } = world([first.response, ...refused, second.response]);
    stream.start();
    await settle();
    environment.wake("offline");
    await environment.advance(3_000);
    expect(stream.connection.value).toMatchObject({ phase: "reconnecting", isOffline: true });
    const before = asked.length;
    environment.wake("online");
    await settle();
    expect(asked.length).toBe(before + 1);
    expect(phases).not.toContain("refused");
  });

  it("notices silence, and sleep", async () => {
    const streams = Array.from({ length: 3 }, () => new FakeStream());
    const { stream, environment, asked } = world(streams.map((one) => one.response));
    stream.start();
    await settle();
    for (let beat = 0; beat < 6; beat += 1) {
      streams[0]?.write(": here\n\n");
      await environment.advance(15_000);
    }
    expect(asked.length).toBe(1);
    await environment.advance(42_000);
    expect(asked.length).toBe(2);
    environment.sleep(25_000);
    environment.wake("visible");
    await environment.advance(1_000);
    expect(asked.length).toBe(3);
  });

  it("ends at a deleted session, and waits for another token when signed out", async () => {
    const gone = world([problem(404, "session_not_found")]);
    gone.stream.start();
    await settle();
    expect(gone.stream.connection.value).toMatchObject({ phase: "refused", problem: { code: "session_not_found" } });

    const next = new FakeStream();
    const out = world([problem(401, "unauthenticated"), next.response]);
    out.stream.start();
    await out.environment.advance(120_000);
    expect(out.stream.connection.value.phase).toBe("signed_out");
    expect(out.client.signedOut.value?.code).toBe("unauthenticated");
    expect(out.asked.length).toBe(1);
    out.client.setToken("c.d");
    await settle();
    expect(out.stream.connection.value.phase).toBe("live");
    expect(out.client.signedOut.value).toBeNull();
  });

  it("asks again after a server that is overloaded or restarts", async () => {
    const next = new FakeStream();
    const { stream, environment } = world([problem(503, "server_not_ready"), problem(500, "store_poisoned"), next.response]);
    stream.start();
    await environment.advance(5_000);
    expect(stream.connection.value.phase).toBe("live");
  });

  it("stops for good", async () => {
    const first = new FakeStream();
    const { stream, environment, asked } = world([first.response]);
    stream.start();
    await settle();
    stream.stop();
    await environment.advance(60_000);
    expect(asked.length).toBe(1);
    expect(stream.connection.value.phase).toBe("stopped");
    expect(first.isCancelled).toBe(true);
  });
});
