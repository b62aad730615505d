// @vitest-environment jsdom
import { act, createElement } from "react";
import { createRoot } from "react-dom/client";
import { expect, test } from "vitest";

import { contentOf as bannerContent } from "../../src/run/banner.js";
import { type ResumableRun, useResumableRun } from "../../src/run/react.js";
import { Browser, checkpoint, sandbox, say, testRun, until } from "./helpers.js";

(globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean }).IS_REACT_ACT_ENVIRONMENT = true;

async function interrupted() {
  const browser = new Browser();
  const storage = browser.storage();
  await storage.saveConversation("chat", [{ role: "user", content: "go" }]);
  await storage.save(checkpoint({ phase: "streaming_llm", accumulated: "Half" }));
  return browser;
}

test("the hook: offered, resumed, and the component follows", async () => {
  const browser = await interrupted();
  let seen: ResumableRun | undefined;
  const options = {
    chatId: "chat", provider: "p", model: "m", sandbox: sandbox(), storage: browser.storage(), lock: browser.locks.tab(), clock: browser.clock,
    stream: async function* () {
      yield await Promise.resolve(say("the rest"));
    },
  };
  const Chat = () => {
    seen = useResumableRun(options);
    return createElement("p", null, seen.messages.map((message) => message.content).join("|"));
  };
  const place = document.createElement("div");
  const root = createRoot(place);
  act(() => root.render(createElement(Chat)));
  // Each look lets React draw what has changed since.
  await until(async () => {
    await act(() => Promise.resolve());
    return seen?.recovery.status === "offered";
  });
  expect(place.textContent).toBe("go");
  await act(async () => {
    await seen?.resume();
  });
  expect(seen?.status).toBe("completed");
  expect(place.textContent).toMatch(/^go\|\[SESSION_RESUMED\][^]*\|the rest$/);
  await act(async () => {
    await seen?.send("more");
  });
  expect(place.textContent).toMatch(/more\|the rest$/);
  act(() => root.unmount());
});

test("to another chat and back while a run is active: it continued, and is the same run", async () => {
  const browser = new Browser();
  let seen: ResumableRun | undefined;
  let finish: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (finish = resolve));
  const seenIn = new Map<string, ResumableRun["run"]>();
  const Chat = ({ chatId }: { chatId: string }) => {
    seen = useResumableRun({
      chatId, provider: "p", model: "m", sandbox: sandbox(), storage: browser.storage(), lock: browser.locks.tab(), clock: browser.clock,
      stream: async function* () {
        yield say("Half ");
        await held;
        yield say("whole");
      },
    });
    return createElement("p", null, seen.text);
  };
  const place = document.createElement("div");
  const root = createRoot(place);
  const show = async (chatId: string) => {
    await act(async () => root.render(createElement(Chat, { chatId })));
    if (seen) seenIn.set(chatId, seen.run);
  };
  await show("a");
  let ended: Promise<unknown> | undefined;
  await act(async () => {
    ended = seen?.send("go");
  });
  await until(async () => {
    await act(() => Promise.resolve());
    return place.textContent === "Half ";
  });
  const first = seen?.run;
  await show("b");
  expect(seen?.run).not.toBe(first);
  expect(seen?.status).toBe("idle");
  await show("a");
  expect(seen?.run).toBe(first);
  expect(seen?.recovery.status).not.toBe("offered");
  expect(place.textContent).toBe("Half ");
  await show("b");
  await act(async () => {
    finish();
    await ended;
  });
  // It has ended meanwhile: the chat is read again.
  await show("a");
  expect(seen?.run).not.toBe(first);
  await until(async () => {
    await act(() => Promise.resolve());
    return seen?.messages.at(-1)?.content === "Half whole";
  });
  act(() => root.unmount());
});

test("the banner's words", async () => {
  const { run } = testRun(await interrupted(), () => []);
  const state = await run.open();
  expect(bannerContent(state)).toEqual({
    sentence: "The session was interrupted while the answer was being received. Resume where you left off?",
    detail: null,
    buttons: [{ label: "Resume", act: "resume" }, { label: "Dismiss", act: "dismiss" }],
  });
  expect(bannerContent({ status: "checking" })).toBeNull();
  await run.recovery.dismiss();
  expect(bannerContent(run.getState().recovery)).toBeNull();
});
