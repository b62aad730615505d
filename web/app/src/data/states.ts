// What a session's status means to a person: its place on the home screen, its mark, its words.
import type { SessionSummary, Task } from "piton-client";
import type { Tone } from "../ui/parts.tsx";

export type Group = "needs_you" | "working" | "recent" | "closed";
export type MarkName = "asks" | "interrupted" | "failed" | "working" | "paused" | "idle" | "done" | "closed";

const CLOSED = new Set(["completed", "failed", "cancelled"]);

export function isClosed(session: SessionSummary): boolean {
  return CLOSED.has(session.status);
}

export function isWorking(session: SessionSummary): boolean {
  return session.status === "running" || session.status === "starting";
}

export function isInterrupted(session: SessionSummary): boolean {
  return session.status === "interrupted_startup" || session.status === "interrupted_waiting";
}

export function groupOf(session: SessionSummary): Group {
  if (isClosed(session)) return "closed";
  if (isWorking(session)) return "working";
  if (session.status === "idle" && session.reason !== "queue_held") return "recent";
  return "needs_you";
}

export function markOf(session: SessionSummary): { name: MarkName; tone: Tone; label: string } {
  switch (session.status) {
    case "waiting":
      return { name: "asks", tone: "waiting", label: "Waits for you" };
    case "interrupted_startup":
    case "interrupted_waiting":
      return { name: "interrupted", tone: "waiting", label: "Interrupted" };
    case "error":
      return { name: "failed", tone: "error", label: "Error" };
    case "running":
      return { name: "working", tone: "accent", label: "Working" };
    case "starting":
      return { name: "working", tone: "accent", label: "Starting" };
    case "paused":
      return { name: "paused", tone: "waiting", label: "Paused" };
    case "completed":
    case "cancelled":
      return { name: "closed", tone: "normal", label: "Closed" };
    case "failed":
      return { name: "closed", tone: "error", label: "Closed as failed" };
    case "idle":
      return idleMark(session);
  }
}

function idleMark(session: SessionSummary): { name: MarkName; tone: Tone; label: string } {
  if (session.reason === "queue_held") return { name: "paused", tone: "waiting", label: "Queue held" };
  if (session.last_outcome === "completed") return { name: "done", tone: "ok", label: "Done" };
  if (session.last_outcome === "failed") return { name: "failed", tone: "error", label: "Failed" };
  return { name: "idle", tone: "normal", label: "Idle" };
}

/** The title, or what is known instead of one. */
export function titleOf(session: Pick<SessionSummary, "title" | "working_dir" | "session_id">): string {
  if (session.title) return session.title;
  const folder = session.working_dir?.split("/").filter(Boolean).pop();
  return folder ? `Session in ${folder}` : session.session_id;
}

/** The folder's name; a worktree of Piton's own is named after its session, which says nothing: its branch does. */
export function folderOf(session: Pick<SessionSummary, "working_dir" | "worktree_path" | "session_id">): string {
  const name = (session.working_dir ?? session.worktree_path ?? "").split("/").filter(Boolean).pop() ?? "";
  return name === session.session_id ? "" : name;
}

/** A few words for the line below a title. */
export function stateWords(session: SessionSummary): string {
  switch (session.status) {
    case "waiting":
      return session.reason === "permission" ? "asks for permission" : "asks you something";
    case "interrupted_startup":
    case "interrupted_waiting":
      return "interrupted";
    case "error":
      return session.reason === "executor_unreachable" ? "executor does not respond" : "error";
    case "running":
      return "working";
    case "starting":
      return "starting";
    case "paused":
      return "paused";
    case "idle":
      return session.reason === "queue_held" ? "queued prompts are held" : "";
    default:
      return `closed as ${session.status}`;
  }
}

export const TASK_STATES: Record<Task["state"], { label: string; tone: Tone }> = {
  TODO: { label: "To do", tone: "normal" },
  IN_PROGRESS: { label: "In progress", tone: "accent" },
  REVIEW: { label: "Review", tone: "waiting" },
  COMPLETED: { label: "Completed", tone: "ok" },
  FAILED: { label: "Failed", tone: "error" },
  CANCELLED: { label: "Cancelled", tone: "normal" },
};
