import { promptText, type OutgoingPrompt } from "piton-client";
import { saveDraft } from "../../data/drafts.ts";
import { outbox } from "../../data/outbox.ts";
import { firstLine } from "../../lib/text.ts";
import { Button } from "../../ui/Button.tsx";
import { Card, Elapsed } from "../../ui/parts.tsx";

/** Prompts that the server does not have yet, or refused. */
export function Outgoing({ prompts }: { prompts: readonly OutgoingPrompt[] }) {
  return (
    <>
      {prompts.map((prompt) =>
        prompt.refusal ? (
          <Card
            key={prompt.key}
            tone="error"
            name="refused-prompt"
            title="This prompt was refused"
            actions={
              <>
                <Button onClick={() => { saveDraft(prompt.session_id, promptText(prompt.content)); outbox.drop(prompt.key); location.reload(); }}>Edit</Button>
                <Button look="plain" onClick={() => outbox.drop(prompt.key)}>Drop</Button>
              </>
            }
          >
            <p class="wrap">{firstLine(promptText(prompt.content))}</p>
            <p>{prompt.refusal.title}</p>
            <p class="muted small">{prompt.refusal.hint}</p>
          </Card>
        ) : (
          <div key={prompt.key} class="message" data-role="user" data-sending>
            <h3 class="message-head">
              <span>You</span>
              <span role="status">
                sending <Elapsed since={new Date(prompt.created_at).toISOString()} />
              </span>
            </h3>
            <div class="user-text wrap">{promptText(prompt.content)}</div>
          </div>
        ),
      )}
    </>
  );
}
