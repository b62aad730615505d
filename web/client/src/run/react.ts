/** A run in a React component. */
import { useEffect, useMemo, useSyncExternalStore } from "react";

import { createRun, type Run, type RunOptions, type RunState } from "./run.js";

export interface ResumableRun extends RunState {
  send: (content: string) => ReturnType<Run["send"]>;
  abort: () => void;
  /** Continues the interrupted run. */
  resume: Run["recovery"]["resume"];
  /** Gives the interrupted run up. */
  dismiss: () => Promise<void>;
  run: Run;
}

/** Runs that are active though no component shows their chat: the next one that does gets them back. */
const unattended = new Map<string, Run>();

function leave(chatId: string, run: Run): void {
  if (run.getState().status !== "running") return run.close();
  unattended.set(chatId, run);
  const unsubscribe = run.subscribe(() => {
    if (run.getState().status === "running") return;
    unsubscribe();
    if (unattended.get(chatId) === run) unattended.delete(chatId);
  });
}

/**
 * The run of `options.chatId`. Another id makes another run; of the other options those of the first
 * render of an id count. A run that is active when its component goes continues, and is given to the next
 * component that shows its chat.
 */
export function useResumableRun(options: RunOptions): ResumableRun {
  const { chatId } = options;
  // eslint-disable-next-line react-hooks/exhaustive-deps -- see above
  const run = useMemo(() => unattended.get(chatId) ?? createRun(options), [chatId]);
  useEffect(() => {
    run.open().catch((error: unknown) => console.error("piton-client: the run could not be opened", error));
    return () => leave(chatId, run);
  }, [chatId, run]);
  const state = useSyncExternalStore(run.subscribe, run.getState, run.getState);
  return useMemo(
    () => ({
      ...state,
      run,
      send: (content) => run.send(content),
      abort: () => run.abort(),
      resume: (how) => run.recovery.resume(how),
      dismiss: () => run.recovery.dismiss(),
    }),
    [run, state],
  );
}
