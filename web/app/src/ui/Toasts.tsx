import { Button } from "./Button.tsx";
import { dismissToast, toasts } from "./toasts.ts";

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => (
        <div class="toast" data-tone={toast.tone} key={toast.id}>
          <div class="grow">
            <p>{toast.text}</p>
            {toast.hint && <p class="muted small">{toast.hint}</p>}
          </div>
          <Button icon="close" look="plain" dense label="Dismiss" onClick={() => dismissToast(toast.id)} />
        </div>
      ))}
    </div>
  );
}
