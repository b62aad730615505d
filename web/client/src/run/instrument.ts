/** For apps that have a loop of their own: the recorder, the lock and the recovery around it. */
import { type PartOptions, partsOf } from "./parts.js";
import type { RunRecorder } from "./recorder.js";
import type { Recovery, RestoredRun } from "./recovery.js";
import { CLOSED } from "./run.js";
import { lockLost } from "./storage.js";
import { RunError, type RunMessage } from "./types.js";

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

/** Why the loop was stopped; whatever it throws then. */
function codeOf({ reason }: AbortSignal): string | null {
  return reason instanceof RunError ? reason.code : null;
}

/** A loop that returns has ended normally; one that throws after the page slept was interrupted. */
export function instrument<Args extends unknown[]>(
  ownLoop: (loop: OwnLoop, ...args: Args | []) => Promise<void>,
  options: InstrumentOptions,
): InstrumentedLoop<Args> {
  let active: Active | null = null;

  const run = async (restored: RestoredRun | null, args: Args | []): Promise<void> => {
    if (active) throw new RunError("run_in_progress", "The run is active.");
    const own: Active = { recorder: null, stopping: new AbortController() };
    active = own;
    try {
      await runAlone(own, restored, args);
    } finally {
      active = null;
    }
  };

  const runAlone = async (own: Active, restored: RestoredRun | null, args: Args | []): Promise<void> => {
    const { signal } = own.stopping;
    if (!restored) await parts.recovery.giveUp();
    const recorder = await parts.newRecorder(restored?.provider ?? options.provider, restored?.model ?? options.model);
    const messages = restored ? restored.messages : [...(await parts.conversation.load())];
    await recorder.begin({
      baseMessageCount: restored ? restored.checkpoint.baseMessageCount : messages.length,
      deltaMessages: restored ? restored.deltaMessages : [],
      ...(restored ? { resumes: restored.checkpoint } : {}),
    });
    recorder.onLost = () => own.stopping.abort(lockLost());
    own.recorder = recorder;
    const suspensions = recorder.suspensions;
    try {
      // Stopped before there was a recorder to tell.
      if (codeOf(signal) === "aborted") recorder.abort();
      signal.throwIfAborted();
      await ownLoop({ recorder, messages, restored, signal }, ...args);
      await recorder.end("clear");
    } catch (error) {
      const isInterrupted = recorder.suspensions > suspensions || recorder.isResumeUnanswered;
      const isLost = codeOf(signal) === "lock_lost" || codeOf(signal) === CLOSED;
      const isKept = (isInterrupted || isLost) && !recorder.isAborted;
      await recorder.end(isKept ? "keep" : "clear");
      // Offered without a reload, too. What becomes of a resumed run is said by `resume`.
      if (isKept && !isLost && !restored) await parts.recovery.check();
      throw error;
    }
  };

  const parts = partsOf(options, (restored) => run(restored, []));
  return {
    recovery: parts.recovery,
    start: (...args) => run(null, args),
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
