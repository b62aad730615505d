import type { ComponentType, VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Button } from "../ui/Button.tsx";
import { Loading } from "../ui/parts.tsx";

/** A component whose code is loaded when it is first shown. */
export function lazy<P extends object>(load: () => Promise<ComponentType<P>>): (props: P) => VNode {
  let loaded: ComponentType<P> | null = null;
  return (props: P) => {
    const [Component, setComponent] = useState<ComponentType<P> | null>(() => loaded);
    const [error, setError] = useState<string | null>(null);
    const [since] = useState(() => new Date().toISOString());
    const begin = () => {
      setError(null);
      load()
        .then((found) => {
          loaded = found;
          setComponent(() => found);
        })
        // An upgraded server has other files than this page knows.
        .catch(() => setError("This part of the page could not be loaded. The server may have been upgraded."));
    };
    useEffect(() => {
      if (!Component) begin();
    }, []);
    if (Component) return <Component {...props} />;
    if (!error) return <Loading what="Loading" since={since} />;
    return (
      <div class="empty">
        <p>{error}</p>
        <div class="row-wrap">
          <Button onClick={begin}>Retry</Button>
          <Button onClick={() => location.reload()}>Reload the page</Button>
        </div>
      </div>
    );
  };
}
