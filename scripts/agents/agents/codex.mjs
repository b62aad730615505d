// Codex through its adapter: another model provider in its settings, spoken to by Responses.

import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

export default {
  id: "codex",
  package: "@agentclientprotocol/codex-acp",
  version: "2.6.0",
  program: "codex-acp",
  args: [],

  setUp({ home, model }) {
    const own = join(home, ".codex");
    mkdirSync(own);
    const lines = [
      'model = "scripted"',
      'model_provider = "scripted"',
      "check_for_update_on_startup = false",
      "",
      "[analytics]",
      "enabled = false",
      "",
      "[model_providers.scripted]",
      'name = "Scripted"',
      `base_url = ${JSON.stringify(`${model}/v1`)}`,
      'wire_api = "responses"',
      "supports_websockets = false",
      "requires_openai_auth = false",
    ];
    writeFileSync(join(own, "config.toml"), `${lines.join("\n")}\n`);
    // In its other modes it asks for no permission.
    return { CODEX_HOME: own, INITIAL_AGENT_MODE: "workspace-write" };
  },

  /** Files of conversations, and databases that name them: all but its settings. */
  storage: ({ home }) => {
    const own = join(home, ".codex");
    return readdirSync(own).filter((name) => name !== "config.toml").map((name) => join(own, name));
  },
  /** Its database knows a conversation whose file is gone. */
  refusesAtPrompt: true,
};
