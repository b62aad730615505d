// OpenCode: a provider of its own kind in its settings; its conversations are in a database.

import { writeFileSync } from "node:fs";
import { join } from "node:path";

import { NO_KEY } from "./key.mjs";

export default {
  id: "opencode",
  package: "opencode-ai",
  version: "1.18.33",
  program: "opencode",
  args: ["acp"],

  setUp({ folder, model }) {
    const config = join(folder, "opencode.json");
    const options = { baseURL: `${model}/v1`, apiKey: NO_KEY };
    const models = { scripted: { name: "Scripted", limit: { context: 200_000, output: 8_000 } } };
    const scripted = { npm: "@ai-sdk/openai-compatible", name: "Scripted", options, models };
    const settings = {
      model: "scripted/scripted",
      small_model: "scripted/scripted",
      provider: { scripted },
      permission: { bash: "ask", edit: "ask" },
      autoupdate: false,
      share: "disabled",
    };
    writeFileSync(config, JSON.stringify(settings, null, 2));
    return {
      OPENCODE_CONFIG: config,
      OPENCODE_DISABLE_AUTOUPDATE: "1",
      OPENCODE_DISABLE_LSP_DOWNLOAD: "1",
      OPENCODE_DISABLE_MODELS_FETCH: "1",
    };
  },

  storage: ({ home }) => [join(home, ".local/share/opencode")],
  /** The database has rows, not files: its own command deletes them. */
  forgetCommand: (id) => ["session", "delete", id],
};
