/** What a run and an instrumented loop are made of. */
import { TRUTH_TIMEOUT_MS, within } from "./limit.js";
import { tabLock, type TabLock } from "./lock.js";
import { type RecorderStart, RunRecorder } from "./recorder.js";
import { type Conversation, Recovery, type RestoredRun, type ResumeEnd } from "./recovery.js";
import type { RunOptions } from "./run.js";
import { browserStorage, type RunStorage } from "./storage.js";
import { type Clock, systemClock } from "./types.js";

export type PartOptions = Omit<RunOptions, "stream" | "tools">;

export interface Parts {
  clock: Clock;
  storage: RunStorage;
  lock: TabLock;
  conversation: Conversation;
  recovery: Recovery;
  /** Takes the run, too; throws as `RunRecorder.begin` does. */
  startRecorder(asked: Pick<RunOptions, "provider" | "model">, start: RecorderStart): Promise<RunRecorder>;
}

export function partsOf(options: PartOptions, onResume: (restored: RestoredRun) => Promise<ResumeEnd>): Parts {
  const { chatId, sandbox, telemetry, limits, clock = systemClock } = options;
  const storage = options.storage ?? browserStorage({ clock });
  const lock = options.lock ?? tabLock({ storage, clock });
  const conversation = options.conversation ?? {
    load: () => storage.loadConversation(chatId),
    save: (messages) => storage.saveConversation(chatId, messages),
  };
  const shared = { chatId, storage, lock, clock, telemetry, ...limits };
  return {
    clock, storage, lock, conversation,
    recovery: new Recovery({ ...shared, sandbox, conversation, onResume }),
    async startRecorder({ provider, model }, start) {
      const current = await within(clock, limits?.truthTimeoutMs ?? TRUTH_TIMEOUT_MS, () => sandbox.identity());
      const identity = {
        sandboxSessionId: current.sandboxSessionId ?? "",
        activeBranch: current.activeBranch ?? "",
        repoId: current.repoId ?? "",
      };
      const recorder = new RunRecorder({ ...shared, provider, model, identity });
      await recorder.begin(start);
      return recorder;
    },
  };
}

/** What a recorder begins a resumed run with. */
export function startOf({ checkpoint, deltaMessages }: RestoredRun): RecorderStart {
  return { baseMessageCount: checkpoint.baseMessageCount, deltaMessages, resumes: checkpoint };
}
