/** For apps that have a loop of their own: the recorder, the lock and the recovery around it. */
import { type PartOptions, partsOf } from "./parts.js";
import type { RunRecorder } from "./recorder.js";
import type { Recovery, RestoredRun } from "./recovery.js";
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
}

/** A loop that returns has ended normally; one that throws after the page slept was interrupted. */
export function instrument<Args extends unknown[]>(
  ownLoop: (loop: OwnLoop, ...args: Args | []) => Promise<void>,
  options: InstrumentOptions,
): InstrumentedLoop<Args> {
  let active: { recorder: RunRecorder; stopping: AbortController } | null = null;

  const run = async (restored: RestoredRun | null, args: Args | []): Promise<void> => {
    if (active) throw new RunError("run_in_progress", "The run is active.");
    const stopping = new AbortController();
    if (!restored) await parts.recovery.giveUp();
    const recorder = await parts.newRecorder(restored?.provider ?? options.provider, restored?.model ?? options.model);
    const messages = restored ? restored.messages : [...(await parts.conversation.load())];
    await recorder.begin({
      baseMessageCount: restored ? restored.checkpoint.baseMessageCount : messages.length,
      deltaMessages: restored ? restored.deltaMessages : [],
      ...(restored ? { resumes: restored.checkpoint } : {}),
    });
    recorder.onLost = () => stopping.abort(new RunError("lock_lost", "Another tab has taken the run over."));
    active = { recorder, stopping };
    const suspensions = recorder.suspensions;
    try {
      await ownLoop({ recorder, messages, restored, signal: stopping.signal }, ...args);
      await recorder.end("clear");
    } catch (error) {
      const isInterrupted = recorder.suspensions > suspensions || recorder.isResumeUnanswered;
      const isLost = error instanceof RunError && error.code === "lock_lost";
      await recorder.end((isInterrupted || isLost) && !recorder.isAborted ? "keep" : "clear");
      throw error;
    } finally {
      active = null;
    }
  };

  const parts = partsOf(options, (restored) => run(restored, []));
  return {
    recovery: parts.recovery,
    start: (...args) => run(null, args),
    abort: () => {
      active?.recorder.abort();
      active?.stopping.abort(new RunError("aborted", "The run was stopped."));
    },
  };
}
