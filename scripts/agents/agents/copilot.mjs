// GitHub Copilot: a provider of one's own and no call home, by variables.

import { join } from "node:path";

import { NO_KEY } from "./key.mjs";

export default {
  id: "copilot",
  package: "@github/copilot",
  version: "1.0.102",
  program: "copilot",
  args: ["--acp"],

  setUp({ model }) {
    return {
      COPILOT_OFFLINE: "true",
      COPILOT_PROVIDER_TYPE: "openai",
      COPILOT_PROVIDER_BASE_URL: `${model}/v1`,
      COPILOT_PROVIDER_API_KEY: NO_KEY,
      COPILOT_MODEL: "scripted",
      COPILOT_AUTO_UPDATE: "false",
    };
  },

  storage: ({ home }) => [join(home, ".copilot/session-state")],
};
