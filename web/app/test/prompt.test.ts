/** A prompt with other words: what is no text stays, where it was. */
import type { ContentBlock } from "piton-client";
import { expect, it } from "vitest";
import { attachmentsOf, imagesOf, withWords, wordsOf } from "../src/data/prompt.ts";

const text = (value: string): ContentBlock => ({ type: "text", text: value });
const image: ContentBlock = { type: "image", mimeType: "image/png", data: "AAAA" };
const link: ContentBlock = { type: "resource_link", name: "notes", uri: "file:///notes.md" };

it("reads the words and the attachments", () => {
  expect([wordsOf("as it is"), imagesOf("x"), attachmentsOf("x")]).toEqual(["as it is", [], []]);
  expect(wordsOf([image, text("one"), link, text("two")])).toBe("one\ntwo");
  expect(attachmentsOf([image, text("one"), link])).toEqual([image, link]);
});

it("puts other words where the first ones were, and keeps the rest", () => {
  expect(withWords("old", "new")).toBe("new");
  expect(withWords([text("old")], "new")).toBe("new");
  expect(withWords([image, text("one"), link, text("two")], "new")).toEqual([image, text("new"), link]);
  expect(withWords([image], "new")).toEqual([text("new"), image]);
  expect(withWords([text("old"), image], " ")).toEqual([image]);
});
