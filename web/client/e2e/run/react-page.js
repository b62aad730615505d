// A React app with the hook, and the same with a loop of its own.
import { browserStorage } from "piton-client/run";
import { gitTruth } from "piton-client/run/git";
import { instrument } from "piton-client/run/instrument";
import { openAiStream } from "piton-client/run/openai";
import { useResumableRun } from "piton-client/run/react";
import { createElement, StrictMode, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

const given = new URLSearchParams(location.search);
const chatId = given.get("chat");
const post = async (path, body) => (await fetch(path, { method: "POST", body: JSON.stringify({ chat: chatId, ...body }) })).json();
const options = {
  chatId, provider: "p", model: "m",
  stream: openAiStream({ baseUrl: `${location.origin}/v1`, headers: { "x-chat": chatId } }),
  sandbox: {
    identity: () => ({ sandboxSessionId: "box", activeBranch: "main", repoId: null }),
    truth: gitTruth((command) => post("/exec", { command })),
  },
};

function Shown({ text, last, offered, onSend, onResume }) {
  return createElement("div", null,
    createElement("button", { id: "send", onClick: onSend }, "Send"),
    offered && createElement("button", { id: "resume", onClick: onResume }, "Resume"),
    createElement("p", { id: "text" }, text),
    createElement("p", { id: "last" }, last));
}

function Hook() {
  const { messages, text, recovery, send, resume } = useResumableRun(options);
  return createElement(Shown, {
    text, last: messages.at(-1)?.content ?? "", offered: recovery.status === "offered", onSend: () => void send("stream"), onResume: () => void resume(),
  });
}

let onText = () => undefined;
const storage = browserStorage();
const conversation = { load: () => storage.loadConversation(chatId), save: (messages) => storage.saveConversation(chatId, messages) };
const loop = instrument(async ({ recorder, messages, restored, signal }, prompt) => {
  if (prompt) {
    messages.push({ role: "user", content: prompt });
    recorder.push(messages.at(-1));
  }
  recorder.startRound(restored?.round ?? 1);
  let content = "";
  for await (const part of options.stream({ messages, tools: [], provider: "p", model: "m", signal })) {
    content += part.text;
    recorder.text(part.text);
    onText(content);
  }
  await recorder.responseReceived();
  messages.push({ role: "assistant", content });
  await conversation.save(messages);
  onText("", content);
}, { ...options, storage, conversation });

function Own() {
  const [{ text, last }, show] = useState({ text: "", last: "" });
  const [recovery, follow] = useState(loop.recovery.getState());
  useEffect(() => {
    onText = (shown, whole = "") => show({ text: shown, last: whole });
    const unsubscribe = loop.recovery.subscribe(() => follow(loop.recovery.getState()));
    void loop.recovery.check();
    return unsubscribe;
  }, []);
  return createElement(Shown, {
    text, last, offered: recovery.status === "offered", onSend: () => void loop.start("stream"), onResume: () => void loop.recovery.resume(),
  });
}

createRoot(document.getElementById("root")).render(createElement(StrictMode, null, createElement(given.get("kind") === "hook" ? Hook : Own)));
