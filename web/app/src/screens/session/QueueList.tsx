import { hasCode, type PromptContent, promptText, type QueueEntry } from "piton-client";
import { useState } from "preact/hooks";
import { api } from "../../data/actions.ts";
import { attachmentsOf, withWords, wordsOf } from "../../data/prompt.ts";
import { plural } from "../../lib/format.ts";
import { firstLine, readable } from "../../lib/text.ts";
import { Button } from "../../ui/Button.tsx";
import { Dialog } from "../../ui/Dialog.tsx";
import { Disclosure, Field, Loading } from "../../ui/parts.tsx";
import { report } from "../../ui/toasts.ts";
import { Problem } from "../workspace/Problem.tsx";
import { useLoaded } from "../workspace/load.ts";
import { ImageBlock } from "./ImageBlock.tsx";

/** The server's queue: what is delivered when the run ends, in order. */
export function QueueList({ sessionId, queue }: { sessionId: string; queue: readonly QueueEntry[] }) {
  const [edited, setEdited] = useState<QueueEntry | null>(null);
  if (queue.length === 0) return null;
  const own = api(sessionId);
  return (
    <Disclosure class="queue" open summary={<span>{plural(queue.length, "queued prompt")}{queue[0]?.held ? " · held" : ""}</span>}>
      <ol class="queue-list">
        {queue.map((entry, at) => (
          <li key={entry.message_id}>
            <span class="numeric muted">{entry.position}</span>
            <span class="truncate grow" title={entry.text}>{firstLine(entry.text)}</span>
            {at > 0 && <Button icon="up" look="plain" dense label="Move up" onClick={() => own.moveQueued(entry.message_id, at)} />}
            <Button icon="edit" look="plain" dense label="Edit the queued prompt" onClick={() => setEdited(entry)} />
            <Button icon="trash" look="plain" dense label="Remove the queued prompt" onClick={() => own.removeQueued(entry.message_id)} />
          </li>
        ))}
      </ol>
      {edited && <EditDialog entry={edited} sessionId={sessionId} onClose={() => setEdited(null)} />}
    </Disclosure>
  );
}

/** A list cuts long prompts and leaves attachments out: what is edited is read whole, as the version that it has then. */
function EditDialog({ entry, sessionId, onClose }: { entry: QueueEntry; sessionId: string; onClose: () => void }) {
  const loaded = useLoaded(`${sessionId} ${entry.message_id}`, () => api(sessionId).queuedPrompt(entry.message_id));
  const prompt = loaded.value;
  const [edited, setEdited] = useState<string | null>(null);
  const content = (prompt?.content ?? null) as PromptContent | null;
  const attached = content === null ? [] : attachmentsOf(content);
  const text = edited ?? (content === null ? "" : wordsOf(content));
  const isReady = content !== null && (text.trim() !== "" || attached.length > 0);
  const save = async () => {
    if (!prompt || content === null) return;
    try {
      // With the version that was read: another client's edit is not overwritten.
      await api(sessionId).editQueued(entry.message_id, withWords(content, text), prompt.version);
      onClose();
    } catch (error) {
      report(error);
      // Another client changed it: what was typed stays, and is saved over what it is now only with another click.
      if (hasCode(error, "queued_prompt_conflict")) loaded.reload();
    }
  };
  return (
    <Dialog title="Edit the queued prompt" onClose={onClose} foot={<Button look="primary" disabled={!isReady} onClick={save}>Save</Button>}>
      {loaded.error && <Problem text={loaded.error} onRetry={loaded.reload} />}
      {!prompt && !loaded.error && <Loading what="Reading the prompt" since={loaded.since} />}
      {prompt && content === null && <p>The content of this prompt was taken out of the log. It can only be removed.</p>}
      {content !== null && (
        <>
          <Field label="Prompt">
            {({ id }) => <textarea id={id} ref={focusOnce} class="input" rows={6} value={text} onInput={(event) => setEdited(event.currentTarget.value)} />}
          </Field>
          {attached.length > 0 && (
            <div class="field">
              <span class="muted small">{plural(attached.length, "attachment")}, kept as {attached.length === 1 ? "it is" : "they are"}</span>
              <ul class="row-wrap attached-images" aria-label="Attachments">
                {attached.map((block, at) => <li key={at}>{block.type === "image" ? <ImageBlock data={block.data} mimeType={block.mimeType} alt="Attached image" /> : <span class="small wrap">{readable(promptText([block]))}</span>}</li>)}
              </ul>
            </div>
          )}
        </>
      )}
    </Dialog>
  );
}

/** When the text is there: the dialog opened before it. */
function focusOnce(element: HTMLTextAreaElement | null): void {
  if (!element || element.dataset["focused"]) return;
  element.dataset["focused"] = "";
  element.focus();
  element.setSelectionRange(element.value.length, element.value.length);
}
