import type { Wait } from "piton-client";
import { useState } from "preact/hooks";
import { api } from "../../data/actions.ts";
import { readable } from "../../lib/text.ts";
import { Button } from "../../ui/Button.tsx";
import { Card, Field } from "../../ui/parts.tsx";

const TITLES: Record<Wait["kind"], string> = {
  input: "needs an answer",
  permission: "asks for permission",
  tool_result: "waits for a tool's result",
  human: "waits for a person",
  other: "waits",
};

function questionText(question: unknown): string {
  if (typeof question === "string") return question;
  const fields = Object(question) as Record<string, unknown>;
  const direct = [fields["text"], fields["message"], fields["prompt"], fields["question"]].find((value) => typeof value === "string");
  return typeof direct === "string" ? direct : question ? JSON.stringify(question, null, 2) : "";
}

/** A question that is no permission request: answered in words. */
export function WaitCard({ wait, agent }: { wait: Wait; agent: string }) {
  const [answer, setAnswer] = useState("");
  const send = async () => {
    let value: unknown = answer;
    try {
      value = JSON.parse(answer);
    } catch {
      // Ordinary words are an answer as they are.
    }
    await api(wait.session_id).answer(wait.wait_id, value as Record<string, unknown>);
  };
  return (
    <Card
      tone="waiting"
      name="wait"
      title={`${agent} ${TITLES[wait.kind]}`}
      actions={
        <Button look="primary" disabled={answer.trim() === ""} onClick={send}>
          Answer
        </Button>
      }
    >
      <p class="wrap">{readable(questionText(wait.question))}</p>
      <Field label="Your answer">
        {({ id }) => <textarea class="input" rows={2} id={id} value={answer} onInput={(event) => setAnswer(event.currentTarget.value)} />}
      </Field>
    </Card>
  );
}
