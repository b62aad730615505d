/** Each method is one request: what it asks, where, and what it leaves out. */
import { describe, expect, it } from "vitest";
import { PitonClient, SessionApi } from "../src/index.js";
import { FakeEnvironment, json } from "./fakes.js";

function world(answer: unknown) {
  const environment = new FakeEnvironment(() => json(answer));
  const api = new SessionApi(new PitonClient({ address: "http://piton.test", token: "a.b", environment }), "sess_1");
  const sent = () => {
    const { url, init } = environment.requests.at(-1) ?? { url: "", init: {} };
    return { what: `${init.method} ${url.replace("http://piton.test/api/v1/sessions/sess_1", "")}`, body: init.body ? (JSON.parse(String(init.body)) as unknown) : null, key: new Headers(init.headers).get("idempotency-key") };
  };
  return { api, sent };
}

describe("a session's", () => {
  it("rewind says what goes back, and a dry run changes nothing", async () => {
    const { api, sent } = world({ session_id: "sess_1", checkpoint_id: "cp_1", dry_run: true });
    expect((await api.rewind({ checkpoint: "cp_1", files: true, conversation: false, dry_run: true })).dry_run).toBe(true);
    expect(sent()).toMatchObject({ what: "POST /rewind", body: { checkpoint: "cp_1", files: true, conversation: false, dry_run: true } });
    await api.undo();
    expect(sent()).toMatchObject({ what: "POST /undo", body: {} });
    await api.undo({ force: true });
    expect(sent().body).toEqual({ force: true });
    // A rewind whose answer was lost is not done twice.
    expect(sent().key).toBeTruthy();
  });

  it("checkpoints and comparisons are read", async () => {
    const { api, sent } = world({ checkpoints: [], changes: [] });
    await api.turnCheckpoints();
    expect(sent()).toEqual({ what: "GET /turn-checkpoints", body: null, key: null });
    await api.filesDiff("cp_1");
    expect(sent().what).toBe("GET /diff?from=cp_1");
    await api.filesDiff("cp_1", "cp_2");
    expect(sent().what).toBe("GET /diff?from=cp_1&to=cp_2");
    await api.memoryDiff("cp_1", "latest");
    expect(sent().what).toBe("GET /checkpoints/diff?from=cp_1&to=latest");
    await api.checkpoints(20);
    expect(sent().what).toBe("GET /checkpoints?limit=20");
    await api.checkpoint("cp_1", { memory: true });
    expect(sent().what).toBe("GET /checkpoints/cp_1?include_memory=true");
  });

  it("graph is read, resumed with values, and forked from a checkpoint", async () => {
    const { api, sent } = world({ session_id: "sess_2" });
    await api.graph();
    expect(sent().what).toBe("GET /graph");
    await api.graph({ memory: true });
    expect(sent().what).toBe("GET /graph?include_memory=true");
    await api.resumeGraph({ checkpoint_id: "cp_1", recorded_graph: false, set: {} });
    expect(sent()).toMatchObject({ what: "POST /graph/resume", body: { checkpoint_id: "cp_1", set: {} } });
    expect((await api.fork({ checkpoint_id: "cp_1" })).session_id).toBe("sess_2");
    expect(sent()).toMatchObject({ what: "POST /fork", body: { checkpoint_id: "cp_1" } });
  });

  it("queued prompt is read whole, and edited as the version that was read", async () => {
    const { api, sent } = world({ message_id: "m1", version: 7 });
    await api.queuedPrompt("m1");
    expect(sent()).toEqual({ what: "GET /queue/m1", body: null, key: null });
    await api.editQueued("m1", [{ type: "text", text: "new" }], 7);
    expect(sent()).toMatchObject({ what: "PATCH /queue/m1", body: { content: [{ type: "text", text: "new" }], version: 7 } });
  });

  it("conversation is read with what rewinds left behind", async () => {
    const { api, sent } = world({ messages: [] });
    await api.bootstrap();
    expect(sent().what).toBe("GET /bootstrap?limit=200&abandoned=true");
    await api.messagesBefore(9, 5);
    expect(sent().what).toBe("GET /messages?before=9&limit=5&abandoned=true");
  });
});
