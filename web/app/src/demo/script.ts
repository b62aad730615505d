// A model that follows a script, in the page: it writes three notes into the workspace and says what it does.
// After an interruption it knows no more than what the summary says, as a real one.
import type { StreamPart, StreamRequest } from "piton-client/run";

const NOTES = ["monday", "tuesday", "wednesday"] as const;
const WORD_MS = 90;

const TALK: Record<(typeof NOTES)[number], string> = {
  monday: "I begin with Monday. While these words arrive, lock your phone, switch to another app, reload the page, or end the browser from outside. Nothing of what you have seen is lost: it is kept in this browser while it arrives. Now I write the first note into the workspace.",
  tuesday: "The first note is in the workspace. For the second one the same holds: an interruption in the middle of a word, or between a tool call and its result, is no harm. I write it now.",
  wednesday: "Two notes are there. One is left. If you come back after an interruption, the workspace is asked first, so that no note is written twice.",
};

/** The notes that are in the workspace, as far as the conversation says. */
function written(messages: StreamRequest["messages"]): Set<string> {
  const last = messages.at(-1)?.content ?? "";
  const known = last.startsWith("[SESSION_RESUMED]") ? last : messages.filter((message) => message.role === "tool").map((message) => message.content).join("\n");
  return new Set(NOTES.filter((note) => known.includes(`${note}.md`)));
}

export async function* scriptedModel({ messages, signal }: StreamRequest): AsyncIterable<StreamPart> {
  const request = messages.findLastIndex((message) => message.role === "user" && !message.content.startsWith("["));
  const done = written(messages.slice(request));
  const next = NOTES.find((note) => !done.has(note));
  const isResumed = messages.at(-1)?.content.startsWith("[SESSION_RESUMED]") ?? false;
  const opening = isResumed ? `I was interrupted. The workspace has ${done.size === 0 ? "no note" : [...done].join(" and ")}. ` : "";
  const text = next ? TALK[next] : "All three notes are in the workspace, each of them once.";
  for (const word of `${opening}${text}`.split(/(?<= )/)) {
    await pause(WORD_MS, signal);
    yield { type: "text", text: word };
  }
  if (next) yield { type: "tool-call", call: { id: `${next}-${messages.length}`, name: "write_note", arguments: { path: `${next}.md` } } };
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    });
  });
}
