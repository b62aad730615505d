/** Names for the types of the API, which are generated from its OpenAPI description (`api.gen.ts`). */
import type { components, paths } from "./api.gen.js";

export type { components, operations, paths } from "./api.gen.js";

export type Schemas = components["schemas"];
export type Schema<Name extends keyof Schemas> = Schemas[Name];

export type AccessScope = Schemas["AccessScope"];
export type AccessToken = Schemas["AccessToken"];
export type Agent = Schemas["Agent"];
export type AgentChoice = Schemas["AgentChoice"];
export type AgentView = Schemas["AgentView"];
export type Code = Schemas["Code"];
export type ContextChoice = Schemas["ContextChoice"];
export type ContinueChoice = Schemas["ContinueChoice"];
export type Execution = Schemas["Execution"];
export type FileEntry = Schemas["FileEntry"];
export type GitChange = Schemas["GitChange"];
export type GitCommit = Schemas["GitCommit"];
export type GitDiff = Schemas["GitDiff"];
export type GitStatus = Schemas["GitStatus"];
export type IfBusy = Schemas["IfBusy"];
export type Interruption = Schemas["Interruption"];
export type NewSession = Schemas["NewSession"];
export type PermissionRequest = Schemas["PermissionRequest"];
export type PlanEntry = Schemas["PlanEntry"];
export type Problem = Schemas["Problem"];
export type PromptAccepted = Schemas["PromptAccepted"];
export type QueuedPrompt = Schemas["QueuedPrompt"];
export type SessionState = Schemas["SessionState"];
export type SessionStatus = Schemas["SessionStatus"];
export type SessionSummary = Schemas["SessionSummary"];
export type ShellInfo = Schemas["ShellInfo"];
export type StatusName = Schemas["StatusName"];
export type Task = Schemas["Task"];
export type Usage = Schemas["Usage"];
export type Wait = Schemas["Wait"];

/** A task as lists and events have it. */
export type TaskSummary = Omit<Task, "sessions">;

/** A content block of a prompt, as the Agent Client Protocol has it. */
export type ContentBlock =
  | { type: "text"; text: string }
  | { type: "image"; data: string; mimeType: string; uri?: string }
  | { type: "audio"; data: string; mimeType: string }
  | { type: "resource_link"; uri: string; name: string; mimeType?: string; title?: string; description?: string; size?: number }
  | { type: "resource"; resource: { uri: string; mimeType?: string; text?: string; blob?: string } };

/** What a prompt is made of: text, or content blocks. */
export type PromptContent = string | ContentBlock[];

/** A record of a session's log: `seq`, `ts`, `kind` and the kind's fields. */
export interface LogRecord {
  seq: number;
  ts: string;
  kind: string;
  [field: string]: unknown;
}

/** The event that precedes a record which changes the session's status. */
export interface StateChanged {
  session_id: string;
  task_id: string | null;
  seq: number;
  ts: string;
  old_state: SessionState | null;
  new_state: SessionState | null;
  old_status: StatusName;
  status: StatusName;
  reason: string | null;
  sentence: string | null;
}

/** Operations by method and path, e.g. `GET` and `/api/v1/sessions/{session_id}`. */
export type Method = "get" | "post" | "put" | "patch" | "delete";
export type PathOf<M extends Method> = {
  [P in keyof paths]: paths[P][M] extends { responses: unknown } ? P : never;
}[keyof paths] &
  string;

type Operation<M extends Method, P extends keyof paths> = paths[P][M];
type Content<T> = T extends { content: infer C } ? (C extends { [media: string]: infer B } ? B : never) : never;

export type PathParams<M extends Method, P extends keyof paths> =
  Operation<M, P> extends { parameters: { path: infer T } } ? T : undefined;
export type QueryParams<M extends Method, P extends keyof paths> =
  Operation<M, P> extends { parameters: { query?: infer T } } ? T : undefined;
export type BodyOf<M extends Method, P extends keyof paths> =
  Operation<M, P> extends { requestBody?: infer B } ? Content<NonNullable<B>> : undefined;
type Success<R> = { [S in keyof R]: S extends 200 | 201 | 202 | 204 ? R[S] : never }[keyof R];
export type ResponseOf<M extends Method, P extends keyof paths> =
  Operation<M, P> extends { responses: infer R } ? Content<Success<R>> : never;
