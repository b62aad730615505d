// How one can log in to an agent. Its error says it: the record `agent.error` names the agent's login methods.
import type { Item, LogRecord } from "piton-client";
import { client } from "../../data/account.ts";
import { useLoaded } from "../workspace/load.ts";

export type LoginMethod = { id: string; name: string; description: string | null };

/** The seq of the agent's last error among what is loaded; null: it is not there. */
export function lastAgentError(items: readonly Item[]): number | null {
  return items.findLast((item) => item.type === "notice" && item.kind === "agent.error")?.seq ?? null;
}

export function loginMethodsOf(record: LogRecord | undefined): LoginMethod[] {
  const named = record?.kind === "agent.error" ? record["auth_methods"] : null;
  if (!Array.isArray(named)) return [];
  return named.flatMap((method: unknown) => {
    const { id, name, description } = Object(method) as Record<string, unknown>;
    if (typeof id !== "string" || id === "") return [];
    return [{ id, name: typeof name === "string" && name !== "" ? name : id, description: typeof description === "string" && description !== "" ? description : null }];
  });
}

async function readMethods(session: string, seq: number): Promise<LoginMethod[]> {
  const page = await client.call("get", "/api/v1/sessions/{session_id}/records", { path: { session_id: session }, query: { after: seq - 1, limit: 1 } });
  return loginMethodsOf(page.records[0] as unknown as LogRecord | undefined);
}

/** Null: they are being read. None: the agent named none, or it is not known. */
export function useLoginMethods(session: string, errorSeq: number | null): readonly LoginMethod[] | null {
  const loaded = useLoaded(`${session} ${errorSeq ?? ""}`, async () => (errorSeq === null ? [] : await readMethods(session, errorSeq)));
  return loaded.error ? [] : loaded.value;
}
