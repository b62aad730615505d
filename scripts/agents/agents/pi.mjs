// Pi through its adapter, which starts `pi` itself: both are installed. Its models are in a file.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { NO_KEY } from "./key.mjs";

const NO_PERMISSIONS = "pi runs its tools without asking for permission";

export default {
  id: "pi",
  package: "pi-acp",
  version: "0.0.34",
  beside: ["@earendil-works/pi-coding-agent@0.87.1"],
  program: "pi-acp",
  args: [],

  setUp({ home, model, bin }) {
    const own = join(home, ".pi/agent");
    mkdirSync(own, { recursive: true });
    const scripted = {
      id: "scripted",
      name: "Scripted",
      reasoning: false,
      input: ["text"],
      contextWindow: 200_000,
      maxTokens: 8_000,
      cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
    };
    const provider = { baseUrl: `${model}/v1`, api: "openai-completions", apiKey: NO_KEY, models: [scripted] };
    const write = (name, value) => writeFileSync(join(own, name), JSON.stringify(value, null, 2));
    write("models.json", { providers: { scripted: provider } });
    write("settings.json", { defaultProvider: "scripted", defaultModel: "scripted", quietStartup: true });
    return { PI_ACP_PI_COMMAND: join(bin, "pi"), PI_OFFLINE: "1" };
  },

  notOffered: {
    permission: NO_PERMISSIONS,
    "kill the server while it asks": NO_PERMISSIONS,
    "kill the agent while it asks": NO_PERMISSIONS,
  },

  storage: ({ home }) => [join(home, ".pi/agent/sessions"), join(home, ".pi/pi-acp")],
};
