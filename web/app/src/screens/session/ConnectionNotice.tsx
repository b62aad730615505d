import type { ConnectionState } from "piton-client";
import { elapsed } from "../../lib/format.ts";
import { now } from "../../lib/now.ts";

/** Shorter gaps are not worth a word. */
const QUIET_MS = 1_000;

/** A lost connection is the page's matter and never looks like an interruption of the session. */
export function ConnectionNotice({ connection }: { connection: ConnectionState }) {
  const { phase, since, isOffline, problem } = connection;
  const lasted = now.value - since;
  if (phase === "refused") {
    return (
      <p class="notice" data-tone="error" role="alert" data-card="refused">
        {problem?.code === "session_not_found" ? "This session was deleted. What you see is the last that was known." : (problem?.message ?? "The server refuses the stream.")}
      </p>
    );
  }
  if ((phase !== "reconnecting" && phase !== "connecting") || lasted < QUIET_MS) return null;
  return (
    <p class="notice" role="status" data-card="reconnecting">
      <span>
        {phase === "connecting" ? "Connecting" : "Reconnecting"}
        {isOffline ? " (this device is offline)" : "…"} <span class="numeric">{elapsed(lasted / 1000)}</span>. The agent keeps working on the server.
      </span>
    </p>
  );
}
