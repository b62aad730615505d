// The checkpoints that points of a timeline stand for: of an agent's turns, or of a graph.
import type { Schemas } from "piton-client";
import { api } from "../../data/actions.ts";
import type { Point } from "./points.ts";

export type Checkpoint = {
  id: string;
  seq: number;
  /** `turn_start`, `turn_complete`, or one of a graph. */
  type: string;
  text: string;
  /** The files can go back to it. */
  hasFiles: boolean;
  /** It belongs to the conversation, or the graph's run, as it is now. */
  isLive: boolean;
  canResume: boolean;
};

export type Checkpoints = { isGraph: boolean; canUndo: boolean; all: readonly Checkpoint[] };

const CHECKPOINTS_MAX = 1_000;

export async function readCheckpoints(sessionId: string, isGraph: boolean, points: readonly Point[]): Promise<Checkpoints> {
  const own = api(sessionId);
  const known = new Map(points.filter((point) => point.record.kind === "checkpoint.created").map((point) => [String(point.record["checkpoint_id"]), point]));
  if (isGraph) {
    const page: Schemas["CheckpointPage"] = await own.checkpoints(CHECKPOINTS_MAX);
    const all = page.checkpoints.flatMap((one) => {
      const point = known.get(one.checkpoint_id);
      return point ? [{ id: one.checkpoint_id, seq: point.seq, type: one.type, text: point.text, hasFiles: false, isLive: !point.isAbandoned, canResume: one.can_resume_from }] : [];
    });
    return { isGraph, canUndo: false, all };
  }
  const { checkpoints, can_undo } = await own.turnCheckpoints();
  const all = checkpoints.map((one) => ({ id: one.checkpoint_id, seq: one.seq, type: one.type, text: known.get(one.checkpoint_id)?.text ?? "Checkpoint", hasFiles: one.has_files, isLive: one.is_live, canResume: false }));
  return { isGraph, canUndo: can_undo, all };
}

/** The checkpoint of a point: itself, or the newest one before it of the same branch. */
export function checkpointAt(point: Point, checkpoints: Checkpoints): Checkpoint | null {
  const before = checkpoints.all.filter((one) => one.seq <= point.seq && (one.isLive || point.isAbandoned));
  return before.reduce<Checkpoint | null>((newest, one) => (newest && newest.seq > one.seq ? newest : one), null);
}
