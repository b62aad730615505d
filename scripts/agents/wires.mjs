// The three languages in which agents speak with models: each reads a request into one common form,
// and writes an answer piece by piece. Nothing is decided here.
//
// The common form of a request: `items`, what was said in its order, each `{ role, text }` with the
// role `system`, `user`, `assistant`, `call` or `result`; `tools`, each `{ name, schema }`; and
// `isForm`, whether an answer in a given form is wanted, as for titles.

/** The text of a content that is a string, or a list of parts. */
function textOf(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return content == null ? "" : JSON.stringify(content);
  return content.map((part) => part.text ?? JSON.stringify(part)).join("\n");
}

const roleOf = (role) => (role === "developer" ? "system" : role);
const nowS = () => Math.floor(Date.now() / 1000);

let counted = 0;
const newId = (kind) => `${kind}_${(counted += 1)}`;

/** Server-sent events; each has a name only in the languages that want one. */
function events(response) {
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" });
  return {
    data: (value) => response.write(`data: ${typeof value === "string" ? value : JSON.stringify(value)}\n\n`),
    named: (value) => response.write(`event: ${value.type}\ndata: ${JSON.stringify(value)}\n\n`),
    end: () => response.end(),
  };
}

/** For requests that want the whole answer at once: collects it, and sends it at the end. */
function collected(response, whole) {
  let said = "";
  let called = null;
  return {
    text: (piece) => (said += piece),
    call: (name, input) => (called = { id: newId("call"), name, input }),
    end: () => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify(whole(said, called)));
    },
  };
}

/** OpenAI's Chat Completions. */
export const chat = {
  read(body) {
    const items = [];
    for (const message of body.messages ?? []) {
      if (message.role === "tool") items.push({ role: "result", text: textOf(message.content) });
      else if (message.content) items.push({ role: roleOf(message.role), text: textOf(message.content) });
      for (const call of message.tool_calls ?? []) {
        items.push({ role: "call", text: `${call.function.name} ${call.function.arguments}` });
      }
    }
    const functions = (body.tools ?? []).filter((tool) => tool.type === "function");
    const tools = functions.map(({ function: f }) => ({ name: f.name, schema: f.parameters }));
    return { items, tools, isForm: Boolean(body.response_format) };
  },

  answer(response, body) {
    const about = { id: newId("chatcmpl"), created: nowS(), model: body.model };
    const usage = { prompt_tokens: 10, completion_tokens: 10, total_tokens: 20 };
    if (!body.stream) {
      return collected(response, (content, call) => {
        const tool_calls = call && [asChatCall(call.id, call.name, call.input)];
        const message = { role: "assistant", content, ...(call && { tool_calls }) };
        const finish_reason = call ? "tool_calls" : "stop";
        return { ...about, object: "chat.completion", choices: [{ index: 0, message, finish_reason }], usage };
      });
    }
    const stream = events(response);
    let finish = "stop";
    const send = (delta, finish_reason = null) => {
      const choices = [{ index: 0, delta, finish_reason }];
      stream.data({ ...about, object: "chat.completion.chunk", choices });
    };
    send({ role: "assistant", content: "" });
    return {
      text: (content) => send({ content }),
      call: (name, input) => {
        finish = "tool_calls";
        send({ tool_calls: [{ index: 0, ...asChatCall(newId("call"), name, input) }] });
      },
      end: () => {
        send({}, finish);
        stream.data({ ...about, object: "chat.completion.chunk", choices: [], usage });
        stream.data("[DONE]");
        stream.end();
      },
    };
  },
};

function asChatCall(id, name, input) {
  return { id, type: "function", function: { name, arguments: JSON.stringify(input) } };
}

/** OpenAI's Responses. */
export const responses = {
  read(body) {
    const input = typeof body.input === "string" ? [{ role: "user", content: body.input }] : (body.input ?? []);
    const items = input.flatMap(responseItem);
    if (body.instructions) items.unshift({ role: "system", text: body.instructions });
    const functions = (body.tools ?? []).filter((tool) => tool.type === "function");
    const tools = functions.map(({ name, parameters }) => ({ name, schema: parameters }));
    return { items, tools, isForm: body.text?.format?.type === "json_schema" };
  },

  answer(response, body) {
    const id = newId("resp");
    const about = { id, object: "response", created_at: nowS(), model: body.model };
    const output = [];
    const whole = (status) => ({ ...about, status, output, usage: RESPONSE_USAGE });
    if (!body.stream) {
      return collected(response, (said, call) => {
        output.push(call ? responseCall(call.name, call.input) : responseMessage(newId("msg"), said));
        return whole("completed");
      });
    }
    const stream = events(response);
    stream.named({ type: "response.created", response: whole("in_progress") });
    let message = null;
    const open = () => {
      message = { id: newId("msg"), said: "", at: { output_index: output.length, content_index: 0 } };
      const { at } = message;
      const item = { ...responseMessage(message.id, ""), status: "in_progress", content: [] };
      stream.named({ type: "response.output_item.added", output_index: at.output_index, item });
      const part = { type: "output_text", text: "", annotations: [] };
      stream.named({ type: "response.content_part.added", item_id: message.id, ...at, part });
    };
    const finish = () => {
      if (!message) return;
      const { at, said, id: item_id } = message;
      stream.named({ type: "response.output_text.done", item_id, ...at, text: said });
      const item = responseMessage(item_id, said);
      stream.named({ type: "response.content_part.done", item_id, ...at, part: item.content[0] });
      stream.named({ type: "response.output_item.done", output_index: at.output_index, item });
      output.push(item);
      message = null;
    };
    return {
      text: (delta) => {
        if (!message) open();
        message.said += delta;
        stream.named({ type: "response.output_text.delta", item_id: message.id, ...message.at, delta });
      },
      call: (name, input) => {
        finish();
        const item = responseCall(name, input);
        const at = { output_index: output.length };
        const empty = { ...item, arguments: "", status: "in_progress" };
        stream.named({ type: "response.output_item.added", ...at, item: empty });
        const of = { item_id: item.id, ...at, arguments: item.arguments };
        stream.named({ type: "response.function_call_arguments.done", ...of });
        stream.named({ type: "response.output_item.done", ...at, item });
        output.push(item);
      },
      end: () => {
        finish();
        stream.named({ type: "response.completed", response: whole("completed") });
        stream.end();
      },
    };
  },
};

const RESPONSE_USAGE = {
  input_tokens: 10,
  input_tokens_details: { cached_tokens: 0 },
  output_tokens: 10,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: 20,
};

function responseItem(item) {
  const type = item.type ?? "message";
  if (type === "message") return [{ role: roleOf(item.role), text: textOf(item.content) }];
  if (type.endsWith("_output")) return [{ role: "result", text: textOf(item.output) }];
  if (type.endsWith("_call")) return [{ role: "call", text: `${item.name ?? type} ${item.arguments ?? ""}` }];
  return [];
}

function responseMessage(id, text) {
  const content = [{ type: "output_text", text, annotations: [] }];
  return { type: "message", id, role: "assistant", status: "completed", content };
}

function responseCall(name, input) {
  const about = { type: "function_call", id: newId("fc"), call_id: newId("call"), status: "completed" };
  return { ...about, name, arguments: JSON.stringify(input) };
}

/** Anthropic's Messages. */
export const messages = {
  read(body) {
    const items = (body.messages ?? []).flatMap(({ role, content }) =>
      typeof content === "string" ? [{ role, text: content }] : content.flatMap((block) => blockItem(role, block)),
    );
    if (body.system) items.unshift({ role: "system", text: textOf(body.system) });
    const custom = (body.tools ?? []).filter((tool) => tool.input_schema);
    const tools = custom.map(({ name, input_schema }) => ({ name, schema: input_schema }));
    return { items, tools, isForm: Boolean(body.output_config?.format ?? body.output_format) };
  },

  answer(response, body) {
    const about = { id: newId("msg"), type: "message", role: "assistant", model: body.model };
    const usage = { input_tokens: 10, output_tokens: 10 };
    if (!body.stream) {
      return collected(response, (text, call) => {
        const content = call ? [{ type: "tool_use", ...call }] : [{ type: "text", text }];
        const stop_reason = call ? "tool_use" : "end_turn";
        return { ...about, content, stop_reason, stop_sequence: null, usage };
      });
    }
    const stream = events(response);
    const message = { ...about, content: [], stop_reason: null, stop_sequence: null, usage };
    stream.named({ type: "message_start", message });
    let index = -1;
    let stop_reason = "end_turn";
    let isText = false;
    const begin = (content_block) => {
      close();
      index += 1;
      stream.named({ type: "content_block_start", index, content_block });
    };
    const close = () => {
      if (index >= 0) stream.named({ type: "content_block_stop", index });
      isText = false;
    };
    const add = (delta) => stream.named({ type: "content_block_delta", index, delta });
    return {
      text: (text) => {
        if (!isText) begin({ type: "text", text: "" });
        isText = true;
        add({ type: "text_delta", text });
      },
      call: (name, input) => {
        stop_reason = "tool_use";
        begin({ type: "tool_use", id: newId("toolu"), name, input: {} });
        add({ type: "input_json_delta", partial_json: JSON.stringify(input) });
      },
      end: () => {
        close();
        stream.named({ type: "message_delta", delta: { stop_reason, stop_sequence: null }, usage });
        stream.named({ type: "message_stop" });
        stream.end();
      },
    };
  },
};

function blockItem(role, block) {
  if (block.type === "text") return [{ role, text: block.text }];
  if (block.type === "tool_use") return [{ role: "call", text: `${block.name} ${JSON.stringify(block.input)}` }];
  if (block.type === "tool_result") return [{ role: "result", text: textOf(block.content) }];
  return [];
}
