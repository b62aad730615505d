// The real agents that are tried: which release of each, and how each is pointed at another model.
// What is theirs lies below a folder that the agent's own variable names: HOME stays what it is.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** No key: whoever asks for one must be given something. It is masked, so it is no common word. */
const NO_KEY = "no-key-is-needed-here";

/** `id` is what Piton calls it; `setUp` writes its settings and gives its environment. */
export const AGENTS = [
  {
    id: "opencode",
    package: "opencode-ai",
    version: "1.18.33",
    program: "opencode",
    args: ["acp"],
    setUp: setUpOpencode,
  },
  {
    id: "codex",
    package: "@agentclientprotocol/codex-acp",
    version: "2.6.0",
    program: "codex-acp",
    args: [],
    setUp: setUpCodex,
  },
  {
    id: "claude-code",
    package: "@agentclientprotocol/claude-agent-acp",
    version: "0.99.1",
    program: "claude-agent-acp",
    args: [],
    setUp: setUpClaude,
  },
];

function setUpOpencode(folder, model) {
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
    XDG_CONFIG_HOME: join(folder, "config"),
    XDG_DATA_HOME: join(folder, "data"),
    XDG_STATE_HOME: join(folder, "state"),
    XDG_CACHE_HOME: join(folder, "cache"),
    OPENCODE_DISABLE_AUTOUPDATE: "1",
    OPENCODE_DISABLE_LSP_DOWNLOAD: "1",
    OPENCODE_DISABLE_MODELS_FETCH: "1",
  };
}

function setUpCodex(folder, model) {
  const home = join(folder, "codex");
  mkdirSync(home);
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
  writeFileSync(join(home, "config.toml"), `${lines.join("\n")}\n`);
  // In its other modes it asks nobody.
  return { CODEX_HOME: home, INITIAL_AGENT_MODE: "workspace-write" };
}

function setUpClaude(folder, model) {
  const home = join(folder, "claude");
  mkdirSync(home);
  return {
    CLAUDE_CONFIG_DIR: home,
    ANTHROPIC_BASE_URL: model,
    ANTHROPIC_API_KEY: NO_KEY,
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    DISABLE_AUTOUPDATER: "1",
  };
}
