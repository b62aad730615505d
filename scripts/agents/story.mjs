// What every agent is put through, in this order. Each step says what it wants to show; what it looks at
// is Piton's log and screen, the processes of this machine, and above all what reached the model.

import { allIsLogged, close, once, readLog } from "./steps/ends.mjs";
import { deleteStorage, refuseId, withoutContext } from "./steps/forgetting.mjs";
import * as interruptions from "./steps/interruptions.mjs";
import { begin, mode, permission, print, prompt } from "./steps/turns.mjs";

/** A step that fails because the session hangs leaves out those behind it. */
export const STEPS = [
  ["new", begin],
  ["prompt", prompt],
  ["permission", permission],
  ["kill the agent in mid-turn", interruptions.killAgent],
  ["resume with the next prompt", interruptions.comeBack],
  ["the note about the interruption", interruptions.note],
  ["SIGTERM the agent in mid-turn", interruptions.terminateAgent],
  ["kill the server in mid-turn", interruptions.killServer],
  ["kill the server while it asks", interruptions.killServerAsking],
  ["kill the agent while it asks", interruptions.killAgentAsking],
  ["mode kept over a resume", mode],
  ["reboot in mid-turn", interruptions.reboot],
  ["deleted storage", deleteStorage],
  ["chat --print", print],
  ["refused id", refuseId],
  ["continue without context", withoutContext],
  ["nothing was prompted twice", once],
  ["the log has every answer", allIsLogged],
  ["the log can be read", readLog],
  ["close, and nothing is left", close],
];
