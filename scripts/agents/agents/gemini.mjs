// Gemini: another address for its model is a variable, the way to log in a setting. It deletes old
// conversations by itself unless it is asked not to.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { NO_KEY } from "./key.mjs";

export default {
  id: "gemini",
  package: "@google/gemini-cli",
  version: "0.61.0",
  program: "gemini",
  args: ["--acp"],

  setUp({ home, model }) {
    const own = join(home, ".gemini");
    mkdirSync(own);
    const settings = {
      security: { auth: { selectedType: "gemini-api-key" }, folderTrust: { enabled: false } },
      general: { sessionRetention: { enabled: false }, enableAutoUpdate: false },
      privacy: { usageStatisticsEnabled: false },
      telemetry: { enabled: false },
      model: { name: "gemini-2.5-flash" },
    };
    writeFileSync(join(own, "settings.json"), JSON.stringify(settings, null, 2));
    return { GEMINI_API_KEY: NO_KEY, GOOGLE_GEMINI_BASE_URL: model };
  },

  storage: ({ home }) => [join(home, ".gemini/tmp")],
  /** Its files are named by the beginning of the id. */
  fileMark: (id) => id.slice(0, 8),
};
