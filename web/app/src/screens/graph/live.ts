// A graph's run as it is now: read once, then followed record by record.
import { GraphFold, type GraphRun, type Schemas } from "piton-client";
import { useEffect, useState } from "preact/hooks";
import { api } from "../../data/actions.ts";
import type { OpenSession } from "../../data/session.ts";
import { sentenceOf } from "../../ui/toasts.ts";

export type LiveGraph = { run: GraphRun | null; view: Schemas["GraphView"] | null; error: string | null; reload: () => void };

export function useGraph(session: OpenSession): LiveGraph {
  const [state, setState] = useState<Omit<LiveGraph, "reload">>({ run: null, view: null, error: null });
  const [asked, setAsked] = useState(0);
  useEffect(() => {
    const fold = new GraphFold();
    const early: Parameters<GraphFold["apply"]>[0][] = [];
    let [isCurrent, isLoaded, frame] = [true, false, 0];
    const show = () => {
      frame = 0;
      if (fold.isStale) return setAsked((before) => before + 1);
      setState((before) => ({ ...before, run: fold.view }));
    };
    // What comes while the view is on its way is newer than it, or known to it.
    const stop = session.store.onRecord((record) => {
      if (!isLoaded) return void early.push(record);
      fold.apply(record);
      if (frame === 0) frame = requestAnimationFrame(show);
    });
    api(session.id)
      .graph()
      .then((view) => {
        if (!isCurrent) return;
        fold.seed(view);
        for (const record of early) fold.apply(record);
        isLoaded = true;
        setState({ run: fold.view, view, error: null });
        if (fold.isStale) setAsked((before) => before + 1);
      })
      .catch((error: unknown) => {
        if (isCurrent) setState((before) => ({ ...before, error: sentenceOf(error) }));
      });
    return () => {
      isCurrent = false;
      stop();
      cancelAnimationFrame(frame);
    };
  }, [session.id, asked]);
  return { ...state, reload: () => setAsked((before) => before + 1) };
}
