/** Plain `fetch` to an endpoint that speaks OpenAI's chat completions. */
import type { StreamFunction, StreamPart } from "./run.js";
import { messageOf, RunError, type RunMessage, type ToolCall } from "./types.js";

export interface OpenAiOptions {
  /** As far as `/chat/completions`, without it: `https://api.openai.com/v1`. */
  baseUrl: string;
  apiKey?: string;
  headers?: Record<string, string>;
  /** Added to every request: `temperature`, `max_tokens`, … */
  body?: Record<string, unknown>;
  fetch?: typeof fetch;
}

interface Chunk {
  choices?: Array<{
    delta?: {
      content?: string | null;
      reasoning_content?: string | null;
      reasoning?: string | null;
      tool_calls?: Array<{ index?: number; id?: string; function?: { name?: string; arguments?: string } }>;
    };
    finish_reason?: string | null;
  }>;
  error?: { message?: string };
}

export function openAiStream(options: OpenAiOptions): StreamFunction {
  return async function* stream(request) {
    const send = options.fetch ?? fetch;
    const tools = request.tools.map((tool) => ({ type: "function", function: tool }));
    let response: Response;
    try {
      response = await send(`${options.baseUrl.replace(/\/$/, "")}/chat/completions`, {
        method: "POST",
        signal: request.signal,
        headers: {
          "Content-Type": "application/json",
          ...(options.apiKey ? { Authorization: `Bearer ${options.apiKey}` } : {}),
          ...options.headers,
        },
        body: JSON.stringify({
          ...options.body,
          model: request.model,
          messages: request.messages.map(toOpenAi),
          stream: true,
          ...(tools.length > 0 ? { tools } : {}),
        }),
      });
    } catch (error) {
      throw new RunError("provider_unreachable", `The provider cannot be reached: ${messageOf(error)}`, { cause: error });
    }
    if (!response.ok || !response.body) {
      const text = (await response.text().catch(() => "")).slice(0, 500);
      throw new RunError("provider_error", `The provider answered ${response.status}: ${text}`);
    }
    yield* parts(response.body);
  };
}

async function* parts(body: ReadableStream<Uint8Array>): AsyncGenerator<StreamPart> {
  const calls = new Map<number, { id: string; name: string; arguments: string }>();
  let isFinished = false;
  for await (const data of events(body)) {
    if (data === "[DONE]") {
      isFinished = true;
      break;
    }
    const chunk = JSON.parse(data) as Chunk;
    if (chunk.error) throw new RunError("provider_error", chunk.error.message ?? "The provider reported an error.");
    const choice = chunk.choices?.[0];
    const thinking = choice?.delta?.reasoning_content ?? choice?.delta?.reasoning;
    if (thinking) yield { type: "thinking", text: thinking };
    if (choice?.delta?.content) yield { type: "text", text: choice.delta.content };
    for (const piece of choice?.delta?.tool_calls ?? []) {
      const index = piece.index ?? calls.size;
      const call = calls.get(index) ?? { id: "", name: "", arguments: "" };
      call.id ||= piece.id ?? "";
      call.name ||= piece.function?.name ?? "";
      call.arguments += piece.function?.arguments ?? "";
      calls.set(index, call);
    }
    if (choice?.finish_reason) isFinished = true;
  }
  // A connection that is cut cleanly looks like an end: only the provider's own end counts.
  if (!isFinished) throw new RunError("stream_cut", "The connection to the provider ended in the middle of an answer.");
  for (const [index, call] of calls) {
    yield { type: "tool-call", call: { id: call.id || `call_${index}`, name: call.name, arguments: parseArguments(call.arguments) } };
  }
}

/** The `data` of server-sent events. */
async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let buffer = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      buffer += value;
      let end: number;
      while ((end = buffer.indexOf("\n")) >= 0) {
        const line = buffer.slice(0, end).replace(/\r$/, "");
        buffer = buffer.slice(end + 1);
        if (line.startsWith("data:")) yield line.slice(5).trim();
      }
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

/** A model may write broken JSON: the tool gets the text, and says what is wrong with it. */
function parseArguments(text: string): unknown {
  if (!text.trim()) return {};
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function toOpenAi(message: RunMessage): Record<string, unknown> {
  if (message.role === "tool") return { role: "tool", tool_call_id: message.toolCallId, content: message.content };
  if (message.toolCalls) {
    return { role: message.role, content: message.content || null, tool_calls: message.toolCalls.map(toOpenAiCall) };
  }
  return { role: message.role, content: message.content };
}

function toOpenAiCall(call: ToolCall): Record<string, unknown> {
  const given = typeof call.arguments === "string" ? call.arguments : JSON.stringify(call.arguments ?? {});
  return { id: call.id, type: "function", function: { name: call.name, arguments: given } };
}
