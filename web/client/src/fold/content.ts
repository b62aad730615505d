/** Prompts as text: attachments are named, not included. */
import type { ContentBlock, LogRecord, PromptContent } from "../types.js";

function attachment(what: string, name: string | undefined, mimeType: string | undefined, bytes: number | undefined): string {
  const details = [mimeType, bytes === undefined ? undefined : `${bytes} bytes`].filter((detail) => detail !== undefined);
  const named = name === undefined ? "" : `: ${name.replace(/[\n\r]/g, " ")}`;
  return `[Attached ${what}${named}${details.length === 0 ? "" : ` (${details.join(", ")})`}]`;
}

/** How many bytes a base64 text stands for. */
function bytesOf(base64: string): number {
  const padding = base64.endsWith("==") ? 2 : base64.endsWith("=") ? 1 : 0;
  return Math.max(Math.floor(base64.length / 4) * 3 - padding, 0);
}

const encoder = new TextEncoder();

/** The length of a text in UTF-8. */
export function utf8Length(text: string): number {
  return encoder.encode(text).length;
}

function nameOf(block: ContentBlock): string {
  switch (block.type) {
    case "text":
      return block.text;
    case "image":
      return attachment("image", block.uri, block.mimeType, bytesOf(block.data));
    case "audio":
      return attachment("audio", undefined, block.mimeType, bytesOf(block.data));
    case "resource_link":
      return attachment("link", `${block.name} ${block.uri}`, block.mimeType, undefined);
    case "resource": {
      const { uri, mimeType, text, blob } = block.resource;
      const bytes = text !== undefined ? utf8Length(text) : blob !== undefined ? bytesOf(blob) : undefined;
      return attachment("file", uri, mimeType, bytes);
    }
  }
}

/** All of a prompt as text. */
export function promptText(content: PromptContent): string {
  return typeof content === "string" ? content : content.map(nameOf).join("\n");
}

const BLOCK_TYPES = ["text", "image", "audio", "resource_link", "resource"];

/** What a record's content is as a prompt; null if it has none. */
export function promptOf(record: LogRecord): PromptContent | null {
  const content = record["content"];
  if (typeof content === "string") return content;
  const isBlock = (block: unknown) => BLOCK_TYPES.includes((block as { type?: string } | null)?.type ?? "");
  return Array.isArray(content) && content.every(isBlock) ? (content as ContentBlock[]) : null;
}

/** A text field of a record; null if it was redacted. */
export function textOf(record: LogRecord, field: string): string | null {
  const value = record[field];
  if (value === undefined) return record["redacted"] === true ? null : "";
  return typeof value === "string" ? value : JSON.stringify(value);
}
