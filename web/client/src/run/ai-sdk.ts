/** The Vercel AI SDK (`ai`, versions 5 to 7) asks the model; the run drives the loop. */
import { jsonSchema, type LanguageModel, type ModelMessage, streamText, tool, type ToolSet } from "ai";

import type { StreamFunction, StreamPart } from "./run.js";
import { messageOf, RunError, type RunMessage } from "./types.js";

export interface AiSdkOptions {
  /** The model of a run; a resumed run asks for the provider and model that it was begun with. */
  model: (provider: string, model: string) => LanguageModel;
  /** Added to every call of `streamText`: `temperature`, `providerOptions`, … */
  settings?: Record<string, unknown>;
}

export function aiSdkStream(options: AiSdkOptions): StreamFunction {
  return async function* stream(request) {
    const tools = Object.fromEntries(
      request.tools.map(({ name, description, parameters }) => [
        name,
        // Without `execute`: the calls come back, and the run makes them.
        tool({ description, inputSchema: jsonSchema(parameters as Parameters<typeof jsonSchema>[0]) }),
      ]),
    );
    const result = streamText({
      maxRetries: 0,
      // The conversation is the app's own: what has the role `system` there is meant to.
      allowSystemInMessages: true,
      // Errors are thrown below; without this they are printed, too.
      onError: () => undefined,
      ...options.settings,
      model: options.model(request.provider, request.model),
      messages: request.messages.map(toModelMessage),
      tools: tools as ToolSet,
      abortSignal: request.signal,
    });
    let isFinished = false;
    for await (const part of result.fullStream as AsyncIterable<{ type: string } & Record<string, unknown>>) {
      const found = toPart(part);
      if (found) yield found;
      if (part.type === "error") {
        throw new RunError("provider_error", `The provider failed: ${messageOf(part.error)}`, { cause: part.error });
      }
      if (part.type === "abort") request.signal.throwIfAborted();
      // An answer that was cut off has an end here, too, but no reason of the provider's.
      if (part.type === "finish") {
        isFinished = part.finishReason !== "unknown" && (part.finishReason !== "other" || part.rawFinishReason !== undefined);
      }
    }
    if (!isFinished) throw new RunError("stream_cut", "The connection to the provider ended in the middle of an answer.");
  };
}

function toPart(part: { type: string } & Record<string, unknown>): StreamPart | null {
  const text = part.text ?? part.delta;
  if (part.type === "text-delta" && typeof text === "string") return { type: "text", text };
  if (part.type === "reasoning-delta" && typeof text === "string") return { type: "thinking", text };
  if (part.type === "tool-call") {
    return { type: "tool-call", call: { id: String(part.toolCallId), name: String(part.toolName), arguments: part.input } };
  }
  return null;
}

function toModelMessage(message: RunMessage): ModelMessage {
  const { role, content } = message;
  if (role === "tool") {
    const toolCallId = message.toolCallId ?? "";
    const toolName = message.toolName ?? "";
    return { role, content: [{ type: "tool-result", toolCallId, toolName, output: { type: "text", value: content } }] };
  }
  if (role === "assistant" && message.toolCalls) {
    const said = content ? [{ type: "text" as const, text: content }] : [];
    const calls = message.toolCalls.map((call) => ({
      type: "tool-call" as const, toolCallId: call.id, toolName: call.name, input: call.arguments,
    }));
    return { role, content: [...said, ...calls] };
  }
  return { role: role === "assistant" || role === "system" ? role : "user", content };
}
