import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { Button } from "./Button.tsx";

/** A modal dialog of the browser's own: focus is kept inside and goes back where it was. */
export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren; foot?: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null);
  const title = useId();
  useEffect(() => {
    const dialog = ref.current;
    const before = document.activeElement;
    dialog?.showModal();
    dialog?.querySelector<HTMLElement>("[data-autofocus]")?.focus();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      class="dialog"
      ref={ref}
      aria-labelledby={title}
      onCancel={(event) => {
        event.preventDefault();
        props.onClose();
      }}
      onClick={(event) => {
        if (event.target === ref.current) props.onClose();
      }}
    >
      <div class="dialog-head">
        <h2 id={title}>{props.title}</h2>
        <Button icon="close" look="plain" dense label="Close" onClick={props.onClose} />
      </div>
      <div class="dialog-body">{props.children}</div>
      {props.foot && <div class="dialog-foot">{props.foot}</div>}
    </dialog>
  );
}
