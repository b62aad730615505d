import type { RefusalReason } from "./detect.js";
import type { LoopPhase } from "./types.js";

/** What happened to runs: interruptions, resumes, their success and their time, by phase. No contents. */
export type RunTelemetryEvent =
  | { type: "interrupted"; chatId: string; phase: LoopPhase; ageMs: number }
  | { type: "refused"; chatId: string; phase: LoopPhase | null; reason: RefusalReason }
  | { type: "dismissed"; chatId: string; phase: LoopPhase }
  /** `ageMs`: between the checkpoint and the user's decision. */
  | { type: "resumed"; chatId: string; phase: LoopPhase; ageMs: number }
  | { type: "resume_failed"; chatId: string; phase: LoopPhase; reason: string }
  /** `timeToResumeMs`: between the user's decision and the first output of the model. */
  | { type: "resume_ended"; chatId: string; phase: LoopPhase; success: boolean; outcome: string; timeToResumeMs: number | null }
  | { type: "warning"; chatId: string; code: string; detail: string };

export type RunTelemetry = (event: RunTelemetryEvent) => void;

/** A listener that throws must not end a run. */
export function safely(telemetry: RunTelemetry | undefined): RunTelemetry {
  return (event) => {
    try {
      telemetry?.(event);
    } catch (error) {
      console.error(error);
    }
  };
}
