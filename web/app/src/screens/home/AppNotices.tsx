// What concerns the whole page, wherever a person is: on a phone the list is not beside the session.
import { isDraftLost } from "../../data/drafts.ts";
import { isOutboxDurable } from "../../data/outbox.ts";
import { isOutdated } from "../../data/version.ts";
import { Button } from "../../ui/Button.tsx";

export function AppNotices() {
  return (
    <>
      {isOutdated.value && (
        <p class="notice" role="status" data-card="new-version">
          <span class="grow">The server has a new version of this page. Drafts and queued prompts stay.</span>
          <Button dense onClick={() => location.reload()}>Reload</Button>
        </p>
      )}
      {(!isOutboxDurable.value || isDraftLost.value) && (
        <p class="notice" role="status" data-card="storage-full">
          This browser's storage is full or off: drafts and prompts that are not sent yet are lost with this page.
        </p>
      )}
    </>
  );
}
