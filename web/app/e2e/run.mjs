// `npm run e2e [NAME]`: the tests whose names contain NAME, or all. `npm run soak [NAME]`: the long ones. PITON is the binary.
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
import "./soak.test.mjs";
import { runAll } from "./lib/runner.mjs";

const names = process.argv.slice(2).filter((word) => word !== "--soak");
// A server or a page that a failed test left behind must not keep it open.
process.exit((await runAll(names[0], { isSoak: process.argv.includes("--soak") })) ? 0 : 1);
