// A prompt's words and its attachments.
import type { ContentBlock, PromptContent } from "piton-client";

/** The words of a prompt, without its attachments. */
export function wordsOf(content: PromptContent): string {
  return typeof content === "string" ? content : content.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("\n");
}

export function imagesOf(content: PromptContent): { name: string; mimeType: string; data: string }[] {
  if (typeof content === "string") return [];
  return content.flatMap((block) => (block.type === "image" ? [{ name: "image", mimeType: block.mimeType, data: block.data }] : []));
}

/** The blocks that are not words. */
export function attachmentsOf(content: PromptContent): ContentBlock[] {
  return typeof content === "string" ? [] : content.filter((block) => block.type !== "text");
}

/** The prompt with other words, where the first ones were; attachments stay as they are. */
export function withWords(content: PromptContent, words: string): PromptContent {
  if (attachmentsOf(content).length === 0 || typeof content === "string") return words;
  const at = content.findIndex((block) => block.type === "text");
  const said: ContentBlock[] = words.trim() === "" ? [] : [{ type: "text", text: words }];
  const rest = (blocks: ContentBlock[]) => blocks.filter((block) => block.type !== "text");
  return at < 0 ? [...said, ...content] : [...content.slice(0, at), ...said, ...rest(content.slice(at))];
}
