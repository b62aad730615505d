// A click that was meant for what was there before must not answer what has taken its place.
import { useEffect, useState } from "preact/hooks";

export const SETTLE_MS = 300;

/** False until `key` has been the same for 300 ms: already in the first draw with another key. */
export function useSettled(key: string): boolean {
  const [settled, setSettled] = useState<string | null>(null);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(key), SETTLE_MS);
    return () => clearTimeout(timer);
  }, [key]);
  return settled === key;
}
