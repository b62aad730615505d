// A session's branch and its base. An older server does not offer these operations: then nothing of it is shown.
import { ProblemError } from "piton-client";
import { client } from "../../data/account.ts";

export type Branch = {
  branch: string | null;
  head: string | null;
  base: string | null;
  ahead: number;
  behind: number;
  uncommitted: number;
  remotes: string[];
};
export type Strategy = "merge" | "squash" | "rebase";

function call<T>(method: "get" | "post", session: string, what: string, body?: unknown): Promise<T> {
  const path = `/api/v1/sessions/{session_id}/git/${what}`;
  const options = { path: { session_id: session }, ...(body === undefined ? {} : { body }) };
  return client.call(method, path as never, options as never) as Promise<T>;
}

/** Null: the server does not know branches. */
export async function readBranch(session: string): Promise<Branch | null> {
  try {
    return await call<Branch>("get", session, "branch");
  } catch (error) {
    if (error instanceof ProblemError && error.status === 404) return null;
    throw error;
  }
}

export const commit = (session: string, message: string) => call<{ commit: string }>("post", session, "commit", { message });
export const merge = (session: string, strategy: Strategy) => call<{ into: string; commit: string; was_up_to_date: boolean }>("post", session, "merge", { strategy });
export const push = (session: string) => call<{ remote: string; branch: string }>("post", session, "push", {});

export function isConflict(error: unknown): boolean {
  return error instanceof ProblemError && (error.code as string) === "merge_conflict";
}
