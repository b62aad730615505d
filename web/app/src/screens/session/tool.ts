// What a tool call is about, from what agents say of it in their different ways.
import type { Item } from "piton-client";
import { diffTexts, type FileDiff } from "../../lib/lines.ts";

export type ToolItem = Extract<Item, { type: "tool" }>;

type Fields = Record<string, unknown>;

function fields(value: unknown): Fields | null {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : null;
}

function text(value: unknown): string | null {
  return typeof value === "string" && value !== "" ? value : null;
}

/** The command of a call that runs one. */
export function commandOf(args: unknown): string | null {
  const given = fields(args);
  const command = given?.["command"] ?? given?.["cmd"];
  if (Array.isArray(command)) return command.every((part) => typeof part === "string") ? command.join(" ") : null;
  return text(command);
}

function pathOf(item: ToolItem): string | null {
  const first = fields(item.locations?.[0]);
  const given = fields(item.arguments);
  return text(first?.["path"]) ?? text(given?.["path"]) ?? text(given?.["file_path"]) ?? text(given?.["filePath"]);
}

/** Edits that the call made or wants to make. */
export function diffsOf(item: ToolItem): FileDiff[] {
  const blocks = (item.content ?? []).map(fields).filter((block) => block?.["type"] === "diff");
  return blocks.map((block) => {
    const path = text(block?.["path"]) ?? "file";
    return diffTexts(path, typeof block?.["oldText"] === "string" ? block["oldText"] : null, String(block?.["newText"] ?? ""));
  });
}

export type Output = { text: string; images: { data: string; mimeType: string }[] };

/** What the call showed: its text and images. */
export function outputOf(item: ToolItem): Output {
  const output: Output = { text: "", images: [] };
  const parts: string[] = [];
  for (const block of item.content ?? []) {
    const inner = fields(fields(block)?.["content"]) ?? {};
    if (inner["type"] === "text" && typeof inner["text"] === "string") parts.push(inner["text"]);
    if (inner["type"] === "image" && typeof inner["data"] === "string" && typeof inner["mimeType"] === "string") {
      output.images.push({ data: inner["data"], mimeType: inner["mimeType"] });
    }
  }
  output.text = parts.join("\n");
  if (output.text === "") output.text = resultText(item.result);
  return output;
}

function resultText(result: unknown): string {
  const said = fields(result);
  const raw = said?.["rawOutput"] ?? result;
  const inner = fields(raw);
  const direct = text(raw) ?? text(inner?.["output"]) ?? text(inner?.["stdout"]) ?? text(inner?.["error"]) ?? text(inner?.["message"]);
  return direct ?? "";
}

export function exitCodeOf(item: ToolItem): number | null {
  const raw = fields(fields(item.result)?.["rawOutput"]);
  const code = raw?.["exit_code"] ?? raw?.["exitCode"];
  return typeof code === "number" ? code : null;
}

const VERBS: Record<string, string> = {
  read: "read", edit: "edit", delete: "delete", move: "move", search: "search", execute: "run", fetch: "fetch", think: "think",
};

/** "run  cargo test", "edit  tests/clock.rs": a verb, and what it is done to. */
export function describe(item: ToolItem, folder: string | null): { verb: string; object: string } {
  const isEdit = (item.content ?? []).some((block) => fields(block)?.["type"] === "diff");
  const kind = VERBS[item.kind ?? ""] ?? (isEdit ? "edit" : null);
  const command = commandOf(item.arguments);
  if (command) return { verb: kind ?? "run", object: command };
  const label = item.title ?? item.name ?? "tool";
  const path = pathOf(item);
  if (path && kind) return { verb: kind, object: relative(path, folder) };
  // Some agents have names for their calls that say all of it.
  const isSentence = label.includes(" ") || label === item.name;
  if (path && !isSentence) return { verb: label, object: relative(path, folder) };
  if (path && item.name && !item.name.includes(" ")) return { verb: item.name, object: relative(path, folder) };
  return kind && kind !== label ? { verb: kind, object: label } : { verb: label, object: "" };
}

export function relative(path: string, folder: string | null): string {
  return folder && path.startsWith(`${folder}/`) ? path.slice(folder.length + 1) : path;
}
