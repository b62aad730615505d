// What a permission request asks for, beside its command and its diffs.
import type { PermissionRequest } from "piton-client";
import { revealed } from "../lib/text.ts";

/** A longer request does not fit on a row of the list: it is reviewed in its session. */
const ROW_CHARS_MAX = 160;

/** Whether a value says exactly what is shown as the command. Words with spaces in them look like several. */
function isCommand(value: unknown, command: string): boolean {
  if (Array.isArray(value)) return value.every((word) => typeof word === "string" && /^\S+$/.test(word)) && value.join(" ") === command;
  return typeof value === "string" && value.trim() === command.trim();
}

/** Arguments that neither the command nor a diff shows. */
export function otherArguments(request: PermissionRequest): Record<string, unknown> | null {
  const given = request.arguments as Record<string, unknown> | null | undefined;
  if (!given || typeof given !== "object") return null;
  const rest = Object.entries(given).filter(([, value]) => {
    if (request.command && isCommand(value, request.command)) return false;
    return !request.diffs.some((diff) => value === diff.new_text || value === diff.old_text || value === diff.path);
  });
  return rest.length > 0 ? Object.fromEntries(rest) : null;
}

/** All of what would be allowed, in the few lines of a row; null: it does not fit, and must be reviewed. */
export function wholeOnRow(request: PermissionRequest): string | null {
  if (!request.command || request.truncated || request.text || request.diffs.length > 0 || request.command.includes("\n")) return null;
  const others = otherArguments(request);
  const all = revealed(others ? `${request.command}\n${JSON.stringify(others)}` : request.command);
  return all.length <= ROW_CHARS_MAX ? all : null;
}
