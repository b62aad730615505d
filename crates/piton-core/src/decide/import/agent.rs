//! What an execution's agent is: its start, its handle on the conversation, and its end.

use serde_json::json;

use super::{Context, Decision, Importing, NAME_BYTES_MAX, is_soon, recovery, short, short_code};
use crate::event::{
    AgentError, AgentExited, AgentInitialized, AgentReady, AgentSessionAssigned,
    AgentSessionCleared, AgentStarting, Outcome,
};
use crate::interruption;
use crate::limits::AUTH_METHODS_MAX;
use crate::reason::Reason;
use crate::record::NewRecord;
use crate::spool::{AgentInfo, AuthMethod, Fact, OpenedAs};
use crate::state::Phase;

/// An agent's own session id, in bytes. A longer one is of no use: half a handle is none.
const HANDLE_BYTES_MAX: usize = 16 * 1024;

/// As many as a header takes. A half id is none.
fn ways_to_log_in(mut methods: Vec<AuthMethod>) -> Vec<AuthMethod> {
    methods.retain(|method| method.id.len() <= NAME_BYTES_MAX);
    methods.truncate(AUTH_METHODS_MAX);
    for method in &mut methods {
        method.name = short(std::mem::take(&mut method.name));
        method.description = method.description.take().map(short);
    }
    methods
}

impl Importing<'_> {
    /// The agent's own handle on the session's conversation, if it is this execution's to replace;
    /// also when it is reported late.
    fn handle(&self) -> Option<&String> {
        let executor = self.state.facts.executor.as_ref();
        let is_ours = executor.is_none_or(|e| e.execution_id == *self.execution_id);
        let agent = self.state.facts.agent.as_ref().filter(|_| is_ours);
        agent.and_then(|agent| agent.session_id.as_ref())
    }

    /// The conversation that the agent continues began without what was said before it.
    fn lacks_history(&self) -> bool {
        self.state.facts.agent.as_ref().is_some_and(|agent| agent.lacks_history)
    }

    pub(super) fn agent(&mut self, cx: &Context, fact: Fact) {
        let execution_id = self.execution_id.clone();
        match fact {
            Fact::AgentStarting {} => {
                self.push(NewRecord::new(cx.now, AgentStarting { execution_id }));
            }
            Fact::AgentReady {
                opened_as,
                agent_session_id,
                requested_session_id,
                agent,
                capabilities,
            } => {
                let is_short = |id: &String| id.len() <= HANDLE_BYTES_MAX;
                let agent_session_id = agent_session_id.filter(is_short);
                let requested_session_id = requested_session_id.filter(is_short);
                let agent = agent.map(|agent| AgentInfo {
                    name: short(agent.name),
                    version: agent.version.map(short),
                });
                // A session with an id can be continued, also where no user asked for it.
                let is_known = self.handle().is_some() || requested_session_id.is_some();
                let described = AgentInitialized {
                    execution_id: execution_id.clone(),
                    opened_as,
                    agent,
                    capabilities,
                    requested_session_id,
                    // A conversation that began without what was said before does not hold it.
                    context_restored: is_known
                        .then_some(opened_as != OpenedAs::New && !self.lacks_history()),
                };
                self.push(NewRecord::new(cx.now, described));
                self.push(NewRecord::new(cx.now, AgentReady { execution_id, agent_session_id }));
            }
            Fact::AgentSessionAssigned { agent_session_id }
                if agent_session_id.len() > HANDLE_BYTES_MAX =>
            {
                let bytes = agent_session_id.len();
                self.updated(cx, None, "session_id_too_long", json!({ "bytes": bytes }));
            }
            Fact::AgentSessionAssigned { agent_session_id } => {
                self.push(NewRecord::new(
                    cx.now,
                    AgentSessionAssigned { execution_id, agent_session_id },
                ));
            }
            Fact::AgentSessionRefused { code, message, agent_session_id } => {
                self.updated(
                    cx,
                    None,
                    "session_refused",
                    json!({"code": code, "message": message}),
                );
                let agent_session_id = agent_session_id.or_else(|| self.handle().cloned());
                let agent_session_id = agent_session_id.filter(|id| id.len() <= HANDLE_BYTES_MAX);
                let reason = Some(Reason::SessionRefused);
                let event = AgentSessionCleared { execution_id, agent_session_id, reason };
                self.push(NewRecord::new(cx.now, event));
            }
            Fact::AgentError { code, message, auth_methods } => {
                let auth_methods = ways_to_log_in(auth_methods);
                let event = AgentError { execution_id, code: Some(short_code(code)), auth_methods };
                self.push(NewRecord::with_content(cx.now, event, "message", message.into()));
            }
            Fact::AgentExited { exit_code, signal, requested, stderr } => {
                let is_current = self.is_current();
                let window_ms = interruption::exit_window_ms(&Fact::AgentExited {
                    exit_code,
                    signal,
                    requested,
                    stderr: String::new(),
                });
                let event = AgentExited { execution_id, exit_code, signal };
                self.push(NewRecord::with_content(cx.now, event, "stderr", stderr.into()));
                let run =
                    self.state.facts.run.as_ref().filter(|_| self.state.facts.closed.is_none());
                if is_current && let Some(run) = run.filter(|run| recovery::begun(&self.state, run))
                {
                    let records = recovery::interrupted(&self.state, cx, run, Reason::ProcessExit);
                    self.extend(Ok(Decision::done(records)));
                } else if let Some(run) = run
                    && is_current
                    && let Some(window_ms) = window_ms
                    && run.phase == Phase::Ended(Outcome::Completed)
                    && run.ended_at.is_some_and(|ended_at| is_soon(ended_at, cx.now, window_ms))
                {
                    // The end of its turn was imported a moment ago, and was a part of its exit.
                    let (reason, stop_reason) = (Reason::ProcessExit, Some("end_turn".to_owned()));
                    let records =
                        recovery::interrupted_in_turn(&self.state, cx, run, reason, stop_reason);
                    self.extend(Ok(Decision::done(records)));
                }
            }
            _ => {}
        }
    }
}
