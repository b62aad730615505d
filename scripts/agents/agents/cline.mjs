// Cline: its providers are in a file, as `cline auth` writes it.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { NO_KEY } from "./key.mjs";

const PROVIDER = "openai-compatible";

export default {
  id: "cline",
  package: "cline",
  version: "3.0.65",
  program: "cline",
  args: ["--acp"],

  setUp({ home, model }) {
    const own = join(home, ".cline/data/settings");
    mkdirSync(own, { recursive: true });
    const settings = { provider: PROVIDER, apiKey: NO_KEY, model: "scripted", baseUrl: `${model}/v1` };
    const scripted = { settings, updatedAt: new Date().toISOString(), tokenSource: "manual" };
    const providers = { version: 1, lastUsedProvider: PROVIDER, modes: {}, providers: { [PROVIDER]: scripted } };
    writeFileSync(join(own, "providers.json"), JSON.stringify(providers, null, 2));
    // Over the protocol it takes no other login than its own, unless these are set.
    return { CLINE_API_KEY: NO_KEY, CLINE_PROVIDER: PROVIDER, CLINE_MODEL: "scripted" };
  },

  storage: ({ home }) => [join(home, ".cline/data/sessions")],
};
