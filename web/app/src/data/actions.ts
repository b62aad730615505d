// One session's operations, by its id. Each is one request; its effect comes back with the records.
import { type PermissionRequest, SessionApi } from "piton-client";
import { client } from "./account.ts";

export function api(sessionId: string): SessionApi {
  return new SessionApi(client, sessionId);
}

export type PermissionOption = PermissionRequest["options"][number];

export function isReject(option: PermissionOption): boolean {
  return (option.kind ?? option.option_id).startsWith("reject");
}
