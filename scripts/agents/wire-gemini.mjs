// Gemini's language: each piece of an answer is a whole response with a part of the text. The common
// form is that of `wires.mjs`.

/** An object for each piece, or one with all of them if the request does not stream. */
export const generate = {
  read(body) {
    const items = (body.contents ?? []).flatMap(({ role, parts }) =>
      (parts ?? []).flatMap((part) => partItem(role === "model" ? "assistant" : "user", part)),
    );
    const system = (body.systemInstruction?.parts ?? []).map((part) => part.text ?? "").join("\n");
    if (system) items.unshift({ role: "system", text: system });
    const functions = (body.tools ?? []).flatMap((tool) => tool.functionDeclarations ?? []);
    const tools = functions.map((each) => ({ name: each.name, schema: each.parametersJsonSchema ?? each.parameters }));
    return { items, tools, isForm: body.generationConfig?.responseMimeType === "application/json" };
  },

  answer(response, body, path) {
    const isStream = path.endsWith(":streamGenerateContent");
    response.writeHead(200, { "content-type": isStream ? "text/event-stream" : "application/json" });
    const parts = [];
    const whole = (sent, isEnd) => ({
      candidates: [{ index: 0, content: { role: "model", parts: sent }, ...(isEnd && { finishReason: "STOP" }) }],
      usageMetadata: { promptTokenCount: 10, candidatesTokenCount: 10, totalTokenCount: 20 },
      modelVersion: "scripted",
    });
    const add = (part) => {
      parts.push(part);
      if (isStream) response.write(`data: ${JSON.stringify(whole([part], false))}\n\n`);
    };
    return {
      text: (text) => add({ text }),
      call: (name, args) => add({ functionCall: { name, args } }),
      end: () => {
        const rest = JSON.stringify(whole(isStream ? [{ text: "" }] : parts, true));
        response.end(isStream ? `data: ${rest}\n\n` : rest);
      },
    };
  },
};

function partItem(role, part) {
  const { functionCall: call, functionResponse: result } = part;
  if (call) return [{ role: "call", text: `${call.name} ${JSON.stringify(call.args)}` }];
  if (result) return [{ role: "result", text: JSON.stringify(result.response) }];
  return part.text ? [{ role, text: part.text }] : [];
}
