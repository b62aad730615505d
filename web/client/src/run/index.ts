/** Browser runs: an agent loop in a page that survives a locked phone. */
export { activeKey, checkpointKey } from "./checkpoint.js";
export { type Detection, detectInterruptedRun, type DetectOptions, type RefusalReason } from "./detect.js";
export { type HeldLock, type LockOwner, tabLock, type TabLock, type TabLockOptions } from "./lock.js";
export { type CoderState, RunRecorder, type RecorderOptions, type RecorderStart } from "./recorder.js";
export {
  type Conversation, type Recovery, type RecoveryOptions, type RecoveryProblem, type RecoveryState, type RestoredRun, type ResumeEnd,
} from "./recovery.js";
export {
  createRun, type Run, type RunLimits, type RunOptions, type RunOutcome, type RunState, type StreamFunction, type StreamPart,
  type StreamRequest, type Tool, type ToolContext, type ToolDescription,
} from "./run.js";
export { browserStorage, type BrowserStorageOptions, type Loaded, type RunStorage, type StorageProblem } from "./storage.js";
export { type InterruptionFindings, interruptionSummary, type Truth } from "./summary.js";
export type { RunTelemetry, RunTelemetryEvent } from "./telemetry.js";
export type { NullableIdentity, Sandbox } from "./truth.js";
export {
  type Clock, type LoopPhase, type RunCheckpoint, RunError, type RunIdentity, type RunMessage,
  systemClock, type ToolCall,
} from "./types.js";
