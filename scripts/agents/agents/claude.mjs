// Claude Code through its adapter: another address for its model is a variable.

import { mkdirSync } from "node:fs";
import { join } from "node:path";

import { NO_KEY } from "./key.mjs";

export default {
  id: "claude-code",
  package: "@agentclientprotocol/claude-agent-acp",
  version: "0.99.1",
  program: "claude-agent-acp",
  args: [],

  setUp({ home, model }) {
    const own = join(home, ".claude");
    mkdirSync(own);
    return {
      CLAUDE_CONFIG_DIR: own,
      ANTHROPIC_BASE_URL: model,
      ANTHROPIC_API_KEY: NO_KEY,
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
      DISABLE_AUTOUPDATER: "1",
    };
  },

  storage: ({ home }) => [join(home, ".claude/projects")],
};
