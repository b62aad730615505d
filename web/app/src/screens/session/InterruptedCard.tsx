import type { GitStatus, Item, SessionStatus } from "piton-client";
import { useEffect, useState } from "preact/hooks";
import { api } from "../../data/actions.ts";
import { agentName } from "../../data/agents.ts";
import { current } from "../../data/session.ts";
import { clock, count, plural } from "../../lib/format.ts";
import { now } from "../../lib/now.ts";
import { revealed } from "../../lib/text.ts";
import { Button } from "../../ui/Button.tsx";
import { Ago, Card } from "../../ui/parts.tsx";
import { describe } from "./tool.ts";

const PHASES: Record<string, (agent: string) => string> = {
  starting: (agent) => `before ${agent} received the prompt`,
  answering: (agent) => `while ${agent} was answering`,
  running_tool: (agent) => `while ${agent} was running a tool`,
  waiting: (agent) => `while ${agent} was waiting for you`,
};

const STRATEGIES: Record<string, (agent: string) => string> = {
  native: (agent) => `${agent} can load its own conversation.`,
  command_line: (agent) => `${agent} can continue its own conversation.`,
  history: (agent) => `${agent} starts fresh and is given the history.`,
  none: (agent) => `${agent} starts without its conversation.`,
};

type Agent = Extract<Item, { type: "agent" }>;
type Tool = Extract<Item, { type: "tool" }>;

/** What the run said last, and what is not known about it. */
function remains(items: readonly Item[], run: string | undefined): { words: number; unknown: Tool[] } {
  const own = items.filter((item) => item.run_id === run);
  const answers = own.filter((item): item is Agent => item.type === "agent" && item.channel === "answer" && !item.complete);
  const last = answers[answers.length - 1]?.text ?? "";
  const unknown = own.filter((item): item is Tool => item.type === "tool" && item.status === "unknown");
  return { words: last.split(/\s+/).filter(Boolean).length, unknown };
}

/** What git says now, if it can be asked. */
function useWorkspace(status: SessionStatus): GitStatus | null {
  const [git, setGit] = useState<GitStatus | null>(null);
  useEffect(() => {
    let isCurrent = true;
    api(status.session_id)
      .gitStatus()
      .then((found) => {
        if (isCurrent) setGit(found);
      })
      // The card says less then.
      .catch(() => {});
    return () => {
      isCurrent = false;
    };
  }, [status.session_id, status.interruption?.interrupted_at]);
  return git;
}

export function InterruptedCard({ status }: { status: SessionStatus }) {
  const interruption = status.interruption;
  const agent = agentName(status.agent_profile_id);
  const git = useWorkspace(status);
  const { words, unknown } = remains(current.value?.view.value?.items ?? [], interruption?.run_id);
  const phase = interruption?.phase ? PHASES[interruption.phase]?.(agent) : undefined;
  const when = interruption?.interrupted_at;
  return (
    <Card
      tone="waiting"
      name="interrupted"
      title={`Interrupted${when ? ` ${clock(when, now.peek())}` : ""}${phase ? ` ${phase}` : ""}`}
      aside={when ? <Ago at={when} /> : null}
      actions={
        <>
          <Button look="primary" onClick={() => api(status.session_id).resume({ continue: true })}>
            Resume
          </Button>
          <Button onClick={() => api(status.session_id).resume({ continue: true, context: "none" })}>Resume without context</Button>
          <Button look="plain" onClick={() => api(status.session_id).dismiss()}>
            Dismiss
          </Button>
        </>
      }
    >
      <p>
        {interruption?.sentence ?? status.sentence} {STRATEGIES[status.resume_strategy]?.(agent)}
        {words > 0 && ` Its last answer was cut off after ${plural(words, "word")}.`}
      </p>
      {unknown.length > 0 && (
        <div>
          <p>Not known: {unknown.length === 1 ? "this call was running" : "these calls were running"}, and may have happened wholly or in part.</p>
          <ul class="unknown-calls">
            {unknown.slice(0, 8).map((call) => {
              const { verb, object } = describe(call, status.working_dir ?? null);
              return (
                <li key={call.call_id}>
                  <span class="muted">{verb}</span> <code>{revealed(object)}</code>
                </li>
              );
            })}
            {unknown.length > 8 && <li class="muted">and {count(unknown.length - 8)} more</li>}
          </ul>
        </div>
      )}
      {git?.repository && (
        <p class="muted">
          Workspace now: {git.changed.length === 0 ? "nothing changed" : `${plural(git.changed.length, "file")}${git.truncated ? " or more" : ""} changed`}
          {git.head && (
            <>
              , HEAD <code>{git.head.slice(0, 7)}</code>
            </>
          )}
        </p>
      )}
      {(status.queue?.length ?? 0) > 0 && <p class="muted">{plural(status.queue?.length ?? 0, "queued prompt")} held until you resume.</p>}
    </Card>
  );
}
