/** For apps that have a loop of their own: the recorder, the lock and the recovery around it. */
import { type PartOptions, partsOf, startOf } from "./parts.js";
import type { RunRecorder } from "./recorder.js";
import type { Recovery, RestoredRun, ResumeEnd } from "./recovery.js";
import { CLOSED } from "./run.js";
import { lockLost } from "./storage.js";
import { reporter } from "./telemetry.js";
import { codeOf, messageOf, RunError, type RunMessage } from "./types.js";

export interface OwnLoop {
  /** Tell it of every step: `startRound`, `text`, `responseReceived`, `startTools`, `toolResults`, `delegate`. */
  recorder: RunRecorder;
  /** What to begin with; of a resumed run with the interruption summary. */
  messages: RunMessage[];
  /** Of a resumed run: provider, model and round to continue with. */
  restored: RestoredRun | null;
  signal: AbortSignal;
}

export type InstrumentOptions = PartOptions & Required<Pick<PartOptions, "conversation">>;

export interface InstrumentedLoop<Args extends unknown[]> {
  recovery: Recovery;
  /** Begins a run; the promise is that of the loop. */
  start(...args: Args): Promise<void>;
  abort(): void;
  /** Lets go of the chat. A loop that is active is interrupted: its checkpoint stays, and is offered to the next page. */
  close(): void;
}

interface Active {
  recorder: RunRecorder | null;
  stopping: AbortController;
}

/**
 * A loop that returns has ended normally. One that throws was interrupted if the page slept in that round; otherwise the
 * run is over, and what the conversation lacks of it is added.
 */
export function instrument<Args extends unknown[]>(
  ownLoop: (loop: OwnLoop, ...args: Args | []) => Promise<void>,
  options: InstrumentOptions,
): InstrumentedLoop<Args> {
  let active: Active | null = null;

  const run = async (restored: RestoredRun | null, args: Args | []): Promise<ResumeEnd> => {
    if (active) throw new RunError("run_in_progress", "The run is active.");
    const own: Active = { recorder: null, stopping: new AbortController() };
    active = own;
    try {
      return await runAlone(own, restored, args);
    } finally {
      active = null;
    }
  };

  const runAlone = async (own: Active, restored: RestoredRun | null, args: Args | []): Promise<ResumeEnd> => {
    const { signal } = own.stopping;
    if (!restored) await parts.recovery.giveUp();
    const messages = restored ? restored.messages : [...(await parts.conversation.load())];
    const start = restored ? startOf(restored) : { baseMessageCount: messages.length, deltaMessages: [] };
    const recorder = await parts.startRecorder(restored ?? options, start);
    recorder.onLost = () => own.stopping.abort(lockLost());
    own.recorder = recorder;
    const ended = (outcome: string, error?: unknown): ResumeEnd => ({ outcome, outputAt: recorder.outputAt, error });
    try {
      // Stopped before there was a recorder to tell.
      if (codeOf(signal.reason) === "aborted") recorder.abort();
      signal.throwIfAborted();
      await ownLoop({ recorder, messages, restored, signal }, ...args);
      await recorder.end("clear");
      return ended("completed");
    } catch (error) {
      // By the signal: when it is stopped, a loop may throw anything.
      const isLost = !(await recorder.isOwner());
      const isLeft = isLost || (codeOf(signal.reason) === CLOSED && !recorder.isAborted);
      if (isLeft || recorder.isResumeUnanswered || (recorder.wasSuspended && !recorder.isAborted)) {
        await recorder.end("keep");
        if (isLost) throw lockLost();
        // What becomes of a run that the model did not answer is said by `resume`.
        if (recorder.isResumeUnanswered && !isLeft) throw error;
        // Offered without a reload, too.
        if (!isLeft) await parts.recovery.check();
        return ended("interrupted", error);
      }
      await recorder.end((await keep(recorder)) ? "clear" : "keep");
      return ended(recorder.isAborted ? "aborted" : "error", error);
    }
  };

  /** False: the conversation could not be saved, and the checkpoint has to stay. */
  const keep = async (recorder: RunRecorder): Promise<boolean> => {
    try {
      await parts.recovery.keep(recorder.wholeCheckpoint());
      return true;
    } catch (error) {
      report.warn("conversation_not_saved", messageOf(error));
      return false;
    }
  };

  const report = reporter(options.telemetry, options.chatId);
  const parts = partsOf(options, (restored) => run(restored, []));
  return {
    recovery: parts.recovery,
    start: async (...args) => {
      const { outcome, error } = await run(null, args);
      if (outcome !== "completed") throw error;
    },
    abort: () => {
      active?.recorder?.abort();
      active?.stopping.abort(new RunError("aborted", "The run was stopped."));
    },
    close: () => {
      parts.recovery.close();
      active?.stopping.abort(new RunError(CLOSED, "The run was closed."));
    },
  };
}
