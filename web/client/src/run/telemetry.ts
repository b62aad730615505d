import type { RefusalReason } from "./detect.js";
import type { LoopPhase } from "./types.js";

/** What happened to runs: interruptions, resumes, their success and their time, by phase. No contents. */
export type RunTelemetryEvent =
  /** Once per page: a run that is not decided about is reported again, with its `runId`, when the page is loaded again. */
  | { type: "interrupted"; chatId: string; phase: LoopPhase; ageMs: number; runId: string }
  | { type: "refused"; chatId: string; phase: LoopPhase | null; reason: RefusalReason }
  | { type: "dismissed"; chatId: string; phase: LoopPhase }
  /** `ageMs`: between the checkpoint and the user's decision. */
  | { type: "resumed"; chatId: string; phase: LoopPhase; ageMs: number }
  | { type: "resume_failed"; chatId: string; phase: LoopPhase; reason: string }
  /** `timeToResumeMs`: between the user's decision and the first output of the model. */
  | { type: "resume_ended"; chatId: string; phase: LoopPhase; success: boolean; outcome: string; timeToResumeMs: number | null }
  | { type: "warning"; chatId: string; code: string; detail: string };

export type RunTelemetry = (event: RunTelemetryEvent) => void;

type WithoutChat<Event> = Event extends unknown ? Omit<Event, "chatId"> : never;

export interface Report {
  (event: WithoutChat<RunTelemetryEvent>): void;
  warn(code: string, detail: string): void;
}

/** Reports what happens in a chat. A listener that throws must not end a run. */
export function reporter(telemetry: RunTelemetry | undefined, chatId: string): Report {
  const report = (event: WithoutChat<RunTelemetryEvent>) => {
    try {
      telemetry?.({ ...event, chatId } as RunTelemetryEvent);
    } catch (error) {
      console.error(error);
    }
  };
  return Object.assign(report, { warn: (code: string, detail: string) => report({ type: "warning", code, detail }) });
}
