import { type LogRecord } from "piton-client";
import { useMemo, useState } from "preact/hooks";
import { client } from "../../data/account.ts";
import { api } from "../../data/actions.ts";
import type { OpenSession } from "../../data/session.ts";
import { isClosed } from "../../data/states.ts";
import { clock, count, exact, plural } from "../../lib/format.ts";
import { now } from "../../lib/now.ts";
import { go, sessionPath } from "../../lib/router.ts";
import { revealed } from "../../lib/text.ts";
import { Button } from "../../ui/Button.tsx";
import { Card, Loading } from "../../ui/parts.tsx";
import { relative } from "../session/tool.ts";
import { Problem } from "../workspace/Problem.tsx";
import { useLoaded } from "../workspace/load.ts";
import { ResumeDialog } from "../graph/ResumeDialog.tsx";
import { checkpointAt, type Checkpoint, type Checkpoints, readCheckpoints } from "./checkpoints.ts";
import { FileCompare, MemoryCompare } from "./Compare.tsx";
import { lineagesOf, type Point, pointsOf, SIGNS, summary } from "./points.ts";
import { RewindDialog } from "./RewindDialog.tsx";
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

type Read = { records: readonly LogRecord[]; points: readonly Point[]; checkpoints: Checkpoints };

async function read(session: OpenSession, isGraph: boolean): Promise<Read> {
  const records = await readLog(session.id, session.view.value.last_seq);
  const points = pointsOf(records);
  return { records, points, checkpoints: await readCheckpoints(session.id, isGraph, points) };
}

/** What is open beside the timeline. */
type Doing = { what: "rewind" | "resume"; checkpoint: Checkpoint } | { what: "undo" } | null;

export function Timeline({ session }: { session: OpenSession }) {
  const status = session.status.value;
  const view = session.view.value;
  const isGraph = (status?.graph ?? view.graph) !== null;
  const version = `${status?.run_id ?? ""} ${status?.status ?? ""} ${view.lineages.length}`;
  const loaded = useLoaded(`${session.id} ${isGraph}`, () => read(session, isGraph), version);
  const [chosen, setChosen] = useState<readonly number[]>([]);
  const [doing, setDoing] = useState<Doing>(null);
  const records = loaded.value?.records;
  const lineages = useMemo(() => lineagesOf(records ?? []), [records]);
  if (loaded.error) return <Problem text={loaded.error} onRetry={loaded.reload} />;
  if (!loaded.value || !records) return <Loading what="Reading the log" since={loaded.since} />;
  const { points, checkpoints } = loaded.value;
  // The newest two count: a third replaces the older one.
  const choose = (seq: number) => setChosen(chosen.includes(seq) ? chosen.filter((other) => other !== seq) : [...chosen.slice(-1), seq]);
  // The scrubber moves what was chosen last.
  const scrub = (seq: number) => setChosen([...chosen.slice(0, -1).filter((other) => other !== seq), seq]);
  return (
    <div class="panel-scroll">
      <div class="inner">
        {checkpoints.canUndo && (
          <div class="row-wrap" data-undo>
            <span class="grow">The last rewind can be undone until the next turn begins.</span>
            <Button onClick={() => setDoing({ what: "undo" })}>Undo the rewind…</Button>
          </div>
        )}
        <Track points={points} lineages={lineages} chosen={chosen} onChoose={choose} onScrub={scrub} />
        <Chosen session={session} points={points.filter((point) => chosen.includes(point.seq))} records={records} checkpoints={checkpoints} onDo={setDoing} />
        <ol class="timeline-list" aria-label="Events">
          {[...points].reverse().map((point) => <Row key={point.seq} point={point} isChosen={chosen.includes(point.seq)} onChoose={choose} />)}
        </ol>
        {records[0] && records[0].seq > 1 && <p class="muted small">Older records than the last {count(RECORDS_MAX)} are not shown.</p>}
      </div>
      {doing?.what === "resume" && <ResumeDialog sessionId={session.id} checkpointId={doing.checkpoint.id} onClose={() => setDoing(null)} onResumed={loaded.reload} />}
      {(doing?.what === "rewind" || doing?.what === "undo") && (
        <RewindDialog session={session} checkpoint={doing.what === "rewind" ? doing.checkpoint : null} onClose={() => setDoing(null)} onDone={loaded.reload} />
      )}
    </div>
  );
}

function Row({ point, isChosen, onChoose }: { point: Point; isChosen: boolean; onChoose: (seq: number) => void }) {
  return (
    <li>
      <button type="button" class="timeline-row" data-kind={point.kind} data-abandoned={point.isAbandoned ? "" : undefined} aria-pressed={isChosen} onClick={() => onChoose(point.seq)}>
        <time class="muted numeric small" dateTime={point.ts} title={exact(point.ts)}>{clock(point.ts, now.peek())}</time>
        <span aria-hidden="true" class="timeline-sign">{SIGNS[point.kind]}</span>
        <span class="wrap">{point.text} <span class="muted small">#{point.seq}{point.isAbandoned ? " · left behind" : ""}</span></span>
      </button>
    </li>
  );
}

type ChosenProps = { session: OpenSession; points: readonly Point[]; records: readonly LogRecord[]; checkpoints: Checkpoints; onDo: (doing: Doing) => void };

function Chosen({ session, points, records, checkpoints, onDo }: ChosenProps) {
  const [first, second] = points;
  if (!first) return <p class="muted small">Choose a point to see what follows it and to go back to it, or two to compare them.</p>;
  const to = second?.seq ?? session.view.value.last_seq;
  const { tools, messages, edits } = summary(records, first.seq, to);
  const folder = session.status.value?.worktree_path ?? session.status.value?.working_dir ?? null;
  const [from, until] = [checkpointAt(first, checkpoints), second ? checkpointAt(second, checkpoints) : null];
  const { isGraph } = checkpoints;
  return (
    <Card
      tone="accent"
      name="timeline-compare"
      title={second ? `From #${first.seq} to #${second.seq}` : `From #${first.seq} until now`}
      actions={second ? null : <Actions session={session} checkpoint={from} isGraph={isGraph} onDo={onDo} />}
    >
      {!isGraph && <p>{plural(messages, "message")}, {plural(tools, "tool call")}, {plural(edits.length, "file")} edited.</p>}
      {!isGraph && edits.length > 0 && <ul class="mono small">{edits.slice(0, 50).map((path) => <li key={path} class="wrap">{revealed(relative(path, folder))}</li>)}</ul>}
      <Comparison sessionId={session.id} isGraph={isGraph} from={from} to={until} isPair={second !== undefined} />
      {!second && <p class="muted small">{from ? `Nearest checkpoint: #${from.seq}, ${from.text.toLowerCase()}.` : "There is no checkpoint before this point."}{isGraph ? "" : " A fork begins with the conversation as it is now."}</p>}
    </Card>
  );
}

type ComparisonProps = { sessionId: string; isGraph: boolean; from: Checkpoint | null; to: Checkpoint | null; isPair: boolean };

function Comparison({ sessionId, isGraph, from, to, isPair }: ComparisonProps) {
  if (!from || (isPair && !to)) return null;
  if (to && to.id === from.id) return <p class="muted small">No checkpoint lies between the two.</p>;
  if (isGraph) return <MemoryCompare sessionId={sessionId} from={from} to={to} />;
  if (!from.hasFiles || (to && !to.hasFiles)) return <p class="muted small">A checkpoint without a snapshot of the files cannot be compared.</p>;
  return <FileCompare sessionId={sessionId} from={from} to={to} />;
}

function Actions({ session, checkpoint, isGraph, onDo }: { session: OpenSession; checkpoint: Checkpoint | null; isGraph: boolean; onDo: (doing: Doing) => void }) {
  const status = session.status.value;
  if (status?.read_only) return null;
  const fork = async () => go(sessionPath((await api(session.id).fork(isGraph && checkpoint ? { checkpoint_id: checkpoint.id } : {})).session_id));
  const isAtWork = status?.status === "running" || status?.status === "starting";
  return (
    <>
      {!isGraph && checkpoint && status && !isClosed(status) && <Button look="primary" onClick={() => onDo({ what: "rewind", checkpoint })}>Rewind here…</Button>}
      {isGraph && checkpoint?.canResume && status && !isClosed(status) && <Button look="primary" disabled={isAtWork} onClick={() => onDo({ what: "resume", checkpoint })}>Resume from here…</Button>}
      <Button onClick={fork}>{isGraph ? "Fork from here" : "Fork the session"}</Button>
    </>
  );
}
