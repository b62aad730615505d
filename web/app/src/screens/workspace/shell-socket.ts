// A shell's bytes over a WebSocket, attached again when the connection or the server was lost.
import { client } from "../../data/account.ts";

export type ShellState = "connecting" | "live" | "lost" | "ended";
type Handlers = { onData: (data: Uint8Array) => void; onState: (state: ShellState) => void; onAttach: () => void; onEnd: () => void };

const DELAY_MIN_MS = 500;
const DELAY_MAX_MS = 10_000;
const EARLY_MAX = 256;
const CHUNK_BYTES_MAX = 200 * 1024;
/** The shell is not there any more, or has ended: attaching again is of no use. */
const ENDED_CODES = new Set([1000]);

export class ShellSocket {
  readonly #address: string;
  readonly #handlers: Handlers;
  #socket: WebSocket | null = null;
  #delay = DELAY_MIN_MS;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isClosed = false;
  readonly #early: Uint8Array<ArrayBuffer>[] = [];

  constructor(sessionId: string, shellId: string, handlers: Handlers) {
    const path = `/api/v1/sessions/${encodeURIComponent(sessionId)}/shells/${encodeURIComponent(shellId)}/socket`;
    this.#address = client.address.replace(/^http/, "ws") + path;
    this.#handlers = handlers;
    this.#connect();
  }

  #connect(): void {
    const socket = new WebSocket(this.#address, ["piton.v1", `bearer.${client.token.value ?? ""}`]);
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    socket.onopen = () => {
      this.#delay = DELAY_MIN_MS;
      this.#handlers.onAttach();
      this.#handlers.onState("live");
      for (const data of this.#early.splice(0)) this.send(data);
    };
    socket.onmessage = ({ data }) => {
      if (data instanceof ArrayBuffer) this.#handlers.onData(new Uint8Array(data));
    };
    socket.onclose = ({ code }) => {
      if (this.#isClosed || this.#socket !== socket) return;
      if (ENDED_CODES.has(code)) {
        this.#handlers.onState("ended");
        this.#handlers.onEnd();
        return;
      }
      this.#handlers.onState("lost");
      this.#timer = setTimeout(() => this.#connect(), this.#delay);
      this.#delay = Math.min(this.#delay * 2, DELAY_MAX_MS);
    };
  }

  send(data: Uint8Array<ArrayBuffer>): void {
    if (this.#socket?.readyState !== WebSocket.OPEN) {
      // Typed while the shell is being attached; after a longer loss it might run where it was not meant to.
      if (this.#socket?.readyState === WebSocket.CONNECTING && this.#early.length < EARLY_MAX) this.#early.push(data);
      return;
    }
    for (let at = 0; at < data.length; at += CHUNK_BYTES_MAX) this.#socket.send(data.slice(at, at + CHUNK_BYTES_MAX));
  }

  resize(cols: number, rows: number): void {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify({ resize: { cols, rows } }));
  }

  /** Leaves the shell running. */
  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#socket?.close();
  }
}
