import type { ComponentType, VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Button } from "../ui/Button.tsx";
import { Loading } from "../ui/parts.tsx";

/** Browsers name the file whose import failed, each in its own sentence. */
const FILE = /https?:\/\/[^\s'"?]+\.js/;
let attempts = 0;

/** A browser remembers that an import failed, and never asks for that address again: another one has to be found. */
export async function importAgain<M>(load: () => Promise<M>, failure: unknown): Promise<M> {
  const file = FILE.exec(String(failure))?.[0];
  if (!file?.startsWith(`${location.origin}/`)) return await load();
  attempts += 1;
  return (await import(/* @vite-ignore */ `${file}?again=${attempts}`)) as M;
}

/** A component of a module that is loaded when it is first shown. */
export function lazy<K extends string, P extends object>(load: () => Promise<Record<K, ComponentType<P>>>, name: K): (props: P) => VNode {
  let loaded: ComponentType<P> | null = null;
  return (props: P) => {
    const [Component, setComponent] = useState<ComponentType<P> | null>(() => loaded);
    const [failure, setFailure] = useState<unknown>(null);
    const [since] = useState(() => new Date().toISOString());
    const begin = () => {
      setFailure(null);
      (failure === null ? load() : importAgain(load, failure))
        .then((module) => {
          loaded = module[name];
          setComponent(() => loaded);
        })
        .catch((error: unknown) => setFailure(error ?? new Error("not loaded")));
    };
    useEffect(() => {
      if (!Component) begin();
    }, []);
    if (Component) return <Component {...props} />;
    if (failure === null) return <Loading what="Loading" since={since} />;
    return (
      <div class="empty">
        {/* An upgraded server has other files than this page knows. */}
        <p>This part of the page could not be loaded. The server may be away, or was upgraded: then reload the page. Drafts and queued prompts stay.</p>
        <div class="row-wrap">
          <Button onClick={begin}>Retry</Button>
          <Button onClick={() => location.reload()}>Reload the page</Button>
        </div>
      </div>
    );
  };
}
