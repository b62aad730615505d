//! The built-in agents: how each of them resumes, row by row, and what each of them answers to the real
//! client, as `fixtures/profiles` has it.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::common::{ScriptedAgent, Setup, World, soon, world};
use piton_agent::acp::{Error, Hello, Opened, Refusal};
use piton_agent::profiles::{self, LoadTiming, Origin, Profile};
use piton_core::command_line::ConversationTarget;
use piton_core::content::PromptCapabilities;
use piton_core::resume::{Abilities, Strategy};
use piton_core::spool::{Fact, OpenedAs, SessionCapabilities};
use serde_json::{Value, json};

const METHOD_NOT_FOUND: i64 = -32601;
const NONE: Abilities = Abilities { native: false, command_line: false, history: false };
/// The agent can refuse an id: then its first prompt carries the history.
const NATIVE: Abilities = Abilities { native: true, history: true, ..NONE };

fn known(id: &str) -> Profile {
    profiles::find(id).unwrap_or_else(|| panic!("there is no profile {id}"))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/profiles")
}

/// What an agent was seen to say; `None`: it never says such a thing.
fn fixture(id: &str, name: &str) -> Option<Value> {
    let path = folder().join(id).join(name).with_extension("json");
    let text = std::fs::read_to_string(path).ok()?;
    Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{id}/{name}: {error}")))
}

fn args(profile: &Profile, session: &str, message: Option<&str>, fork: bool) -> String {
    let line = &profile.continuation.as_ref().unwrap().line;
    let way = if fork {
        ConversationTarget::Fork { id: session }
    } else {
        ConversationTarget::Resume { id: Some(session), message_id: message }
    };
    line.arguments(way, "").join(" ")
}

#[test]
fn claude_code_uses_the_resume_flag_of_its_command_line() {
    let profile = known("claude-code");
    assert_eq!(args(&profile, "s1", None, false), "--resume s1");
    assert_eq!(args(&profile, "s1", Some("m1"), false), "--resume s1 --resume-session-at m1");
    assert_eq!(args(&profile, "s1", None, true), "--resume s1 --fork-session");
    assert_eq!(profile.continuation.as_ref().unwrap().command[0], "claude");
    // What Piton starts is the adapter, which resumes over the protocol.
    assert_eq!((profile.command[0].as_str(), profile.abilities), ("claude-agent-acp", NATIVE));
}

#[test]
fn codex_loads() {
    assert_eq!(known("codex").abilities, NATIVE);
}

#[test]
fn copilot_loads() {
    assert_eq!(known("copilot").abilities, NATIVE);
}

#[test]
fn auggie_starts_fresh_and_gets_the_history() {
    assert_eq!(known("auggie").abilities, Abilities { history: true, ..NONE });
}

#[test]
fn gemini_starts_without_its_conversation_and_gets_the_history() {
    assert_eq!(known("gemini").abilities, Abilities { history: true, ..NONE });
    assert_eq!(profiles::strategy(NONE), Strategy::None);
}

/// Its SDK fails on a file that is not there, whatever the client answers.
#[test]
fn gemini_alone_is_not_offered_the_clients_files() {
    for profile in profiles::built_in() {
        assert_eq!(profile.quirks.no_client_files, profile.id == "gemini", "{}", profile.id);
    }
}

/// Wants to show: every agent that can refuse an id can be given the history instead.
#[test]
fn every_agent_can_be_given_the_history() {
    for profile in profiles::built_in() {
        assert!(profile.abilities.history, "{}", profile.id);
    }
    assert!(profiles::Profile::configured("mine", vec!["mine".to_owned()]).abilities.history);
}

#[test]
fn amp_forks_and_continues_by_commands() {
    let profile = known("amp");
    assert_eq!(profile.abilities, Abilities { command_line: true, history: true, ..NONE });
    let continued = args(&profile, "T-1", None, false);
    assert_eq!(continued, "threads continue T-1 --execute --stream-json");
    assert_eq!(args(&profile, "T-1", None, true), "threads fork T-1");
    assert!(!profile.is_acp(), "there is nobody to be asked over the protocol");
}

#[test]
fn opencode_loads() {
    assert_eq!(known("opencode").abilities, NATIVE);
}

/// Wants to show: a profile can be started, explains how to get it, is complete, and leaves the
/// agent's home where it was.
#[test]
fn every_profile_is_whole() {
    let all = profiles::built_in();
    let ids: BTreeSet<&str> = all.iter().map(|profile| profile.id.as_str()).collect();
    let wanted = [
        "amp",
        "auggie",
        "claude-code",
        "cline",
        "codex",
        "copilot",
        "gemini",
        "goose",
        "opencode",
        "pi",
        "qwen",
    ];
    assert_eq!(ids, wanted.into());
    assert_eq!(all.len(), ids.len(), "an id is used twice");
    for profile in all {
        let id = &profile.id;
        assert_eq!(profile.origin, Origin::BuiltIn, "{id}");
        assert!(!profile.command.is_empty() && !profile.command[0].contains('/'), "{id}");
        assert!(
            profile.install.starts_with("Install it ") && profile.install.ends_with('.'),
            "{id}"
        );
        let variables = profile.env.iter().map(|(name, _)| name).chain(&profile.env_remove);
        assert_eq!(variables.filter(|name| *name == "HOME").count(), 0, "{id}");
        assert_eq!(
            profile.continuation.is_some(),
            profile.abilities.command_line || id == "claude-code",
            "{id}"
        );
        assert_eq!(fixture(id, "initialize").is_some(), profile.is_acp(), "{id}");
    }
    assert_eq!(profiles::find("echo"), None, "it is the command line's own");
}

/// A client that has met the agent.
async fn met(id: &str) -> (World, ScriptedAgent, Hello) {
    let (world, agent) = world(Setup::default());
    let mut scripted = ScriptedAgent::new(agent);
    let said = fixture(id, "initialize").unwrap();
    let answering = async {
        let asked = scripted.hear().await;
        assert_eq!(asked["method"], "initialize");
        scripted.answer(&asked, said["result"].clone()).await;
    };
    let meeting = async { tokio::join!(world.connection.initialize(), answering) };
    let (hello, ()) = soon(meeting).await;
    (world, scripted, hello.unwrap())
}

/// The agent's part; whether all that it said before was heard.
async fn act(scripted: &mut ScriptedAgent, asked: &Value, said: &[Value]) -> bool {
    match asked["method"].as_str() {
        Some("session/new") => scripted.answer(asked, json!({ "sessionId": "another" })).await,
        Some("session/load" | "session/resume") => {
            for message in said {
                let mut message = message.clone();
                if message.get("id").is_some() {
                    message["id"] = asked["id"].clone();
                }
                scripted.say(message).await;
            }
            scripted.say(json!({ "id": "heard", "method": "_test/heard" })).await;
        }
        _ => return asked["id"] == "heard",
    }
    false
}

/// Lets the agent take up a conversation as the fixture says; a new one works always. Also whatever it
/// said about the old one's id.
async fn taken_up(id: &str, name: &str) -> (World, Result<Opened, Error>, Option<(i64, String)>) {
    let (world, mut scripted, _) = met(id).await;
    let said = fixture(id, name).unwrap_or_else(|| panic!("{id} has no {name}"));
    let messages = said.as_array().cloned().unwrap_or_else(|| vec![said]);
    let (mut heard, mut opened_as) = (false, None);
    {
        let mut beginning = Box::pin(world.begin(Some(session_of(&messages)), &[]));
        while !heard || opened_as.is_none() {
            tokio::select! {
                opened = &mut beginning, if opened_as.is_none() => opened_as = Some(opened),
                asked = scripted.hear() => heard |= act(&mut scripted, &asked, &messages).await,
            }
        }
    }
    let opened_as = opened_as.unwrap();
    let noted = world.notes.facts().into_iter().find_map(|fact| match fact {
        Fact::AgentSessionRefused { code, message, .. } => Some((code, message)),
        _ => None,
    });
    let refusal = match &opened_as {
        Err(Error::Agent { code, message, .. }) => Some((*code, message.clone())),
        _ => noted,
    };
    (world, opened_as, refusal)
}

/// The id that a replay is for; any other is as good.
fn session_of(messages: &[Value]) -> &str {
    messages.iter().find_map(|said| said["params"]["sessionId"].as_str()).unwrap_or("s1")
}

/// What agents advertise, beside what the table says of them.
#[tokio::test]
async fn what_is_advertised_beats_what_is_tabled() {
    const ALL: SessionCapabilities = SessionCapabilities {
        load: true,
        resume: true,
        list: true,
        close: true,
        delete: true,
        fork: true,
        prompt: PromptCapabilities { image: false, audio: false, embedded_context: false },
    };
    const LOAD: SessionCapabilities = SessionCapabilities {
        load: true,
        resume: false,
        list: false,
        close: false,
        delete: false,
        fork: false,
        prompt: PromptCapabilities { image: false, audio: false, embedded_context: false },
    };
    for (id, capabilities, tabled, advertised) in [
        ("claude-code", ALL, Strategy::Native, Strategy::Native),
        ("codex", ALL, Strategy::Native, Strategy::Native),
        (
            "copilot",
            SessionCapabilities { list: true, close: true, ..LOAD },
            Strategy::Native,
            Strategy::Native,
        ),
        (
            "auggie",
            SessionCapabilities { load: false, ..LOAD },
            Strategy::History,
            Strategy::History,
        ),
        ("gemini", LOAD, Strategy::History, Strategy::Native),
        (
            "opencode",
            SessionCapabilities { delete: false, ..ALL },
            Strategy::Native,
            Strategy::Native,
        ),
        ("goose", SessionCapabilities { resume: false, ..ALL }, Strategy::Native, Strategy::Native),
        (
            "qwen",
            SessionCapabilities { list: true, resume: true, ..LOAD },
            Strategy::Native,
            Strategy::Native,
        ),
        ("cline", LOAD, Strategy::Native, Strategy::Native),
        (
            "pi",
            SessionCapabilities { list: true, delete: true, ..LOAD },
            Strategy::Native,
            Strategy::Native,
        ),
    ] {
        let profile = known(id);
        let (_, _, hello) = met(id).await;
        // What prompts may have is each agent's own.
        let prompt = hello.capabilities.prompt;
        assert_eq!(hello.capabilities, SessionCapabilities { prompt, ..capabilities }, "{id}");
        assert_eq!(profiles::strategy(profile.abilities), tabled, "{id}");
        assert_eq!(profiles::strategy(profile.advertised(hello.capabilities)), advertised, "{id}");
    }
    // And it counts if an agent has lost what the table gives it.
    let nothing = SessionCapabilities { load: false, ..LOAD };
    assert_eq!(known("codex").advertised(nothing), Abilities { history: true, ..NONE });
    assert_eq!(known("cline").advertised(nothing), Abilities { history: true, ..NONE });
    assert_eq!(known("auggie").advertised(LOAD), Abilities { native: true, history: true, ..NONE });
}

/// Wants to show: what an agent tells again of a conversation that it loads is not taken for news,
/// before its answer and behind it.
#[tokio::test]
async fn loading_restores_and_repeats_nothing() {
    let mut late = Vec::new();
    for profile in profiles::built_in() {
        let id = profile.id.as_str();
        let Some(said) = fixture(id, "load") else { continue };
        let (world, opened_as, refusal) = Box::pin(taken_up(id, "load")).await;
        let opened = opened_as.unwrap_or_else(|error| panic!("{id}: {error}"));
        assert_eq!(opened.agent_session_id, session_of(said.as_array().unwrap()), "{id}");
        let (_, _, hello) = met(id).await;
        let way = if hello.capabilities.resume { OpenedAs::Resumed } else { OpenedAs::Loaded };
        assert_eq!((opened.opened_as, refusal), (way, None), "{id}");
        assert_eq!(world.notes.answers(), Vec::<String>::new(), "{id}");
        if said[0].get("id").is_some() {
            late.push(profile.id.clone());
        }
        assert_eq!(profile.quirks.replays_late, late.contains(&profile.id), "{id}");
    }
    assert_eq!(late, ["gemini"]);
}

/// Wants to show: each agent's way to say that it does not know an id is understood, by its profile at
/// least; then there is a new conversation, or an error that leaves the decision to the profile.
#[tokio::test]
async fn an_unknown_id_is_refused() {
    let mut seen = Vec::new();
    for profile in profiles::built_in() {
        let id = profile.id.as_str();
        if fixture(id, "refusal").is_none() {
            continue;
        }
        let (_, opened_as, refusal) = Box::pin(taken_up(id, "refusal")).await;
        let (code, message) =
            refusal.unwrap_or_else(|| panic!("{id} refused nothing: {opened_as:?}"));
        assert_eq!(profile.refusal(code, &message), Refusal::Refused, "{id}: {code} {message}");
        seen.push((profile.id.clone(), code));
    }
    let codes: BTreeSet<i64> = seen.iter().map(|(_, code)| *code).collect();
    assert_eq!(codes, [-32603, -32602, -32002].into(), "every code that agents were seen to use");
    let all = profiles::built_in();
    let loading = all.iter().filter(|profile| profile.abilities.native).count();
    assert_eq!(seen.len(), loading + 1, "all that load, and Gemini");
}

/// Wants to show: an error that says nothing about the id leaves it good.
#[tokio::test]
async fn an_ambiguous_error_keeps_the_id() {
    let mut seen = 0;
    for profile in profiles::built_in() {
        let id = profile.id.as_str();
        let Some(said) = fixture(id, "unsure") else { continue };
        seen += 1;
        let error = &said["error"];
        let text = format!("{} {}", error["message"].as_str().unwrap(), error["data"]);
        let code = error["code"].as_i64().unwrap();
        assert_eq!(profile.refusal(code, &text), Refusal::Ambiguous, "{id}: {text}");
        // One that does not load was never asked.
        if id == "auggie" {
            continue;
        }
        let (world, opened_as, _) = Box::pin(taken_up(id, "unsure")).await;
        // One that does not have the method may be given a new conversation instead.
        if code != METHOD_NOT_FOUND {
            let failed = opened_as.expect_err(id);
            let is_refused =
                matches!(failed, Error::Agent { code: refusal, .. } if refusal == code);
            assert!(is_refused, "{id}: {failed}");
        }
        let cleared = |fact: &Fact| matches!(fact, Fact::AgentSessionRefused { .. });
        assert!(!world.notes.facts().iter().any(cleared), "{id}");
    }
    assert_eq!(seen, 8);
}

/// Wants to show: a profile's own words count before the general rule, in both directions, and under
/// their code alone.
#[test]
fn a_profiles_words_count_before_the_general_rule() {
    let codex = known("codex");
    let lost = "no rollout found for thread id 7c1e";
    assert_eq!(codex.refusal(-32600, lost), Refusal::Refused);
    assert_eq!(codex.refusal(-32600, "failed to load configuration"), Refusal::Ambiguous);
    assert_eq!(known("opencode").refusal(-32600, lost), Refusal::Ambiguous, "no words of its own");
    // It looks like a refusal by its code, and is none.
    let in_use = "Session not found: thread 7c1e Already Has An Active Writer";
    assert_eq!(codex.refusal(-32002, in_use), Refusal::Ambiguous);
    assert_eq!(known("opencode").refusal(-32002, in_use), Refusal::Refused);
    let gemini = known("gemini");
    let emptied = "Internal error {\"details\":\"No previous sessions found for this project.\"}";
    assert_eq!(gemini.refusal(-32603, emptied), Refusal::Refused);
    assert_eq!(gemini.refusal(-32000, emptied), Refusal::Ambiguous);
    // All others: as the general rule has it.
    assert_eq!(gemini.refusal(-32603, "Invalid session identifier \"x\""), Refusal::Refused);
    assert_eq!(gemini.refusal(-32603, "Internal error"), Refusal::Ambiguous);
}

#[test]
fn only_gemini_waits_before_it_loads() {
    let moment = "2026-11-16T10:00:30.000Z".parse().unwrap();
    for profile in profiles::built_in() {
        let waits = profile.quirks.loads == LoadTiming::InAnotherMinute;
        assert_eq!(waits, profile.id == "gemini");
        assert_eq!(profile.settle_before_load(moment, moment).is_some(), waits, "{}", profile.id);
    }
}
