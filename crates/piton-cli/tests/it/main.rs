//! `piton` as people start it, as one program.
//!
//! [`cli`]: what the commands print, whole outputs compared. [`server`]: stories through the real binary,
//! with real agents and real kills. A story is here because it needs the program, its processes or its
//! terminal; what a router and a memory store can show is in `piton-server`'s tests, and `server::limits`
//! runs the server in this process. The stories:
//!
//! | module | story |
//! |---|---|
//! | `terminal` | a conversation outlives its server and its terminal; scripts get answer, outcome and exit code |
//! | `commands` | a question is answered, and a run steered, from the command line |
//! | `resuming` | an agent comes back: by a prompt, by a look, at a start, by hand; context kept or said to be lost |
//! | `interruptions` | a killed agent is interrupted, whatever it says while it dies; who looks learns what the next agent knows |
//! | `matrix` | every kind of agent, killed at every point |
//! | `streams`, `cuts` | readers that are cut, over SSE and WebSocket, read exactly the log; no turn notices that its server ends |
//! | `queue`, `queue_kills` | prompts while a run is open, also while everything around them is killed |
//! | `rules` | permission requests: shown whole, answered by rules, never by accident |
//! | `drawn` | the drawn terminal: keys, pastes, sizes, requests, and deaths of everything around it |
//! | `sockets` | the WebSocket: methods, events, limits, falling behind, the end |
//! | `index` | the list of sessions as it changes |
//! | `broadcast` | readers hear each change of a status, and the end of a log and of a token |
//! | `operations` | every field of a status; requests are fulfilled once |
//! | `workspace` | files, git and shells of a session, and nothing outside of it |
//! | `worktrees` | two sessions of a task side by side, and cleaning up without loss |
//! | `features` | modes, models, login, tasks from the command line |
//! | `adopted` | logs that another program began |
//! | `settings` | settings of a server that runs, and idle agents |
//! | `agents` | agents of the settings |
//! | `secrets` | what is secret reaches no disk |
//! | `permissions` | folders and files are their owner's alone |
//! | `attacks`, `hostile` | tokens, hosts, bodies, escape sequences |
//! | `limits` | every limit of the server is reached once |
//! | `prompt_cost`, `idle` | what a prompt costs, and what a server that has nothing to do costs |
//! | `example` | the example program of `piton-api` |
//! | `watching` | audit, revocation, counts, a start that does not wait |
//! | `care` | doctor, sign-in links, a server that does not answer |
//! | `tls` | certificates |
//! | `fuzz` | whatever the description allows, and much that it does not |
//!
//! Helpers: `world` (the real binary with its data folder), `limited` (a server in this process), `pty`
//! (a terminal), `socket` (a WebSocket client).
//!
//! [`attacks`]: what once succeeded, by name. [`json_names`]: ids have one name in all JSON.

mod attacks;
mod cli;
mod json_names;
mod server;
mod tools;
