/// <reference types="node" />
/** The adapters against a server that speaks chat completions; the AI SDK is the real package, in each version that is supported. */
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import type { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

import type { RunMessage, StreamFunction, StreamPart } from "../../src/run/index.js";
import { openAiStream } from "../../src/run/openai.js";
import { Browser, checkpoint, never, testRun } from "./helpers.js";

interface Body {
  model: string;
  messages: Array<{ role: string; content: string | null; tool_calls?: unknown[]; tool_call_id?: string }>;
  tools?: Array<{ function: { name: string } }>;
}

let server: Server;
let address: string;
let bodies: Body[] = [];
let answer: (response: ServerResponse, body: Body) => void;

const chunk = (delta: object, finish: string | null = null) =>
  `data: ${JSON.stringify({ id: "1", created: 1, model: "m", object: "chat.completion.chunk", choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;

beforeAll(async () => {
  server = createServer((request, response) => {
    let text = "";
    request.on("data", (piece: Buffer) => (text += piece.toString()));
    request.on("end", () => {
      const body = JSON.parse(text) as Body;
      bodies.push(body);
      answer(response, body);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  address = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

/** The adapter with this version of the SDK and the provider that goes with it. */
async function aiSdk(sdk: string, provider: string): Promise<StreamFunction> {
  vi.resetModules();
  vi.doMock("ai", () => vi.importActual(sdk));
  const { aiSdkStream } = await import("../../src/run/ai-sdk.js");
  const made = (await import(provider)) as { createOpenAICompatible: typeof createOpenAICompatible };
  return aiSdkStream({ model: (name, model) => made.createOpenAICompatible({ name, baseURL: address, apiKey: "k" })(model) });
}

const ADAPTERS: Array<[string, () => Promise<StreamFunction> | StreamFunction]> = [
  ["fetch", () => openAiStream({ baseUrl: address, apiKey: "k" })],
  ["AI SDK 5", () => aiSdk("ai-5", "ai-5-openai-compatible")],
  ["AI SDK 6", () => aiSdk("ai", "@ai-sdk/openai-compatible")],
  ["AI SDK 7", () => aiSdk("ai-7", "ai-7-openai-compatible")],
];

async function partsOf(stream: StreamFunction, messages: RunMessage[] = [{ role: "user", content: "go" }], signal = new AbortController().signal) {
  const found: StreamPart[] = [];
  const tools = [{ name: "read", description: "Reads", parameters: { type: "object", properties: { path: { type: "string" } } } }];
  for await (const part of stream({ messages, tools, provider: "p", model: "m", signal })) found.push(part);
  return found;
}

const text = (parts: StreamPart[]) => parts.map((part) => (part.type === "text" ? part.text : "")).join("");

describe.each(ADAPTERS)("%s", (_, make) => {
  test("text, thinking and calls in pieces", async () => {
    bodies = [];
    answer = (response) => {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.write(chunk({ role: "assistant", reasoning_content: "hm" }));
      response.write(chunk({ content: "I lo" }));
      response.write(chunk({ content: "ok: ü" }));
      response.write(chunk({ tool_calls: [{ index: 0, id: "c1", type: "function", function: { name: "read", arguments: '{"pa' } }] }));
      response.write(chunk({ tool_calls: [{ index: 0, function: { arguments: 'th":"a"}' } }] }));
      response.write(chunk({}, "tool_calls"));
      response.end("data: [DONE]\n\n");
    };
    const parts = await partsOf(await make());
    expect(text(parts)).toBe("I look: ü");
    expect(parts.filter((part) => part.type === "thinking").map((part) => part.text).join("")).toBe("hm");
    expect(parts.filter((part) => part.type === "tool-call")).toEqual([{ type: "tool-call", call: { id: "c1", name: "read", arguments: { path: "a" } } }]);
    expect(bodies[0]).toMatchObject({ model: "m", tools: [{ function: { name: "read" } }] });
  });

  test("a transcript with calls and results, as a resumed run has it", async () => {
    bodies = [];
    answer = (response) => {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.end(chunk({ content: "ok" }) + chunk({}, "stop") + "data: [DONE]\n\n");
    };
    await partsOf(await make(), [
      { role: "system", content: "Be brief." },
      { role: "user", content: "go" },
      { role: "assistant", content: "look", toolCalls: [{ id: "c1", name: "read", arguments: { path: "a" } }] },
      { role: "tool", content: "text", toolCallId: "c1", toolName: "read" },
      { role: "user", content: "[SESSION_RESUMED]" },
    ]);
    const sent = bodies[0]?.messages ?? [];
    expect(sent.map((message) => message.role)).toEqual(["system", "user", "assistant", "tool", "user"]);
    expect(sent[2]?.tool_calls).toMatchObject([{ id: "c1", function: { name: "read", arguments: '{"path":"a"}' } }]);
    expect(sent[3]).toMatchObject({ tool_call_id: "c1", content: "text" });
  });

  test("a connection that is cut is an error, not an end", async () => {
    answer = (response) => {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.end(chunk({ content: "Half a sen" }));
    };
    await expect(partsOf(await make())).rejects.toMatchObject({ code: expect.stringMatching(/stream_cut|provider_error/) as string });
  });

  test("a provider that is down is an error", async () => {
    answer = (response) => response.writeHead(503).end("down");
    await expect(partsOf(await make())).rejects.toMatchObject({ code: "provider_error" });
  });

  test("an abort ends the request", async () => {
    let isClosed = false;
    answer = (response) => {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.write(chunk({ content: "Half" }));
      response.on("close", () => (isClosed = true));
    };
    const stop = new AbortController();
    setTimeout(() => stop.abort(), 50);
    await Promise.race([partsOf(await make(), undefined, stop.signal), never(stop.signal)]).catch(() => undefined);
    await expect.poll(() => isClosed).toBe(true);
  });

  test("an interrupted run is resumed with the saved provider and model", async () => {
    bodies = [];
    answer = (response) => {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.end(chunk({ content: "the rest" }) + chunk({}, "stop") + "data: [DONE]\n\n");
    };
    const browser = new Browser();
    const storage = browser.storage();
    await storage.saveConversation("chat", [{ role: "user", content: "go" }]);
    await storage.save(checkpoint({ phase: "streaming_llm", accumulated: "Half", model: "saved-model" }));
    const { run } = testRun(browser, () => [], { stream: await make() });
    await run.open();
    await run.recovery.resume();
    expect(run.getState().messages.at(-1)?.content).toBe("the rest");
    expect(bodies[0]?.model).toBe("saved-model");
    expect(bodies[0]?.messages.at(-1)?.content).toContain("> Half");
  });
});
