import { memo } from "preact/compat";
import { useState } from "preact/hooks";
import type { FileDiff } from "../../lib/lines.ts";
import { revealed } from "../../lib/text.ts";
import { DiffCount, DiffView, type LineComments } from "../../ui/DiffView.tsx";
import { Disclosure } from "../../ui/parts.tsx";

/** Larger diffs are folded until they are asked for. */
const OPEN_LINES_MAX = 300;

export type FileComments = (file: FileDiff) => LineComments;

/** Drawn again only when a diff changed: the list around it moves with every word of a streaming agent. */
export const FileDiffs = memo(({ title, files, comments }: { title: string; files: readonly FileDiff[]; comments?: FileComments | undefined }) => {
  if (files.length === 0) return null;
  return (
    <section class="stack">
      <h2 class="small muted">{title}</h2>
      {files.map((file) => <OneFile key={file.path} file={file} comments={comments?.(file)} />)}
    </section>
  );
});

function OneFile({ file, comments }: { file: FileDiff; comments: LineComments | undefined }) {
  const [isOpen, setOpen] = useState(file.added + file.removed <= OPEN_LINES_MAX);
  const renamed = file.oldPath && file.oldPath !== file.path ? `${revealed(file.oldPath)} → ` : "";
  return (
    <Disclosure
      class="file-diff"
      open={isOpen}
      onToggle={setOpen}
      summary={
        <>
          <span class="mono grow truncate" title={file.path}>{renamed}{revealed(file.path)}</span>
          <DiffCount added={file.added} removed={file.removed} />
        </>
      }
    >
      {isOpen && <DiffView file={file} {...(comments ? { comments } : {})} />}
    </Disclosure>
  );
}

