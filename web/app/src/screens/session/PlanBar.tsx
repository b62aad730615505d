import type { AgentView } from "piton-client";
import { count } from "../../lib/format.ts";
import { readable } from "../../lib/text.ts";
import { Disclosure } from "../../ui/parts.tsx";

const SIGNS: Record<string, { sign: string; label: string }> = {
  completed: { sign: "✓", label: "done" },
  in_progress: { sign: "●", label: "in progress" },
  pending: { sign: "○", label: "to do" },
};

/** The plan with its progress, and what the agent reports about its context window and cost. */
export function PlanBar({ agent, isLive }: { agent: AgentView; isLive: boolean }) {
  const { plan, usage } = agent;
  if (plan.length === 0 && !usage) return null;
  const done = plan.filter((entry) => entry.status === "completed").length;
  const now = plan.find((entry) => entry.status === "in_progress");
  const isFinished = plan.length > 0 && done === plan.length && !isLive;
  if (plan.length === 0 || isFinished) {
    return usage ? (
      <div class="plan-usage-alone">
        <UsageLine usage={usage} />
      </div>
    ) : null;
  }
  return (
    <Disclosure
      class="plan"
      summary={
        <>
          <span>Plan</span>
          <span class="numeric muted">
            {done}/{plan.length}
          </span>
          <span class="truncate grow muted">{now ? readable(now.content) : ""}</span>
          {usage && <UsageLine usage={usage} />}
        </>
      }
    >
      <ol class="plan-list">
        {plan.map((entry, at) => {
          const sign = SIGNS[entry.status ?? "pending"] ?? { sign: "○", label: entry.status ?? "" };
          return (
            <li key={at} data-status={entry.status}>
              <span class="plan-sign" aria-hidden="true">{sign.sign}</span>
              <span class="visually-hidden">{sign.label}: </span>
              <span class="wrap">{readable(entry.content)}</span>
            </li>
          );
        })}
      </ol>
    </Disclosure>
  );
}

export function UsageLine({ usage }: { usage: NonNullable<AgentView["usage"]> }) {
  const { context_tokens, context_window_tokens, cost, total_tokens } = usage;
  const percent = context_tokens != null && context_window_tokens ? Math.round((context_tokens / context_window_tokens) * 100) : null;
  const parts = [
    percent !== null ? `context ${percent} %` : null,
    percent === null && total_tokens != null ? `${count(total_tokens)} tokens` : null,
    cost ? `${cost.amount.toFixed(2)} ${cost.currency}` : null,
  ].filter(Boolean);
  if (parts.length === 0) return null;
  const title = context_tokens != null && context_window_tokens ? `${count(context_tokens)} of ${count(context_window_tokens)} tokens` : "";
  return (
    <span class="muted small nowrap numeric" title={title}>
      {parts.join(" · ")}
    </span>
  );
}
