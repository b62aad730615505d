/** A shell of a session's workspace: its screen and keyboard. A lost connection is made again; the shell keeps running meanwhile. */
import type { PitonClient } from "./client.js";
import { Connector } from "./connector.js";
import { ConnectionError, ProblemError } from "./errors.js";

/** Most bytes of one message. */
const MESSAGE_BYTES_MAX = 256 * 1024;
/** After this time without output the server is asked whether the shell is still there: a page cannot ping a socket. */
const QUIET_MS = 15_000;
/** Typed before the first connection is made. */
const EARLY_MAX = 256;
const CLOSED_NORMALLY = 1000;
const CLOSED_NOT_ALLOWED = 1008;

export interface ShellExit {
  exit_code: number | null;
  signal: number | null;
}

export interface ShellOptions {
  /** What the shell writes. After each connection it begins with the last 64 KiB, before which `onReset` is called. */
  onData(bytes: Uint8Array): void;
  /** What is shown is about to be sent again: clear it. */
  onReset(): void;
  onExit(exit: ShellExit): void;
}

export class ShellConnection extends Connector {
  readonly #path: string;
  readonly #options: ShellOptions;
  #socket: WebSocket | null = null;
  #hasConnected = false;
  #heardAt = 0;
  readonly #early: Uint8Array[] = [];
  readonly #sessionId: string;
  readonly #shellId: string;
  #size: { cols: number; rows: number } | null = null;

  constructor(client: PitonClient, sessionId: string, shellId: string, options: ShellOptions) {
    super(client);
    this.#shellId = shellId;
    this.#sessionId = sessionId;
    this.#path = `/api/v1/sessions/${encodeURIComponent(sessionId)}/shells/${encodeURIComponent(shellId)}/socket`;
    this.#options = options;
  }

  /**
   * Types into the shell; false if there is no connection: nothing was typed. What is typed before the first connection is
   * sent with it; after a loss it is not, since it might run where it was not meant to.
   */
  send(data: string | Uint8Array): boolean {
    const socket = this.#socket;
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    if (!socket || socket.readyState !== 1) {
      if (this.#hasConnected || this.#early.length >= EARLY_MAX) return false;
      this.#early.push(bytes);
      return true;
    }
    for (let from = 0; from < bytes.length; from += MESSAGE_BYTES_MAX) socket.send(bytes.slice(from, from + MESSAGE_BYTES_MAX));
    return true;
  }

  /** Resizes the terminal, now and after each reconnection. */
  resize(cols: number, rows: number): void {
    this.#size = { cols, rows };
    if (this.#socket?.readyState === 1) this.#socket.send(JSON.stringify({ resize: this.#size }));
  }

  protected override async connect(signal: AbortSignal): Promise<void> {
    const { environment } = this.client;
    if (!environment.WebSocket) throw new ConnectionError("There is no WebSocket here");
    const url = this.client.address.replace(/^http/, "ws") + this.#path;
    const socket = new environment.WebSocket(url, ["piton.v1", `bearer.${this.client.token.value}`]);
    socket.binaryType = "arraybuffer";
    const onAbort = () => socket.close();
    signal.addEventListener("abort", onAbort, { once: true });
    let isEnded = false;
    let wasOpen = false;
    const stopProbing = this.#probeWhenQuiet(socket, signal);
    try {
      const code = await new Promise<number>((resolve) => {
        socket.onopen = () => {
          wasOpen = true;
          this.#socket = socket;
          this.#options.onReset();
          if (this.#size) socket.send(JSON.stringify({ resize: this.#size }));
          this.#hasConnected = true;
          for (const bytes of this.#early.splice(0)) this.send(bytes);
          this.live();
          this.progressed();
        };
        socket.onmessage = ({ data }: MessageEvent<ArrayBuffer | string>) => {
          this.heard();
          this.#heardAt = this.client.environment.now();
          if (typeof data !== "string") return this.#options.onData(new Uint8Array(data));
          isEnded = true;
          this.#options.onExit(JSON.parse(data) as ShellExit);
        };
        // `close` follows.
        socket.onerror = () => {};
        socket.onclose = (event) => resolve(event.code);
        signal.addEventListener("abort", () => resolve(CLOSED_NORMALLY), { once: true });
        if (signal.aborted) onAbort();
      });
      if (isEnded) throw refusal(404, "shell_not_found", "The shell has ended");
      if (code === CLOSED_NOT_ALLOWED) throw refusal(401, "unauthenticated", "The token is not accepted any more");
      // A refused handshake says nothing about its cause to a page: ask over HTTP, which throws it.
      if (!wasOpen && !signal.aborted) await this.#askForShell(signal);
    } finally {
      stopProbing();
      signal.removeEventListener("abort", onAbort);
      [socket.onopen, socket.onmessage, socket.onclose] = [null, null, null];
      this.#socket = null;
    }
  }

  /** Throws why there is nothing to attach to: the session or the shell is gone, or the token is not accepted. */
  async #askForShell(signal: AbortSignal): Promise<void> {
    const path = { session_id: this.#sessionId };
    const { shells } = await this.client.call("get", "/api/v1/sessions/{session_id}/shells", { path, signal });
    if (!shells.some((shell) => shell.shell_id === this.#shellId && !shell.is_ended)) throw refusal(404, "shell_not_found", "The shell has ended");
  }

  /** A shell that says nothing and a network that is gone look the same: an answer over HTTP tells them apart. */
  #probeWhenQuiet(socket: WebSocket, signal: AbortSignal): () => void {
    const { environment } = this.client;
    let end = () => {};
    const next = () => {
      end = environment.setTimeout(() => {
        if (this.#socket !== socket || environment.now() - this.#heardAt < QUIET_MS) return next();
        // What fails ends this connection; the next attempt finds out why.
        this.#askForShell(signal).then(() => {
          this.heard();
          next();
        }, () => socket.close());
      }, QUIET_MS);
    };
    next();
    return () => end();
  }
}

function refusal(status: number, code: "shell_not_found" | "unauthenticated", title: string): ProblemError {
  return new ProblemError({ type: `urn:piton:error:${code}`, title, status, code, hint: "" });
}
