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

/**
 * The run of `options.chatId`. Another id makes another run; of the other options those of the first
 * render of an id count.
 */
export function useResumableRun(options: RunOptions): ResumableRun {
  // eslint-disable-next-line react-hooks/exhaustive-deps -- see above
  const run = useMemo(() => createRun(options), [options.chatId]);
  useEffect(() => {
    run.open().catch((error: unknown) => console.error("piton-client: the run could not be opened", error));
    return () => run.close();
  }, [run]);
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
