/** One shell: refused for good, dead and silent connections, and what was typed too early. */
import { expect, test } from "vitest";
import { PitonClient } from "../src/client.js";
import { ShellConnection, type ShellExit } from "../src/shell.js";
import { FakeEnvironment, json, problem } from "./fakes.js";

class FakeSocket {
  static all: FakeSocket[] = [];
  readonly sent: unknown[] = [];
  readyState = 0;
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: ((event: { code: number }) => void) | null = null;
  constructor() {
    FakeSocket.all.push(this);
  }
  send(data: unknown): void {
    this.sent.push(typeof data === "string" ? data : new TextDecoder().decode(data as Uint8Array));
  }
  close(code = 1006): void {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.onclose?.({ code });
  }
  open(): void {
    this.readyState = 1;
    this.onopen?.();
  }
}

function world() {
  FakeSocket.all = [];
  const shells = [{ shell_id: "sh_1", is_ended: false }];
  const server = { isDown: false, isGone: false };
  const environment = new FakeEnvironment(() => {
    if (server.isDown) throw new TypeError("network");
    return server.isGone ? problem(404, "session_not_found") : json({ shells });
  }, FakeSocket);
  const client = new PitonClient({ address: "https://piton.test", token: "a.b", environment });
  const seen = { resets: 0, exits: [] as ShellExit[], bytes: 0 };
  const shell = new ShellConnection(client, "ses_1", "sh_1", {
    onData: (bytes) => void (seen.bytes += bytes.length),
    onReset: () => void (seen.resets += 1),
    onExit: (exit) => void seen.exits.push(exit),
  });
  const last = () => {
    const socket = FakeSocket.all.at(-1);
    if (!socket) throw new Error("no socket");
    return socket;
  };
  return { environment, shells, server, shell, seen, last };
}

test("a refused handshake: not tried for ever when the shell or its session is gone", async () => {
  for (const gone of ["shell", "session"] as const) {
    const { environment, shells, server, shell, last } = world();
    shell.start();
    await environment.advance(0);
    if (gone === "shell") shells.splice(0);
    else server.isGone = true;
    last().close();
    await environment.advance(120_000);
    expect(shell.connection.value).toMatchObject({ phase: "refused", problem: { code: gone === "shell" ? "shell_not_found" : "session_not_found" } });
    expect(FakeSocket.all).toHaveLength(1);
  }
});

test("a refused handshake while the shell is there, or the server is down, is tried again", async () => {
  const { environment, server, shell, seen, last } = world();
  shell.start();
  await environment.advance(0);
  last().close();
  await environment.advance(2_000);
  expect(shell.connection.value.phase).toBe("reconnecting");
  server.isDown = true;
  last().close();
  await environment.advance(60_000);
  server.isDown = false;
  await environment.advance(60_000);
  last().open();
  await environment.advance(0);
  expect(shell.connection.value.phase).toBe("live");
  expect(seen.resets).toBe(1);
});

test("a quiet shell stays connected; a dead connection is noticed and made again", async () => {
  const { environment, server, shell, last } = world();
  shell.start();
  await environment.advance(0);
  last().open();
  await environment.advance(300_000);
  expect(FakeSocket.all).toHaveLength(1);
  expect(shell.connection.value.phase).toBe("live");
  // The network is gone without a word: no close, no output.
  server.isDown = true;
  await environment.advance(20_000);
  expect(shell.connection.value.phase).toBe("reconnecting");
  expect(shell.send("rm -rf build\n")).toBe(false);
  server.isDown = false;
  await environment.advance(60_000);
  last().open();
  await environment.advance(0);
  expect(shell.connection.value.phase).toBe("live");
  expect(last().sent).toEqual([]);
});

test("what is typed before the first connection is sent with it, behind the size", async () => {
  const { environment, shell, last, seen } = world();
  shell.resize(100, 30);
  shell.start();
  expect(shell.send("ls\n")).toBe(true);
  await environment.advance(0);
  last().open();
  expect(last().sent).toEqual(['{"resize":{"cols":100,"rows":30}}', "ls\n"]);
  last().onmessage?.({ data: new TextEncoder().encode("out").buffer });
  last().onmessage?.({ data: '{"exit_code":0,"signal":null}' });
  last().close(1000);
  await environment.advance(60_000);
  expect(seen).toEqual({ resets: 1, bytes: 3, exits: [{ exit_code: 0, signal: null }] });
  expect(shell.connection.value.phase).toBe("refused");
});
