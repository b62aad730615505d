/** A refused prompt goes back into the prompt box, whole. */
import "fake-indexeddb/auto";
import type { LogRecord, PromptContent } from "piton-client";
import { beforeEach, describe, expect, it, vi } from "vitest";

const content: PromptContent = [
  { type: "text", text: "look" },
  { type: "image", mimeType: "image/png", data: "AAAA" },
  { type: "text", text: "closely" },
];

beforeEach(() => {
  localStorage.clear();
  vi.resetModules();
  vi.unstubAllGlobals();
});

describe.each(["with", "without"])("%s IndexedDB", (mode) => {
  it("keeps words, images and what was typed meanwhile", async () => {
    if (mode === "without") vi.stubGlobal("indexedDB", { open: () => { throw new DOMException("off", "SecurityError"); } });
    const drafts = await import("../src/data/drafts.ts");
    const images = await import("../src/data/images.ts");
    const id = `sess_${mode}`;
    drafts.saveDraft(id, "typed meanwhile");
    await images.saveImages(id, [{ name: "own", mimeType: "image/png", data: "BBBB" }]);
    const before = drafts.draftVersion.value;
    await drafts.editAgain(id, content);
    expect(drafts.loadDraft(id)).toBe("look\nclosely\n\ntyped meanwhile");
    expect((await images.loadImages(id)).map((image) => image.data)).toEqual(["AAAA", "BBBB"]);
    expect(drafts.draftVersion.value).toBe(before + 1);
  });
});

it("an agent takes images until it is known that it does not", async () => {
  const { noteCapabilities, noteImages, takesImages } = await import("../src/data/capabilities.ts");
  const initialized = (prompt: object | undefined) => ({ seq: 1, ts: "t", kind: "agent.initialized", capabilities: { load: true, prompt } }) as unknown as LogRecord;
  expect(takesImages("a")).toBe(true);
  noteImages("a", false);
  expect([takesImages("a"), takesImages("b")]).toEqual([false, true]);
  noteCapabilities("a", initialized({ image: true }));
  expect(takesImages("a")).toBe(true);
  // An agent that takes text only says nothing of its prompts.
  noteCapabilities("a", initialized(undefined));
  expect(takesImages("a")).toBe(false);
});
