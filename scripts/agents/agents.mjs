// The real agents that are tried. Each has a file of its own in `agents/`: which release, how it is
// pointed at another model, where it keeps its conversations, and what it does not offer.
//
//   id            what Piton calls it
//   package, version, beside   what npm installs
//   program, args              how it is started
//   setUp({ folder, home, model, bin })   writes its settings, gives its environment
//   storage({ home })          the folders with its conversations
//   fileMark(id)               what the files of one conversation have in their names, if not its id
//   forgetCommand(id)          its own command that deletes a conversation, if deleting files cannot
//   refusesAtPrompt            it takes the id of a deleted conversation, and refuses the next prompt
//   context                    what it has after a resume, if not its own conversation: `injected`
//   notOffered                 by step: why it cannot be tried with this agent

import claude from "./agents/claude.mjs";
import cline from "./agents/cline.mjs";
import codex from "./agents/codex.mjs";
import copilot from "./agents/copilot.mjs";
import gemini from "./agents/gemini.mjs";
import opencode from "./agents/opencode.mjs";
import pi from "./agents/pi.mjs";
import qwen from "./agents/qwen.mjs";

export const AGENTS = [opencode, codex, claude, gemini, qwen, copilot, cline, pi];
