// What can be done with a graph in the state that it is in: this stands where a conversation has its prompt box.
import type { GraphRun, OpenWait, SessionStatus } from "piton-client";
import { useState } from "preact/hooks";
import { api } from "../../data/actions.ts";
import { isClosed, isInterrupted } from "../../data/states.ts";
import { readable } from "../../lib/text.ts";
import { Button } from "../../ui/Button.tsx";
import { Card, Field } from "../../ui/parts.tsx";
import { ResumeDialog } from "./ResumeDialog.tsx";

type Option = { option_id: string; name: string };

function optionsOf(question: unknown): Option[] {
  const options = (Object(question) as Record<string, unknown>)["options"];
  return Array.isArray(options) ? (options as Option[]) : [];
}

function textOf(question: unknown): string {
  if (typeof question === "string") return question;
  const text = (Object(question) as Record<string, unknown>)["question"];
  return typeof text === "string" ? text : JSON.stringify(question, null, 2);
}

/** A question of a graph to a person: one of its options, or an answer in words. */
export function GraphQuestion({ sessionId, wait }: { sessionId: string; wait: OpenWait }) {
  const [answer, setAnswer] = useState("");
  const options = optionsOf(wait.question);
  const send = (value: unknown) => api(sessionId).answer(wait.wait_id, value as Record<string, unknown>);
  return (
    <Card
      tone="waiting"
      name="graph-question"
      title="The graph waits for a person"
      actions={
        options.length > 0 ? (
          options.map((option, at) => (
            <Button key={option.option_id} look={at === 0 ? "primary" : "normal"} onClick={() => send({ option_id: option.option_id })}>
              {readable(option.name)}
            </Button>
          ))
        ) : (
          <Button look="primary" disabled={answer.trim() === ""} onClick={() => send(answer)}>Answer</Button>
        )
      }
    >
      <p class="plain-text">{readable(textOf(wait.question))}</p>
      {options.length === 0 && (
        <Field label="Your answer">
          {({ id }) => <textarea class="input" rows={2} id={id} value={answer} onInput={(event) => setAnswer(event.currentTarget.value)} />}
        </Field>
      )}
    </Card>
  );
}

/** `waits` are as the records have them: the status may lag behind, and a wait is answered once. */
type Props = { status: SessionStatus; waits: readonly OpenWait[]; run: GraphRun; error: string | null };

export function GraphActions({ status, waits, run, error }: Props) {
  const [isResuming, setResuming] = useState(false);
  const own = api(status.session_id);
  if (isClosed(status) || status.read_only) return null;
  const failed = run.nodes.find((node) => node.node === run.failed_at_node);
  const isAtWork = status.status === "running" || status.status === "waiting" || status.status === "starting";
  // A fork begins without a run.
  const title = status.status === "paused" ? "Paused" : isInterrupted(status) ? "Interrupted" : status.last_outcome === "cancelled" ? "Cancelled" : "Not started";
  const resume = <Button look="primary" onClick={() => setResuming(true)}>Resume…</Button>;
  return (
    <>
      {waits.map((wait) => <GraphQuestion key={wait.wait_id} sessionId={status.session_id} wait={wait} />)}
      {!isAtWork && failed && (
        <Card tone="error" name="graph-failed" title={`Failed at ${failed.node}`} actions={resume}>
          <p class="cause mono">{readable(failed.error ?? error ?? "The error was redacted.")}</p>
          <p class="muted small">Everything before it is kept. A resume can set other values first.</p>
        </Card>
      )}
      {!isAtWork && !failed && status.last_outcome !== "completed" && (
        <Card tone="waiting" name="graph-stopped" title={title} actions={<>{resume}{isInterrupted(status) && <Button onClick={() => own.dismiss()}>Dismiss</Button>}</>}>
          <p>{status.sentence}</p>
        </Card>
      )}
      {isAtWork && (
        <div class="graph-buttons">
          {status.status === "running" && <Button icon="pause" onClick={() => own.pause()}>Pause</Button>}
          <Button icon="stop" look="danger" onClick={() => own.cancel()}>Cancel the run</Button>
          {status.status === "running" && <span class="muted small">A pause waits for the nodes that run.</span>}
        </div>
      )}
      {isResuming && <ResumeDialog sessionId={status.session_id} checkpointId={null} onClose={() => setResuming(false)} />}
    </>
  );
}
