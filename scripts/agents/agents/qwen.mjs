// Qwen Code: the address of its model is a variable, as for OpenAI's own clients.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { NO_KEY } from "./key.mjs";

export default {
  id: "qwen",
  package: "@qwen-code/qwen-code",
  version: "0.24.4",
  program: "qwen",
  args: ["--acp"],

  setUp({ home, model }) {
    const own = join(home, ".qwen");
    mkdirSync(own);
    const settings = {
      security: { auth: { selectedType: "openai" }, folderTrust: { enabled: false } },
      general: { enableAutoUpdate: false, disableAutoUpdate: true },
      privacy: { usageStatisticsEnabled: false },
      model: { name: "scripted" },
      // By default it lets a model decide about permissions.
      tools: { approvalMode: "default" },
    };
    writeFileSync(join(own, "settings.json"), JSON.stringify(settings, null, 2));
    return { OPENAI_API_KEY: NO_KEY, OPENAI_BASE_URL: `${model}/v1`, OPENAI_MODEL: "scripted" };
  },

  storage: ({ home }) => [join(home, ".qwen/projects")],
};
