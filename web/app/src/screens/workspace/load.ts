// Something that is read from the server, can be read again, and says why it could not be.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { homeConnection } from "../../data/home.ts";
import { OneAtATime } from "../../lib/one-at-a-time.ts";
import { sentenceOf } from "../../ui/toasts.ts";

type State<T> = { value: T | null; error: string | null; isLoading: boolean; since: string };
export type Loaded<T> = State<T> & { reload: () => void };

/**
 * Reads when `key` or `version` changes, and when asked. What is shown stays until the new value is there. The key says
 * what is read: of another one nothing is awaited or shown. The version says when it may have changed: one read at a
 * time, and what came is shown also if it may have changed again meanwhile.
 */
export function useLoaded<T>(key: string, read: () => Promise<T>, version = ""): Loaded<T> {
  const [state, setState] = useState<State<T>>({ value: null, error: null, isLoading: true, since: new Date().toISOString() });
  const [asked, setAsked] = useState(0);
  const latest = useRef(read);
  latest.current = read;
  const reads = useRef<OneAtATime<T> | null>(null);
  useEffect(() => {
    const own = new OneAtATime<T>(() => latest.current(), {
      onBegin: () => setState((before) => ({ ...before, isLoading: true, error: null, since: new Date().toISOString() })),
      onValue: (value, isLast) => setState({ value, error: null, isLoading: !isLast, since: "" }),
      onError: (error, isLast) => setState((before) => ({ ...before, error: sentenceOf(error), isLoading: !isLast })),
    });
    reads.current = own;
    return () => own.end();
  }, [key]);
  useEffect(() => reads.current?.want(), [key, version, asked]);
  // What failed while the server was away is read again when it is back.
  const isLive = homeConnection.value.phase === "live";
  useEffect(() => {
    if (isLive && state.error !== null) reads.current?.want();
  }, [isLive]);
  const reload = useCallback(() => setAsked((before) => before + 1), []);
  return { ...state, reload };
}
