/** What the library needs from where it runs. Tests and other hosts bring their own. */

export type Wake = "online" | "offline" | "visible" | "hidden";

export interface Environment {
  fetch(input: string, init: RequestInit): Promise<Response>;
  /** Absent where there is none: SSE is used then. */
  readonly WebSocket: (new (url: string, protocols: string[]) => WebSocket) | undefined;
  now(): number;
  random(): number;
  randomId(): string;
  setTimeout(callback: () => void, ms: number): () => void;
  isOnline(): boolean;
  isVisible(): boolean;
  /** Calls back when the network or the page's visibility changes; returns what ends that. */
  watch(listener: (wake: Wake) => void): () => void;
}

/** The browser, a worker, or Node. */
export function hostEnvironment(): Environment {
  const page = typeof document === "undefined" ? undefined : document;
  const host: Partial<Pick<typeof globalThis, "addEventListener" | "removeEventListener">> = globalThis;
  return {
    fetch: (input, init) => globalThis.fetch(input, init),
    WebSocket: globalThis.WebSocket,
    now: () => Date.now(),
    random: () => Math.random(),
    randomId,
    setTimeout: (callback, ms) => {
      const timer = globalThis.setTimeout(callback, ms);
      return () => globalThis.clearTimeout(timer);
    },
    // `undefined` where the environment does not say: then requests decide.
    isOnline: () => globalThis.navigator?.onLine !== false,
    isVisible: () => page?.visibilityState !== "hidden",
    watch: (listener) => {
      const online = () => listener("online");
      const offline = () => listener("offline");
      const visibility = () => listener(page?.visibilityState === "hidden" ? "hidden" : "visible");
      host.addEventListener?.("online", online);
      host.addEventListener?.("offline", offline);
      page?.addEventListener("visibilitychange", visibility);
      return () => {
        host.removeEventListener?.("online", online);
        host.removeEventListener?.("offline", offline);
        page?.removeEventListener("visibilitychange", visibility);
      };
    },
  };
}

/** 128 random bits. `crypto.randomUUID` exists in secure contexts only; `getRandomValues` everywhere. */
function randomId(): string {
  const bytes = globalThis.crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
