import { type Code, type ContentBlock, hasCode, type SessionStatus, type SessionView } from "piton-client";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { agentName } from "../../data/agents.ts";
import { draftVersion, loadDraft, promptHistory, remember, saveDraft } from "../../data/drafts.ts";
import { loadImages, saveImages } from "../../data/images.ts";
import { takesImages } from "../../data/capabilities.ts";
import { outbox, outgoing } from "../../data/outbox.ts";
import { Button } from "../../ui/Button.tsx";
import { report, say } from "../../ui/toasts.ts";
import { type Attachment, Attachments, readImages } from "./Attachments.tsx";
import { Completions, useCompletions } from "./Completions.tsx";
import { ComposerChoices } from "./ComposerChoices.tsx";

const HEIGHT_MAX = 0.4;

type Props = { status: SessionStatus; view: SessionView };

function placeholder(status: SessionStatus): string {
  const agent = agentName(status.agent_profile_id);
  if (status.status === "running" || status.status === "starting") return `Queue a prompt for ${agent}…`;
  return `Ask ${agent} for something…`;
}

/** The prompt box. Enter sends, Shift-Enter is a new line; what is typed is kept until the server has it. */
export function Composer({ status, view }: Props) {
  const id = status.session_id;
  const [text, showText] = useState(() => loadDraft(id));
  const [attachments, showAttachments] = useState<readonly Attachment[]>([]);
  const [isDropping, setDropping] = useState(false);
  const input = useRef<HTMLTextAreaElement>(null);
  const historyAt = useRef<number | null>(null);
  const completions = useCompletions(id, view.agent.commands, text, input);

  // Kept with every key: a phone may end the page without another word.
  const setText = (value: string) => {
    showText(value);
    saveDraft(id, value);
  };

  const setAttachments = (images: readonly Attachment[]) => {
    showAttachments(images);
    void saveImages(id, images);
  };

  useEffect(() => {
    showText(loadDraft(id));
    showAttachments([]);
    let isCurrent = true;
    void loadImages(id).then((images) => {
      // What was attached meanwhile stays.
      if (isCurrent && images.length > 0) showAttachments((now) => (now.length > 0 ? now : images));
    });
    return () => {
      isCurrent = false;
    };
  }, [id, draftVersion.value]);
  useLayoutEffect(() => {
    const element = input.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight + 2, innerHeight * HEIGHT_MAX)}px`;
  }, [text]);

  const send = async (supersede = false) => {
    const said = text.trimEnd();
    if (said.trim() === "" && attachments.length === 0) return;
    const blocks: ContentBlock[] = attachments.map(({ mimeType, data }) => ({ type: "image", mimeType, data }));
    const content = blocks.length === 0 ? said : [...(said ? [{ type: "text", text: said } as ContentBlock] : []), ...blocks];
    remember(said);
    setText("");
    setAttachments([]);
    historyAt.current = null;
    input.current?.focus();
    try {
      await outbox.send(id, content, { ifBusy: supersede ? "supersede" : "queue" });
    } catch (error) {
      // A refused prompt has a card of its own, which says it.
      if (!outgoing.peek().some((prompt) => prompt.session_id === id && prompt.refusal && hasCode(error, prompt.refusal.code as Code))) report(error);
    }
  };

  const canAttach = takesImages(id);
  const addFiles = async (files: Iterable<File>) => {
    if (!canAttach) {
      if ([...files].length > 0) say(`${agentName(status.agent_profile_id)} takes no images`, "error");
      return;
    }
    const { images, refused } = await readImages(files);
    for (const name of refused) say(`${name} is not attached: images up to 8 MB only`, "error");
    setAttachments([...attachments, ...images]);
  };

  const recall = (step: number) => {
    const history = promptHistory();
    if (history.length === 0) return;
    const at = Math.min(Math.max((historyAt.current ?? history.length) + step, 0), history.length);
    historyAt.current = at === history.length ? null : at;
    setText(history[at] ?? "");
  };

  const key = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    const replaced = completions.onKey(event);
    if (replaced !== null) {
      if (replaced !== undefined) setText(replaced);
      return;
    }
    const isEmptyOrRecalled = text === "" || historyAt.current !== null;
    if (event.key === "Enter" && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      void send();
    } else if (event.key === "ArrowUp" && isEmptyOrRecalled) {
      event.preventDefault();
      recall(-1);
    } else if (event.key === "ArrowDown" && historyAt.current !== null) {
      event.preventDefault();
      recall(1);
    }
  };

  const isWaitingOrPaused = status.status === "waiting" || status.status === "paused";
  const isEmpty = text.trim() === "" && attachments.length === 0;
  return (
    <form
      class="composer"
      data-dropping={isDropping ? "" : undefined}
      aria-label="Prompt"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
      onDragOver={(event) => {
        event.preventDefault();
        setDropping(true);
      }}
      onDragLeave={() => setDropping(false)}
      onDrop={(event) => {
        event.preventDefault();
        setDropping(false);
        void addFiles(event.dataTransfer?.files ?? []);
      }}
    >
      <Completions state={completions} onPick={(value) => setText(value)} />
      <Attachments list={attachments} onRemove={(at) => setAttachments(attachments.filter((_, index) => index !== at))} />
      <textarea
        ref={input}
        rows={1}
        value={text}
        aria-label={placeholder(status)}
        placeholder={placeholder(status)}
        aria-autocomplete="list"
        aria-controls={completions.items.length > 0 ? completions.listId : undefined}
        aria-activedescendant={completions.items.length > 0 ? `${completions.listId}-${completions.selected}` : undefined}
        enterkeyhint="send"
        onInput={(event) => {
          historyAt.current = null;
          setText(event.currentTarget.value);
        }}
        onKeyDown={key}
        onSelect={completions.onSelect}
        onPaste={(event) => {
          const files = [...(event.clipboardData?.files ?? [])];
          if (files.length === 0) return;
          event.preventDefault();
          void addFiles(files);
        }}
      />
      <div class="composer-row">
        <ComposerChoices status={status} view={view} canAttach={canAttach} onFiles={addFiles} onInsert={(piece) => { setText(`${text}${piece}`); input.current?.focus(); }} />
        <span class="grow" />
        {isWaitingOrPaused && !isEmpty && (
          <Button dense onClick={() => send(true)} label="Cancel the open run and start with this prompt">
            Replace run
          </Button>
        )}
        <Button type="submit" look="primary" icon="send" dense disabled={isEmpty} label={status.status === "running" ? "Queue" : "Send"} />
      </div>
    </form>
  );
}
