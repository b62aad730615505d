import type { QueueEntry } from "piton-client";
import { useState } from "preact/hooks";
import { api } from "../../data/actions.ts";
import { plural } from "../../lib/format.ts";
import { firstLine } from "../../lib/text.ts";
import { Button } from "../../ui/Button.tsx";
import { Dialog } from "../../ui/Dialog.tsx";
import { Disclosure, Field } from "../../ui/parts.tsx";
import { report } from "../../ui/toasts.ts";

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

function EditDialog({ entry, sessionId, onClose }: { entry: QueueEntry; sessionId: string; onClose: () => void }) {
  const [text, setText] = useState(entry.text);
  const save = async () => {
    try {
      // With the version that was shown: another client's edit is not overwritten.
      await api(sessionId).editQueued(entry.message_id, text, entry.version);
      onClose();
    } catch (error) {
      report(error);
    }
  };
  return (
    <Dialog title="Edit the queued prompt" onClose={onClose} foot={<Button look="primary" disabled={text.trim() === ""} onClick={save}>Save</Button>}>
      <Field label="Prompt">
        {({ id }) => <textarea id={id} class="input" rows={6} data-autofocus value={text} onInput={(event) => setText(event.currentTarget.value)} />}
      </Field>
    </Dialog>
  );
}
