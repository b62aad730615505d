import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { Button } from "./Button.tsx";
import type { IconName } from "./Icon.tsx";
import { report } from "./toasts.ts";

export type MenuItem = {
  label: string;
  note?: string | undefined;
  /** For choices: whether it is the present one. */
  checked?: boolean;
  disabled?: boolean;
  onSelect: () => unknown;
};

type Props = {
  label: string;
  icon?: IconName;
  children?: ComponentChildren;
  items: readonly MenuItem[];
  up?: boolean;
  side?: "left" | "right";
  dense?: boolean;
};

/** A button that opens a list: arrows move, Enter chooses, Escape closes. */
export function Menu(props: Props) {
  const [isOpen, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const trigger = useRef<HTMLButtonElement>(null);
  const id = useId();
  const itemsOf = () => [...(root.current?.querySelectorAll<HTMLButtonElement>(".menu-item:not(:disabled)") ?? [])];

  useEffect(() => {
    if (!isOpen) return;
    const items = itemsOf();
    (items.find((item) => item.getAttribute("aria-checked") === "true") ?? items[0])?.focus();
    const outside = (event: Event) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    addEventListener("pointerdown", outside, true);
    return () => removeEventListener("pointerdown", outside, true);
  }, [isOpen]);

  const close = () => {
    setOpen(false);
    trigger.current?.focus();
  };
  const key = (event: KeyboardEvent) => {
    const items = itemsOf();
    const at = items.indexOf(document.activeElement as HTMLButtonElement);
    const steps: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 };
    const next = steps[event.key];
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    } else if (event.key === "Tab") {
      setOpen(false);
    } else if (next !== undefined) {
      event.preventDefault();
      items[(next + items.length) % items.length]?.focus();
    }
  };
  const select = async (item: MenuItem) => {
    close();
    try {
      await item.onSelect();
    } catch (error) {
      report(error);
    }
  };
  const isChoice = props.items.some((item) => item.checked !== undefined);
  return (
    <div class="menu" ref={root} onKeyDown={isOpen ? key : undefined}>
      <Button
        look="plain"
        dense={props.dense ?? true}
        label={props.label}
        popup="menu"
        expanded={isOpen}
        controls={id}
        inputRef={trigger}
        onClick={() => setOpen(!isOpen)}
        {...(props.icon ? { icon: props.icon } : {})}
      >
        {props.children}
      </Button>
      {isOpen && (
        <div class="menu-list" role="menu" id={id} aria-label={props.label} data-up={props.up ? "" : undefined} data-side={props.side}>
          {props.items.map((item) => (
            <button
              type="button"
              class="menu-item"
              key={item.label}
              role={isChoice ? "menuitemradio" : "menuitem"}
              aria-checked={isChoice ? item.checked === true : undefined}
              disabled={item.disabled}
              tabIndex={-1}
              onClick={() => void select(item)}
            >
              <span class="label">{item.label}</span>
              {item.note && <span class="note">{item.note}</span>}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
