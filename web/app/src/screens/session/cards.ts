// Which state cards a session shows, and which panels work: decided from its status alone.
import type { SessionStatus } from "piton-client";

export type CardName =
  | "starting"
  | "executor-failed"
  | "executor-unreachable"
  | "agent-failed"
  | "workspace-failed"
  | "context-lost"
  | "paused"
  | "interrupted"
  | "resume"
  | "not-resumable"
  | "queue-held"
  | "read-only"
  | "closed";

const EXECUTOR_REASONS = new Set(["executor_error", "executor_unreachable"]);
const WORKSPACE_REASONS = new Set(["workspace_missing", "worktree_missing", "branch_missing", "base_missing", "repository_missing"]);

function errorCard(status: SessionStatus): CardName {
  if (status.reason === "executor_unreachable") return "executor-unreachable";
  if (WORKSPACE_REASONS.has(status.reason)) return "workspace-failed";
  if (EXECUTOR_REASONS.has(status.reason)) return "executor-failed";
  return "agent-failed";
}

export function cardsOf(status: SessionStatus): CardName[] {
  if (status.read_only) return ["read-only"];
  switch (status.status) {
    case "completed":
    case "failed":
    case "cancelled":
      return ["closed"];
    case "error":
      return status.choices.length > 0 ? [errorCard(status), "context-lost"] : [errorCard(status)];
    case "starting":
      return ["starting"];
    case "interrupted_startup":
    case "interrupted_waiting":
      return status.choices.length > 0 ? ["interrupted", "context-lost"] : ["interrupted"];
    case "paused":
      return ["paused"];
    default:
      return quietCards(status);
  }
}

function quietCards(status: SessionStatus): CardName[] {
  const cards: CardName[] = [];
  if (status.choices.length > 0) cards.push("context-lost");
  else if (status.needs_resume && status.is_resumable) cards.push("resume");
  else if (!status.is_resumable && !status.is_agent_running && status.resume_reason === "not_resumable") cards.push("not-resumable");
  if (status.queue?.held && status.queue.length > 0) cards.push("queue-held");
  return cards;
}

export type PanelState = { isUsable: boolean; sentence: string | null };

/** Shell, files and git work as soon as the executor responds, with an agent or without one. */
export function panelState(status: SessionStatus | null): PanelState {
  if (!status) return { isUsable: false, sentence: null };
  if (WORKSPACE_REASONS.has(status.reason)) return { isUsable: false, sentence: status.error_message ?? status.sentence };
  if (status.reason === "executor_unreachable") return { isUsable: false, sentence: "The executor does not respond." };
  if (status.executor_status === "starting") return { isUsable: false, sentence: "The executor is starting." };
  return { isUsable: true, sentence: null };
}
