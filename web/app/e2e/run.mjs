// `npm run e2e [NAME]`: the tests whose names contain NAME, or all. PITON is the binary.
import "./states.test.mjs";
import "./recovery.test.mjs";
import "./conversation.test.mjs";
import "./hostile.test.mjs";
import "./workspace.test.mjs";
import "./timeline.test.mjs";
import "./graph.test.mjs";
import "./finishing.test.mjs";
import "./access.test.mjs";
import "./phone.test.mjs";
import "./screens.test.mjs";
import "./browser-run.test.mjs";
import { runAll } from "./lib/runner.mjs";

process.exitCode = (await runAll(process.argv[2])) ? 0 : 1;
