/** What a conversation is made of. The server's pages of messages have the same shape. */
import type { PromptContent } from "../types.js";

export interface UserItem {
  type: "user";
  seq: number;
  ts: string;
  message_id: string;
  run_id: string | null;
  /** Attachments are named in it; null if it was redacted. */
  text: string | null;
  /** Null if it was redacted, or is larger than a page of messages shows: the record of `seq` has it. */
  content: PromptContent | null;
  /** A rewind left it behind: it is not a part of the conversation as it is now. */
  abandoned?: boolean;
}

export interface AgentItem {
  type: "agent";
  seq: number;
  ts: string;
  message_id: string;
  run_id: string | null;
  /** `thought` is what the agent thinks aloud. */
  channel: "answer" | "thought";
  /** Null if it was redacted. */
  text: string | null;
  complete: boolean;
  /** A part of what the agent said is missing: it was over a limit. */
  truncated: boolean;
  /** A rewind left it behind: it is not a part of the conversation as it is now. */
  abandoned?: boolean;
}

export type ToolState = "pending" | "succeeded" | "failed" | "cancelled" | "unknown";

export interface ToolItem {
  type: "tool";
  seq: number;
  ts: string;
  ended_at: string | null;
  call_id: string;
  run_id: string;
  /** Null if only the outcome is known. */
  name: string | null;
  title: string | null;
  /** As the agent spells it: `read`, `edit`, `execute`, … */
  kind: string | null;
  arguments: unknown;
  /** What it shows, as the Agent Client Protocol has it: text, diffs, terminals. */
  content: unknown[] | null;
  locations: unknown[] | null;
  /** `unknown`: it may have happened, wholly or in part. */
  status: ToolState;
  result: unknown;
  /** A rewind left it behind: it is not a part of the conversation as it is now. */
  abandoned?: boolean;
}

/** Something that happened to the conversation: the record's kind says what. */
export interface NoticeItem {
  type: "notice";
  seq: number;
  ts: string;
  kind: NoticeKind;
  run_id: string | null;
  reason: string | null;
  code: string | null;
  /** Of an error: what it says. */
  text: string | null;
  /** Of a rewind: where it went back to. */
  checkpoint_id?: string;
  /** Of a rewind of the conversation: its last record that is still a part of it. */
  from_seq?: number;
  /** Of a rewind of the files: how many were restored. */
  files?: number;
  /** A rewind left it behind: it is not a part of the conversation as it is now. */
  abandoned?: boolean;
}

export const NOTICE_KINDS = [
  "run.interrupted",
  "run.resumed",
  "run.reattached",
  "run.paused",
  "run.failed",
  "run.cancelled",
  "run.dismissed",
  "wait.cancelled",
  "permission.decided",
  "agent.error",
  "agent.session_cleared",
  "agent.history_diverged",
  "executor.error",
  "executor.abandoned",
  "prompt.prepared",
  "workspace.restored",
  "lineage.started",
  "session.closed",
] as const;
export type NoticeKind = (typeof NOTICE_KINDS)[number];

export type Item = UserItem | AgentItem | ToolItem | NoticeItem;
