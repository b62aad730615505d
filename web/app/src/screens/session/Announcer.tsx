import type { SessionStatus, SessionView } from "piton-client";
import { useEffect, useRef, useState } from "preact/hooks";
import { agentName } from "../../data/agents.ts";
import { firstLine } from "../../lib/text.ts";

const SAID_CHARS_MAX = 400;

/** For screen readers: what a person sees change, once it is whole. A stream of words is not read out. */
export function Announcer({ view, status }: { view: SessionView; status: SessionStatus | null }) {
  const [said, setSaid] = useState("");
  const last = useRef<{ status: string | null; answer: string | null }>({ status: null, answer: null });
  const answer = view.items.findLast((item) => item.type === "agent" && item.channel === "answer" && item.complete);
  const agent = agentName(status?.agent_profile_id);
  useEffect(() => {
    if (answer?.type !== "agent") return;
    const isFirst = last.current.answer === null;
    if (last.current.answer === answer.message_id) return;
    last.current.answer = answer.message_id;
    // What was there when the page was opened is read by the reader on its own.
    if (!isFirst) setSaid(`${agent}: ${firstLine(answer.text ?? "", SAID_CHARS_MAX)}`);
  }, [answer]);
  useEffect(() => {
    const now = status ? `${status.status} ${status.reason} ${status.waits[0]?.wait_id ?? ""}` : null;
    const before = last.current.status;
    last.current.status = now;
    if (!status || before === null || before === now) return;
    if (status.status === "waiting") setSaid(`${agent} asks: ${status.waits[0]?.permission?.command ?? status.waits[0]?.permission?.title ?? status.sentence}`);
    else if (status.status !== "running" && status.status !== "idle") setSaid(status.sentence);
  }, [status]);
  return (
    <div class="visually-hidden" aria-live="polite" role="status">
      {said}
    </div>
  );
}
