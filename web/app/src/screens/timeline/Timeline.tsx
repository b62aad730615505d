import type { LogRecord } from "piton-client";
import { useMemo, useState } from "preact/hooks";
import { client } from "../../data/account.ts";
import { api } from "../../data/actions.ts";
import type { OpenSession } from "../../data/session.ts";
import { clock, count, exact, plural } from "../../lib/format.ts";
import { now } from "../../lib/now.ts";
import { go, sessionPath } from "../../lib/router.ts";
import { revealed } from "../../lib/text.ts";
import { Button } from "../../ui/Button.tsx";
import { Card, Loading } from "../../ui/parts.tsx";
import { relative } from "../session/tool.ts";
import { Problem } from "../workspace/Changes.tsx";
import { useLoaded } from "../workspace/load.ts";
import { type Point, pointOf, summary } from "./points.ts";
import { Track } from "./Track.tsx";

/** Longer logs are shown from their end. */
const RECORDS_MAX = 20_000;
const PAGE = 1_000;

/** What was read of the session on the screen: a log only grows, so the next time only its end is read. */
let known: { id: string; records: readonly LogRecord[] } = { id: "", records: [] };

async function readLog(id: string, last: number): Promise<readonly LogRecord[]> {
  const before = known.id === id ? known.records : [];
  const all = await readAfter(id, before.at(-1)?.seq ?? Math.max(0, last - RECORDS_MAX));
  // A redaction changes records that were read already.
  if (before.length > 0 && all.some((record) => record.kind === "record.redacted")) {
    known = { id: "", records: [] };
    return await readLog(id, last);
  }
  if (all.length > 0 || known.id !== id) known = { id, records: [...before, ...all].slice(-RECORDS_MAX) };
  return known.records;
}

async function readAfter(id: string, from: number): Promise<LogRecord[]> {
  const all: LogRecord[] = [];
  let after = from;
  for (;;) {
    const page = await client.call("get", "/api/v1/sessions/{session_id}/records", { path: { session_id: id }, query: { after, limit: PAGE } });
    all.push(...(page.records as unknown as LogRecord[]));
    if (page.next == null) return all;
    after = page.next;
  }
}

export function Timeline({ session }: { session: OpenSession }) {
  const status = session.status.value;
  const loaded = useLoaded(`${session.id} ${status?.run_id ?? ""} ${status?.status ?? ""}`, () => readLog(session.id, session.view.value.last_seq));
  const [chosen, setChosen] = useState<readonly number[]>([]);
  const records = loaded.value ?? [];
  const points = useMemo(() => records.map(pointOf).filter((point) => point !== null), [records]);
  if (loaded.error) return <Problem text={loaded.error} onRetry={loaded.reload} />;
  if (!loaded.value) return <Loading what="Reading the log" since={loaded.since} />;
  // The newest two count: a third replaces the older one.
  const choose = (seq: number) => setChosen(chosen.includes(seq) ? chosen.filter((other) => other !== seq) : [...chosen.slice(-1), seq]);
  return (
    <div class="panel-scroll">
      <div class="inner">
        <Track points={points} chosen={chosen} onChoose={choose} />
        <Chosen session={session} points={points.filter((point) => chosen.includes(point.seq))} records={records} />
        <ol class="timeline-list" aria-label="Events">
          {[...points].reverse().map((point) => <Row key={point.seq} point={point} isChosen={chosen.includes(point.seq)} onChoose={choose} />)}
        </ol>
        {records[0] && records[0].seq > 1 && <p class="muted small">Older records than the last {count(RECORDS_MAX)} are not shown.</p>}
      </div>
    </div>
  );
}

export const SIGNS = { turn: "●", end: "○", interruption: "✂", resume: "▲", checkpoint: "◆", question: "?", error: "✕", agent: "·", session: "■" } as const;

function Row({ point, isChosen, onChoose }: { point: Point; isChosen: boolean; onChoose: (seq: number) => void }) {
  return (
    <li>
      <button type="button" class="timeline-row" data-kind={point.kind} aria-pressed={isChosen} onClick={() => onChoose(point.seq)}>
        <time class="muted numeric small" dateTime={point.ts} title={exact(point.ts)}>{clock(point.ts, now.peek())}</time>
        <span aria-hidden="true" class="timeline-sign">{SIGNS[point.kind]}</span>
        <span class="wrap">{point.text} <span class="muted small">#{point.seq}</span></span>
      </button>
    </li>
  );
}

function Chosen({ session, points, records }: { session: OpenSession; points: readonly Point[]; records: readonly LogRecord[] }) {
  const [first, second] = points;
  if (!first) return <p class="muted small">Choose a point to see what follows it, or two to compare them.</p>;
  const to = second?.seq ?? session.view.value.last_seq;
  const { tools, messages, edits } = summary(records, first.seq, to);
  const folder = session.status.value?.worktree_path ?? session.status.value?.working_dir ?? null;
  return (
    <Card
      tone="accent"
      name="timeline-compare"
      title={second ? `From #${first.seq} to #${second.seq}` : `From #${first.seq} until now`}
      actions={<Button onClick={async () => go(sessionPath((await api(session.id).fork()).session_id))}>Fork the session</Button>}
    >
      <p>{plural(messages, "message")}, {plural(tools, "tool call")}, {plural(edits.length, "file")} edited.</p>
      {edits.length > 0 && <ul class="mono small">{edits.slice(0, 50).map((path) => <li key={path} class="wrap">{revealed(relative(path, folder))}</li>)}</ul>}
      <p class="muted small">A fork begins with the conversation as it is now.</p>
    </Card>
  );
}
