/** Sends what happens to runs to OpenTelemetry: counters by phase, and the time to resume. */
import { metrics } from "@opentelemetry/api";

import type { RunTelemetry } from "../src/run/index.js";

export function openTelemetry(): RunTelemetry {
  const meter = metrics.getMeter("piton-client/run");
  const interruptions = meter.createCounter("run.interruptions", { description: "Interrupted runs that were offered" });
  const refusals = meter.createCounter("run.refusals", { description: "Interrupted runs that were not offered, by reason" });
  const resumes = meter.createCounter("run.resumes", { description: "Resumed runs, by outcome" });
  const timeToResume = meter.createHistogram("run.time_to_resume", { unit: "ms", description: "From the user's decision to the first output" });
  return (event) => {
    switch (event.type) {
      case "interrupted":
        if (isNew(event.chatId, event.runId)) interruptions.add(1, { phase: event.phase });
        break;
      case "refused":
        refusals.add(1, { phase: event.phase ?? "unknown", reason: event.reason });
        break;
      case "resume_failed":
        resumes.add(1, { phase: event.phase, success: false, outcome: event.reason });
        break;
      case "resume_ended":
        resumes.add(1, { phase: event.phase, success: event.success, outcome: event.outcome });
        if (event.timeToResumeMs !== null) timeToResume.record(event.timeToResumeMs, { phase: event.phase });
        break;
      default:
        break;
    }
  };
}

/** A run that is not decided about is reported by every page that finds it: it is counted once, by its id. */
function isNew(chatId: string, runId: string): boolean {
  const key = `run_counted_${chatId}`;
  try {
    if (localStorage.getItem(key) === runId) return false;
    localStorage.setItem(key, runId);
  } catch {
    // Without storage it is counted again.
  }
  return true;
}
