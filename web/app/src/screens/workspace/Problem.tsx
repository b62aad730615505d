import { Button } from "../../ui/Button.tsx";

/** What could not be read, why, and another try. */
export function Problem({ text, onRetry }: { text: string; onRetry: () => void }) {
  return (
    <div class="empty" role="alert">
      <p>{text}</p>
      <Button onClick={onRetry}>Retry</Button>
    </div>
  );
}
