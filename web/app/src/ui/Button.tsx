import type { ComponentChildren, Ref } from "preact";
import { useState } from "preact/hooks";
import { Icon, type IconName } from "./Icon.tsx";
import { report } from "./toasts.ts";

type Look = "normal" | "primary" | "danger" | "plain";

export type ButtonProps = {
  children?: ComponentChildren;
  look?: Look;
  icon?: IconName;
  /** With an icon alone: its name for tooltips and screen readers. */
  label?: string;
  dense?: boolean;
  disabled?: boolean;
  type?: "button" | "submit";
  /** What it returns is awaited: the button is disabled meanwhile, and a failure is reported. */
  onClick?: (event: MouseEvent) => unknown;
  expanded?: boolean;
  pressed?: boolean;
  controls?: string;
  popup?: "menu" | "dialog" | "listbox";
  form?: string;
  class?: string;
  inputRef?: Ref<HTMLButtonElement>;
  describedBy?: string;
};

export function Button(props: ButtonProps) {
  const [isBusy, setBusy] = useState(false);
  const click = async (event: MouseEvent) => {
    const result = props.onClick?.(event);
    if (!(result instanceof Promise)) return;
    setBusy(true);
    try {
      await result;
    } catch (error) {
      report(error);
    } finally {
      setBusy(false);
    }
  };
  const isIcon = props.icon !== undefined && props.children === undefined;
  return (
    <button
      ref={props.inputRef ?? null}
      type={props.type ?? "button"}
      class={`button ${props.class ?? ""}`}
      data-look={props.look ?? "normal"}
      data-size={isIcon ? "icon" : undefined}
      data-dense={props.dense ? "" : undefined}
      disabled={props.disabled || isBusy}
      aria-busy={isBusy || undefined}
      aria-label={isIcon ? props.label : undefined}
      title={props.label}
      aria-expanded={props.expanded}
      aria-pressed={props.pressed}
      aria-controls={props.controls}
      aria-haspopup={props.popup}
      aria-describedby={props.describedBy}
      form={props.form}
      onClick={click}
    >
      {props.icon && <Icon name={props.icon} small={!isIcon} />}
      {props.children}
    </button>
  );
}

export function LinkButton(props: { href: string; children: ComponentChildren; look?: Look; dense?: boolean; label?: string }) {
  return (
    <a class="button" href={props.href} data-look={props.look ?? "normal"} data-dense={props.dense ? "" : undefined} title={props.label}>
      {props.children}
    </a>
  );
}
