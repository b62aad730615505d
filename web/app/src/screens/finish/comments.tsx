// Comments on lines of a diff: collected here, sent to the agent as one prompt.
import { useState } from "preact/hooks";
import type { FileDiff, Line } from "../../lib/lines.ts";
import { revealed } from "../../lib/text.ts";
import { Button } from "../../ui/Button.tsx";
import type { LineComments } from "../../ui/DiffView.tsx";
import { Dialog } from "../../ui/Dialog.tsx";
import { Field } from "../../ui/parts.tsx";

export type Comment = { key: string; path: string; line: Line; text: string };

function keyOf(file: FileDiff, line: Line): string {
  return `${file.path} ${line.kind} ${line.old ?? ""} ${line.new ?? ""}`;
}

export function commentsReader(comments: readonly Comment[], onPick: (comment: Comment) => void): (file: FileDiff) => LineComments {
  return (file) => ({
    get: (line) => comments.find((comment) => comment.key === keyOf(file, line))?.text,
    onPick: (line) => {
      const key = keyOf(file, line);
      onPick(comments.find((comment) => comment.key === key) ?? { key, path: file.path, line, text: "" });
    },
  });
}

/** One prompt: each comment with its file, its line and what the line says. */
export function commentsPrompt(comments: readonly Comment[]): string {
  const parts = comments.map(({ path, line, text }) => {
    const where = line.new !== null ? `line ${line.new}` : `line ${line.old} (removed)`;
    return `${path}, ${where}:\n> ${line.text.trim()}\n${text.trim()}`;
  });
  return `I reviewed your changes. Please address these comments:\n\n${parts.join("\n\n")}`;
}

export function CommentDialog({ comment, onSave, onClose }: { comment: Comment; onSave: (comment: Comment) => void; onClose: () => void }) {
  const [text, setText] = useState(comment.text);
  const save = () => onSave({ ...comment, text });
  return (
    <Dialog title={`Comment on ${comment.path}`} onClose={onClose} foot={<Button look="primary" onClick={save}>{text.trim() === "" && comment.text ? "Remove" : "Save comment"}</Button>}>
      <pre class="command">{revealed(comment.line.text) || " "}</pre>
      <Field label="Comment" hint="Ctrl-Enter saves. It is sent when you press “Send comments”.">
        {({ id, describedBy }) => (
          <textarea
            id={id}
            aria-describedby={describedBy}
            class="input"
            rows={4}
            data-autofocus
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
            }}
          />
        )}
      </Field>
    </Dialog>
  );
}
