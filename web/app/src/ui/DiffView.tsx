import { useMemo, useState } from "preact/hooks";
import type { FileDiff, Line } from "../lib/lines.ts";
import { count } from "../lib/format.ts";
import { revealed } from "../lib/text.ts";
import { Button } from "./Button.tsx";

const LINES_SHOWN = 400;

export type LineComments = {
  /** Lines that have a comment, by side and number. */
  get: (line: Line) => string | undefined;
  onPick: (line: Line) => void;
};

/** "+12 −3" */
export function DiffCount({ added, removed }: { added: number; removed: number }) {
  return (
    <span class="numeric nowrap">
      <span class="added">+{count(added)}</span> <span class="removed">−{count(removed)}</span>
      <span class="visually-hidden"> lines added and removed</span>
    </span>
  );
}

/** The lines of one file's diff. What a person has to decide on is always whole: `whole`. */
export function DiffView({ file, whole, comments }: { file: FileDiff; whole?: boolean; comments?: LineComments }) {
  const [isAll, setAll] = useState(whole ?? false);
  const rows = useMemo(
    () => file.hunks.flatMap((hunk) => [{ header: hunk.header }, ...hunk.lines.map((line) => ({ line }))]),
    [file],
  );
  const shown = isAll ? rows : rows.slice(0, LINES_SHOWN);
  if (file.note && rows.length === 0) return <p class="muted small diff-note">{file.note}</p>;
  return (
    <div class="diff" role="region" aria-label={`Changes of ${file.path}`} tabIndex={0}>
      <table>
        <tbody>
          {shown.map((row, at) =>
            "header" in row ? (
              <tr key={at} class="diff-hunk">
                <td colSpan={3}>{revealed(row.header)}</td>
              </tr>
            ) : (
              <DiffLine key={at} line={row.line} comments={comments} />
            ),
          )}
        </tbody>
      </table>
      {shown.length < rows.length && (
        <p class="diff-more">
          <Button dense onClick={() => setAll(true)}>
            Show {count(rows.length - shown.length)} more lines
          </Button>
        </p>
      )}
    </div>
  );
}

const SIGNS = { add: "+", del: "−", same: " " } as const;
const NAMES = { add: "added", del: "removed", same: "" } as const;

function DiffLine({ line, comments }: { line: Line; comments: LineComments | undefined }) {
  const number = line.new ?? line.old;
  const comment = comments?.get(line);
  return (
    <>
      <tr data-kind={line.kind}>
        <td class="diff-number">
          {comments ? (
            <button type="button" class="diff-pick" onClick={() => comments.onPick(line)} aria-label={`Comment on line ${number ?? ""}`}>
              {number}
            </button>
          ) : (
            number
          )}
        </td>
        <td class="diff-sign">
          <span aria-hidden="true">{SIGNS[line.kind]}</span>
          <span class="visually-hidden">{NAMES[line.kind]}</span>
        </td>
        <td class="diff-text">{revealed(line.text) || " "}</td>
      </tr>
      {comment !== undefined && (
        <tr class="diff-comment">
          <td colSpan={3}>{comment}</td>
        </tr>
      )}
    </>
  );
}
