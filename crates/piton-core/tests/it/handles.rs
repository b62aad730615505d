//! Law 9: an agent's own session id is dropped only when the agent itself says that it does not know
//! it. What takes its place is told, and what it stood for is told to be missing.

use std::collections::BTreeMap;

use crate::common::{World, id};
use piton_core::decide::{Command, Import};
use piton_core::event::{self, AgentError, AgentInitialized, AgentSessionCleared, Event};
use piton_core::limits::{AUTH_METHODS_MAX, HANDLES_KEPT};
use piton_core::reason::Reason;
use piton_core::spool::{
    AuthMethod, ENTRY_VERSION, Entry, Fact, OpenedAs, Pos, SessionCapabilities,
};
use piton_core::state::{Agent, AgentStatus};

/// What the agent of `exec_1` says, imported behind what it has said before.
struct Agents {
    world: World,
    pos: Pos,
}

impl Agents {
    fn new() -> Self {
        Self { world: World::executed(), pos: 0 }
    }

    /// The records that came of it.
    fn says(&mut self, facts: impl IntoIterator<Item = Fact>) -> Vec<Event> {
        let mut entries = Vec::new();
        for fact in facts {
            self.pos += 1;
            let at = crate::common::at(1_000_000);
            let (pos, v) = (self.pos, ENTRY_VERSION);
            entries.push(Entry { v, pos, at, run_id: None, fact, raw: None });
        }
        let decided = self.world.decide(Command::Import(Import {
            execution_id: id("exec_1"),
            spool_id: "spool_1".into(),
            entries,
            lost: None,
            damage: None,
            masked: BTreeMap::new(),
            fresh: Vec::new(),
            rules: std::sync::Arc::default(),
        }));
        let records = decided.expect("possible here").records;
        records.into_iter().map(|record| record.event).collect()
    }

    fn agent(&self) -> &Agent {
        self.world.state.facts.agent.as_ref().expect("one was started")
    }
}

fn ready(opened_as: OpenedAs, asked: Option<&str>, named: &str) -> Fact {
    Fact::AgentReady {
        opened_as,
        agent_session_id: Some(named.to_owned()),
        requested_session_id: asked.map(ToOwned::to_owned),
        agent: None,
        capabilities: SessionCapabilities::default(),
    }
}

fn described(events: &[Event]) -> (OpenedAs, Option<&str>, Option<bool>) {
    let described = events.iter().find_map(|event| match event {
        Event::AgentInitialized(AgentInitialized {
            opened_as,
            requested_session_id,
            context_restored,
            ..
        }) => Some((*opened_as, requested_session_id.as_deref(), *context_restored)),
        _ => None,
    });
    described.expect("it was described")
}

fn handles(session_id: Option<&str>, earlier: &[&str]) -> Agent {
    Agent {
        session_id: session_id.map(ToOwned::to_owned),
        earlier_session_ids: earlier.iter().map(ToString::to_string).collect(),
        capabilities: Some(SessionCapabilities::default()),
        ..Agent::new(AgentStatus::Ready)
    }
}

#[test]
fn a_conversation_that_is_gone_on_with_keeps_its_handle() {
    let mut agents = Agents::new();
    let events = agents.says([ready(OpenedAs::New, None, "one")]);
    assert_eq!(described(&events), (OpenedAs::New, None, None), "there was nothing to restore");
    for opened_as in [OpenedAs::Loaded, OpenedAs::Resumed] {
        let events = agents.says([ready(opened_as, Some("one"), "one")]);
        assert_eq!(described(&events), (opened_as, Some("one"), Some(true)));
        assert_eq!(*agents.agent(), handles(Some("one"), &[]));
    }
}

/// Wants to show: an agent that can neither load nor resume begins without its conversation, the log says that the
/// context is not there, and the handle is not lost.
#[test]
fn an_agent_that_cannot_continue_does_not_overwrite_the_handle() {
    let mut agents = Agents::new();
    agents.says([ready(OpenedAs::New, None, "one")]);
    let events = agents.says([ready(OpenedAs::New, Some("one"), "two")]);
    assert_eq!(described(&events), (OpenedAs::New, Some("one"), Some(false)));
    assert_eq!(*agents.agent(), handles(Some("two"), &["one"]));
    // Nor does one that no one asked to continue.
    let events = agents.says([ready(OpenedAs::New, None, "three")]);
    assert_eq!(described(&events), (OpenedAs::New, None, Some(false)));
    assert_eq!(*agents.agent(), handles(Some("three"), &["one", "two"]));
    // One that can continues with it.
    agents.says([ready(OpenedAs::Loaded, Some("one"), "one")]);
    assert_eq!(*agents.agent(), handles(Some("one"), &["two", "three"]));
}

#[test]
fn only_so_many_earlier_handles_are_held() {
    let mut agents = Agents::new();
    for n in 0..HANDLES_KEPT + 5 {
        agents.says([ready(OpenedAs::New, None, &format!("id {n}"))]);
    }
    let earlier = &agents.agent().earlier_session_ids;
    assert_eq!((earlier.len(), earlier[0].as_str()), (HANDLES_KEPT, "id 4"));
}

#[test]
fn a_handle_that_the_agent_disowns_is_cleared_by_name() {
    let mut agents = Agents::new();
    agents.says([ready(OpenedAs::New, None, "one")]);
    let refused = |id: Option<&str>| Fact::AgentSessionRefused {
        code: -32002,
        message: "Session not found".to_owned(),
        agent_session_id: id.map(ToOwned::to_owned),
    };
    let cleared = |events: &[Event]| {
        let cleared = events.iter().find_map(|event| match event {
            Event::AgentSessionCleared(cleared) => Some(cleared.clone()),
            _ => None,
        });
        cleared.expect("it was cleared")
    };
    let of = |id: &str| AgentSessionCleared {
        execution_id: crate::common::id("exec_1"),
        agent_session_id: Some(id.to_owned()),
        reason: Some(Reason::SessionRefused),
    };
    // A fork of another session's conversation, which is not known: ours is.
    let events = agents.says([refused(Some("other"))]);
    assert_eq!(cleared(&events), of("other"));
    assert_eq!(*agents.agent(), handles(Some("one"), &[]));
    let events = agents.says([refused(Some("one")), ready(OpenedAs::New, Some("one"), "two")]);
    assert_eq!(cleared(&events), of("one"));
    assert_eq!(described(&events), (OpenedAs::New, Some("one"), Some(false)));
    assert_eq!(*agents.agent(), handles(Some("two"), &[]), "nothing is left to be kept");
    // An older agentctl does not say which.
    let events = agents.says([refused(None)]);
    assert_eq!(cleared(&events), of("two"));
    assert_eq!(*agents.agent(), handles(None, &[]));
}

#[test]
fn an_earlier_handle_can_be_disowned_too() {
    let mut agents = Agents::new();
    agents.says([ready(OpenedAs::New, None, "one"), ready(OpenedAs::New, Some("one"), "two")]);
    let agent_session_id = Some("one".to_owned());
    let message = String::new();
    agents.says([Fact::AgentSessionRefused { code: -32002, message, agent_session_id }]);
    assert_eq!(*agents.agent(), handles(Some("two"), &[]));
}

#[test]
fn a_fork_has_the_conversation_and_a_handle_of_its_own() {
    let mut agents = Agents::new();
    let events = agents.says([ready(OpenedAs::Forked, Some("of another"), "fork")]);
    assert_eq!(described(&events), (OpenedAs::Forked, Some("of another"), Some(true)));
    assert_eq!(*agents.agent(), handles(Some("fork"), &[]));
}

#[test]
fn an_agent_that_calls_it_otherwise_is_believed() {
    let mut agents = Agents::new();
    agents.says([ready(OpenedAs::New, None, "one")]);
    let other = Fact::AgentSessionAssigned { agent_session_id: "other".to_owned() };
    let events = agents.says([ready(OpenedAs::Loaded, Some("one"), "one"), other]);
    assert!(
        events.iter().any(|event| matches!(event, Event::AgentSessionAssigned(_))),
        "{events:?}"
    );
    assert_eq!(*agents.agent(), handles(Some("other"), &["one"]));
}

/// What a dead execution's spool says of its agent is said of the session's conversation, too.
#[test]
fn it_is_learned_late_that_a_context_is_missing() {
    let mut agents = Agents::new();
    agents.says([ready(OpenedAs::New, None, "one")]);
    agents.world.observe(event::ExecutorStopped { execution_id: id("exec_1") });
    let events = agents.says([ready(OpenedAs::New, None, "two")]);
    assert_eq!(described(&events), (OpenedAs::New, None, Some(false)));
    let expected = Agent { status: AgentStatus::Exited, ..handles(Some("two"), &["one"]) };
    assert_eq!(*agents.agent(), expected);
}

/// The same holds where there is no spool: records alone.
#[test]
fn a_record_that_names_another_handle_clears_nothing() {
    let mut world = World::executed();
    let execution_id = || id("exec_1");
    let agent_session_id = Some("one".to_owned());
    world.observe(event::AgentReady { execution_id: execution_id(), agent_session_id });
    let before = world.state.facts.clone();
    let (agent_session_id, reason) = (Some("other".to_owned()), None);
    let execution_id = execution_id();
    let written = world.observe(AgentSessionCleared { execution_id, agent_session_id, reason });
    assert_eq!(written, [""; 0]);
    assert_eq!(world.state.facts, before);
}

/// Ways to log in are in the log as data, and no more of them than a record takes.
#[test]
fn ways_to_log_in_are_reported() {
    let mut agents = Agents::new();
    let method = |id: String| AuthMethod {
        id,
        name: "n".repeat(100_000),
        description: Some("d".repeat(100_000)),
    };
    let mut auth_methods = vec![method("too long".repeat(1_000))];
    auth_methods.extend((0..100).map(|n| method(format!("m{n}"))));
    let (code, message) = ("agent_auth_required".into(), "Log in".to_owned());
    let events = agents.says([Fact::AgentError { code, message, auth_methods }]);
    let Event::AgentError(AgentError { code, auth_methods, .. }) = &events[0] else {
        panic!("{events:?}")
    };
    assert_eq!(*code, Some("agent_auth_required".into()));
    let ids: Vec<_> = auth_methods.iter().map(|method| method.id.as_str()).collect();
    let expected: Vec<_> = (0..AUTH_METHODS_MAX).map(|n| format!("m{n}")).collect();
    assert_eq!(ids, expected);
    assert!(auth_methods.iter().all(|method| method.name.len() < 2_000));
}
