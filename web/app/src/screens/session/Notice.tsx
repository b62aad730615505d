import type { Item } from "piton-client";
import { agentName } from "../../data/agents.ts";
import { clock, plural } from "../../lib/format.ts";
import { now } from "../../lib/now.ts";
import { readable } from "../../lib/text.ts";

type NoticeItem = Extract<Item, { type: "notice" }>;

const REASONS: Record<string, string> = {
  process_restart: "the machine or the server restarted",
  process_exit: "the agent's process ended",
  wait_timeout: "a question was not answered in time",
  agent_gave_up: "the agent ended before it received the prompt, three times",
  agent_start_failed: "the agent could not be started",
  abandoned: "the executor was abandoned",
  superseded: "a new prompt took its place",
  user_request: "on request",
  permission_rejected: "a permission was rejected",
};

/** Null: nothing that a person needs to read. */
export function noticeText(item: NoticeItem, agent: string | null): { text: string; tone: "normal" | "waiting" | "error" } | null {
  const name = agentName(agent);
  const because = item.reason ? (REASONS[item.reason] ?? item.reason.replaceAll("_", " ")) : "";
  const details = item.text ? `: ${readable(item.text)}` : "";
  switch (item.kind) {
    case "run.interrupted":
      return { text: `Interrupted${because ? `: ${because}` : ""}`, tone: "waiting" };
    case "run.resumed":
      return { text: "Continued", tone: "normal" };
    case "run.reattached":
      return { text: `The server restarted; ${name} kept working`, tone: "normal" };
    case "run.paused":
      return { text: "Paused", tone: "normal" };
    case "run.failed":
      return { text: `Failed${details}`, tone: "error" };
    case "run.cancelled":
      return { text: `Cancelled${because ? `: ${because}` : ""}`, tone: "normal" };
    case "run.dismissed":
      return { text: "Interruption dismissed", tone: "normal" };
    case "wait.cancelled":
      return { text: "A question was withdrawn", tone: "normal" };
    case "permission.decided":
      return { text: "A standing rule answered a permission request", tone: "normal" };
    case "agent.error":
      return { text: `${name} reported an error${details}`, tone: "error" };
    case "agent.session_cleared":
      return { text: `${name} does not know its conversation any more; a new one begins with the next prompt`, tone: "waiting" };
    case "agent.history_diverged":
      return { text: `What ${name} replayed differs from the log`, tone: "waiting" };
    case "executor.error":
      return { text: `The executor failed${details}`, tone: "error" };
    case "executor.abandoned":
      return { text: "The executor was abandoned", tone: "waiting" };
    case "prompt.prepared":
      return { text: `${name} was given what it had lost: history or a summary of the interruption`, tone: "normal" };
    case "workspace.restored":
      return { text: `Files went back to a checkpoint: ${plural(item.files ?? 0, "file")} restored`, tone: "waiting" };
    case "lineage.started":
      return { text: "Rewound: the conversation continues from an earlier point", tone: "waiting" };
    case "session.closed":
      return { text: "Session closed", tone: "normal" };
    default:
      return null;
  }
}

const UNDONE = { text: "The rewind was undone", tone: "normal" } as const;

export function Notice({ item, agent, isUndo }: { item: NoticeItem; agent: string | null; isUndo?: boolean }) {
  const notice = isUndo ? UNDONE : noticeText(item, agent);
  if (!notice) return null;
  return (
    <p class="event" data-tone={notice.tone} data-notice={item.kind}>
      <span>{notice.text}</span>
      <time class="numeric nowrap" dateTime={item.ts}>
        {clock(item.ts, now.peek())}
      </time>
    </p>
  );
}
