import { promptText, type OutgoingPrompt } from "piton-client";
import { useEffect } from "preact/hooks";
import { noteImages } from "../../data/capabilities.ts";
import { editAgain } from "../../data/drafts.ts";
import { outbox } from "../../data/outbox.ts";
import { imagesOf, wordsOf } from "../../data/prompt.ts";
import { plural } from "../../lib/format.ts";
import { firstLine } from "../../lib/text.ts";
import { Button } from "../../ui/Button.tsx";
import { Card, Elapsed } from "../../ui/parts.tsx";
import { ImageBlock } from "./ImageBlock.tsx";

/** Prompts that the server does not have yet, or refused. */
export function Outgoing({ prompts, agent }: { prompts: readonly OutgoingPrompt[]; agent: string }) {
  return (
    <>
      {prompts.map((prompt) =>
        prompt.refusal ? (
          <Refused key={prompt.key} prompt={prompt} refusal={prompt.refusal} agent={agent} />
        ) : (
          <div key={prompt.key} class="message" data-role="user" data-sending>
            <h3 class="message-head">
              <span>You</span>
              <span role="status">
                sending <Elapsed since={new Date(prompt.created_at).toISOString()} />
              </span>
            </h3>
            <div class="user-text wrap">{promptText(prompt.content)}</div>
          </div>
        ),
      )}
    </>
  );
}

type RefusedProps = { prompt: OutgoingPrompt; refusal: NonNullable<OutgoingPrompt["refusal"]>; agent: string };

function Refused({ prompt, refusal, agent }: RefusedProps) {
  const images = imagesOf(prompt.content);
  const words = wordsOf(prompt.content);
  const isForImages = refusal.code === "content_not_supported" && images.length > 0;
  useEffect(() => {
    if (isForImages) noteImages(prompt.session_id, false);
  }, [isForImages, prompt.session_id]);
  const drop = () => outbox.drop(prompt.key);
  const edit = async () => {
    // First into the prompt box: what is dropped is nowhere else.
    await editAgain(prompt.session_id, prompt.content);
    drop();
  };
  const sendWords = async () => {
    drop();
    await outbox.send(prompt.session_id, words, { ifBusy: prompt.if_busy });
  };
  return (
    <Card
      tone="error"
      name="refused-prompt"
      title={isForImages ? `${agent} takes no images` : "This prompt was refused"}
      actions={
        <>
          {isForImages && words.trim() !== "" && <Button look="primary" onClick={sendWords}>Send without {images.length === 1 ? "the image" : plural(images.length, "image")}</Button>}
          <Button onClick={edit}>Edit</Button>
          <Button look="plain" onClick={drop}>Drop</Button>
        </>
      }
    >
      {words !== "" && <p class="wrap">{firstLine(words)}</p>}
      {images.length > 0 && <div class="row-wrap attached-images">{images.map((image, at) => <ImageBlock key={at} {...image} alt="Attached image" />)}</div>}
      {isForImages ? (
        <p>The server did not accept the prompt, and nothing of it was sent. Describe what the image shows, or name its file with @.</p>
      ) : (
        <>
          <p>{refusal.title}</p>
          <p class="muted small">{refusal.hint}</p>
        </>
      )}
    </Card>
  );
}
