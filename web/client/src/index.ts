export { Backoff } from "./backoff.js";
export { type CallOptions, type ClientOptions, PitonClient } from "./client.js";
export { type ConnectionPhase, type ConnectionState, Connector } from "./connector.js";
export { type Environment, hostEnvironment, type Wake } from "./environment.js";
export { ConnectionError, hasCode, isPitonError, type PitonError, ProblemError } from "./errors.js";
export { promptText } from "./fold/content.js";
export { foldGraph, type GraphEdge, GraphFold, type GraphNode, type GraphNodeState, type GraphRun } from "./fold/graph.js";
export type { AgentItem, Item, NoticeItem, NoticeKind, ToolItem, ToolState, UserItem } from "./fold/items.js";
export { isInSegments, type Lineage, segmentsOf } from "./fold/lineages.js";
export {
  foldRecords,
  type InterruptionView,
  type OpenWait,
  type Outcome,
  type QueueEntry,
  type RunPhase,
  type RunView,
  SessionFold,
  type SessionSeed,
  type SessionView,
  type StatusView,
} from "./fold/session.js";
export { ListStore, type SessionChange, type SessionList } from "./list-store.js";
export { Observable, type ReadonlyObservable } from "./observable.js";
export { type KeyValueStorage, Outbox, type OutgoingPrompt } from "./outbox.js";
export { type PromptOptions, type RequestOptions, SessionApi } from "./session-api.js";
export { type LoadState, type RecordListener, SessionStore, type SessionStoreOptions } from "./session-store.js";
export { ShellConnection, type ShellExit, type ShellOptions } from "./shell.js";
export { PitonSocket } from "./socket.js";
export { type Delivery, type IndexEvent, IndexStream, type RecordSource, RecordStream, type RecordStreamOptions } from "./stream.js";
export type * from "./types.js";
