// Whether a session's agent takes images. The status does not say it: it is known when the agent starts while the page
// looks on, and when a prompt was refused for it.
import { signal } from "@preact/signals";
import type { LogRecord } from "piton-client";

const known = signal<ReadonlyMap<string, boolean>>(new Map());

/** True unless the agent is known not to: then the server decides. */
export function takesImages(session: string): boolean {
  return known.value.get(session) ?? true;
}

export function noteImages(session: string, takes: boolean): void {
  if (known.value.get(session) !== takes) known.value = new Map([...known.value, [session, takes]]);
}

export function noteCapabilities(session: string, record: LogRecord): void {
  if (record.kind !== "agent.initialized") return;
  const capabilities = record["capabilities"] as { prompt?: { image?: boolean } } | null | undefined;
  if (capabilities) noteImages(session, capabilities.prompt?.image === true);
}
