// Something that is read from the server, can be read again, and says why it could not be.
import { useCallback, useEffect, useState } from "preact/hooks";
import { sentenceOf } from "../../ui/toasts.ts";

export type Loaded<T> = { value: T | null; error: string | null; isLoading: boolean; since: string; reload: () => void };

/** Reads when `key` changes, and when asked. What is shown stays until the new value is there. */
export function useLoaded<T>(key: string, read: () => Promise<T>): Loaded<T> {
  const [state, setState] = useState<{ key: string; value: T | null; error: string | null; isLoading: boolean; since: string }>({
    key: "",
    value: null,
    error: null,
    isLoading: true,
    since: new Date().toISOString(),
  });
  const [asked, setAsked] = useState(0);
  useEffect(() => {
    let isCurrent = true;
    setState((before) => ({ ...before, isLoading: true, error: null, since: new Date().toISOString() }));
    read()
      .then((value) => {
        if (isCurrent) setState({ key, value, error: null, isLoading: false, since: "" });
      })
      .catch((error: unknown) => {
        if (isCurrent) setState((before) => ({ ...before, error: sentenceOf(error), isLoading: false }));
      });
    return () => {
      isCurrent = false;
    };
  }, [key, asked]);
  const reload = useCallback(() => setAsked((before) => before + 1), []);
  return { value: state.value, error: state.error, isLoading: state.isLoading, since: state.since, reload };
}
