//! Requests that need an agent say what became of its start.

use std::time::Duration;

use piton_core::decide::Command;
use piton_core::reason::Reason;
use piton_core::resume::{AgentRestart, ContinueRun, StartContext};
use piton_core::state::{Effect, Phase};
use piton_core::{Code, PromptContent};
use piton_runtime::{Engine, Error, ResumeSpec};
use serde_json::json;

use super::agentctl::HANG;
use super::world::{CONTINUE, World, caller, count, created, keyed, kinds, until, until_named};

/// A start that is held takes longer; what an agent that runs is asked does not.
const SHORT: Duration = Duration::from_millis(200);
/// Every start fails.
const ALL: u32 = 1_000;

async fn interrupted_by(engine: &Engine, session: &piton_core::id::SessionId) -> Option<Reason> {
    let state = engine.session(session).await.unwrap().overview.state;
    match state.facts.run?.phase {
        Phase::Interrupted { reason, .. } => Some(reason),
        _ => None,
    }
}

#[tokio::test]
async fn a_failed_start_is_an_error_and_the_next_answer_is_about_the_next_start() {
    let mut world = World::new();
    world.policy.agent_restart = AgentRestart::OnOpen;
    let boot = world.start("boot_1").await;
    let engine = &boot.engine;
    let session = created(engine).await;
    world.fleet.fail_starts(3);
    let started = engine.start_agent(&caller(), &session, StartContext::Native).await;
    let resumed = engine.resume(&caller(), &session, ResumeSpec::default()).await;
    // Opening starts it, too, with this policy.
    let opened = engine.open(&session).await;
    for failed in [started.unwrap_err(), resumed.unwrap_err(), opened.unwrap_err()] {
        assert_eq!(failed.code(), Code::AgentError);
        assert_eq!(failed.to_string(), "The agent `echo` could not be started: Internal error");
    }
    let report = engine.session(&session).await.unwrap();
    let error = report.overview.error.unwrap();
    assert_eq!(
        (error.code, error.message.as_deref()),
        (Some(Code::AgentError.into()), Some("Internal error"))
    );
    world.fleet.fail_starts(0);
    engine.resume(&caller(), &session, ResumeSpec::default()).await.unwrap();
    let report = engine.session(&session).await.unwrap();
    assert_eq!((report.overview.status.name.as_str(), report.overview.error), ("idle", None));
    world.end(boot).await;
}

#[tokio::test]
async fn a_start_that_takes_longer_than_the_limit_is_pending() {
    let mut world = World::new();
    world.settings.agent_start_timeout = SHORT;
    world.policy.agent_restart = AgentRestart::OnOpen;
    let boot = world.start("boot_1").await;
    let engine = &boot.engine;
    let session = created(engine).await;
    world.fleet.hold_starts();
    let pending = engine.start_agent(&caller(), &session, StartContext::Native).await.unwrap();
    assert!(pending.response.pending);
    assert!(engine.open(&session).await.unwrap().pending);
    assert_eq!(engine.session(&session).await.unwrap().overview.status.name.as_str(), "starting");
    let prompted = engine.prompt(&caller(), &session, "hello".to_owned()).await.unwrap();
    assert!(prompted.response.pending);
    world.fleet.release_starts();
    until_named(engine, &session, "idle").await;
    assert_eq!(world.fleet.prompts(), ["hello"], "the start continued without its caller");
    let started = engine.start_agent(&caller(), &session, StartContext::Native).await.unwrap();
    assert!(!started.response.pending);
    assert!(!engine.open(&session).await.unwrap().pending);
    world.end(boot).await;
}

/// Wants to show: a run whose continuation was asked for is continued when its agent runs, also if its
/// start takes so long that the request was answered before; once, however often it was asked.
#[tokio::test]
async fn a_run_is_continued_however_late_its_agent_runs() {
    let mut world = World::new();
    world.settings.agent_start_timeout = SHORT;
    let boot = world.start("boot_1").await;
    let engine = &boot.engine;
    let session = created(engine).await;
    engine.prompt(&caller(), &session, HANG.to_owned()).await.unwrap();
    until(engine, &session, |_| world.fleet.prompts().len() == 1).await;
    world.fleet.kill();
    until_named(engine, &session, "interrupted_startup").await;
    world.fleet.hold_starts();
    for _ in 0..2 {
        let resumed = engine.resume(&keyed("r"), &session, CONTINUE).await.unwrap();
        assert!(resumed.response.pending && !resumed.replayed, "{resumed:?}");
    }
    assert_eq!(count(engine, &session, "run.resumed").await, 0);
    world.fleet.release_starts();
    until(engine, &session, |_| world.fleet.prompts().len() == 2).await;
    assert_eq!(count(engine, &session, "run.resumed").await, 1);
    world.fleet.finish();
    until_named(engine, &session, "idle").await;
    let resumed = engine.resume(&keyed("r"), &session, CONTINUE).await.unwrap();
    assert!(resumed.replayed && resumed.response.run_id.is_some(), "{resumed:?}");
    world.end(boot).await;
}

/// Wants to show: with `continue_run = auto` the same holds for a client that opens the session.
#[tokio::test]
async fn a_run_is_continued_by_the_settings_however_late_its_agent_runs() {
    let mut world = World::new();
    world.settings.agent_start_timeout = SHORT;
    world.policy.agent_restart = AgentRestart::OnOpen;
    world.policy.continue_run = ContinueRun::Auto;
    let boot = world.start("boot_1").await;
    let engine = &boot.engine;
    let session = created(engine).await;
    engine.prompt(&caller(), &session, HANG.to_owned()).await.unwrap();
    until(engine, &session, |_| world.fleet.prompts().len() == 1).await;
    world.fleet.kill();
    until_named(engine, &session, "interrupted_startup").await;
    world.fleet.hold_starts();
    assert!(engine.open(&session).await.unwrap().pending);
    world.fleet.release_starts();
    until(engine, &session, |_| world.fleet.prompts().len() == 2).await;
    assert_eq!(count(engine, &session, "run.resumed").await, 1);
    world.end(boot).await;
}

/// Wants to show: a prompt that is repeated under its key is no success while no agent was given it: the
/// repetition is answered as the first request was, and as it is then.
#[tokio::test]
async fn a_repeated_prompt_is_answered_by_what_became_of_it() {
    let mut world = World::new();
    world.settings.agent_start_timeout = SHORT;
    let boot = world.start("boot_1").await;
    let engine = &boot.engine;
    let session = created(engine).await;
    world.fleet.hold_starts();
    for replayed in [false, true] {
        let prompted = engine.prompt(&keyed("late"), &session, "hello".to_owned()).await.unwrap();
        assert_eq!((prompted.response.pending, prompted.replayed), (true, replayed));
    }
    world.fleet.release_starts();
    until_named(engine, &session, "idle").await;
    let prompted = engine.prompt(&keyed("late"), &session, "hello".to_owned()).await.unwrap();
    assert_eq!((prompted.response.pending, prompted.replayed), (false, true));
    world.end(boot).await;
    world.fleet.kill();

    world.settings.agent_start_timeout = Duration::from_secs(90);
    let boot = world.start("boot_2").await;
    let engine = &boot.engine;
    let is_gone = |report: &piton_runtime::SessionReport| {
        !report.overview.state.facts.executor.as_ref().unwrap().may_live()
    };
    until(engine, &session, is_gone).await;
    world.fleet.fail_starts(ALL);
    for _ in 0..2 {
        let failed = engine.prompt(&keyed("lost"), &session, "lost".to_owned()).await.unwrap_err();
        assert_eq!(failed.code(), Code::AgentError);
    }
    assert_eq!(count(engine, &session, "message.user").await, 2, "it is said once");
    world.fleet.fail_starts(0);
    engine.resume(&caller(), &session, CONTINUE).await.unwrap();
    until_named(engine, &session, "idle").await;
    let prompted = engine.prompt(&keyed("lost"), &session, "lost".to_owned()).await.unwrap();
    assert_eq!((prompted.response.pending, prompted.replayed), (false, true));
    let prompts = world.fleet.prompts();
    assert_eq!(prompts.len(), 2, "{prompts:?}");
    assert_eq!(prompts[1].matches("lost").count(), 1, "{prompts:?}");
    world.end(boot).await;
}

/// Wants to show: an agent may take as much longer for its first answers as the setting is longer than by
/// default, and requests wait as long; a new setting counts from then on.
#[tokio::test]
async fn a_start_may_take_as_long_as_the_setting_says() {
    let mut world = World::new();
    let boot = world.start("boot_1").await;
    let engine = &boot.engine;
    let session = created(engine).await;
    engine.start_agent(&caller(), &session, StartContext::Native).await.unwrap();
    let usual = world.fleet.start_ms_max();
    let longer = Duration::from_mins(5);
    let by = longer.saturating_sub(world.settings.agent_start_timeout);
    world.settings.agent_start_timeout = longer;
    engine.reconfigure(world.settings, world.policy).unwrap();
    let other = created(engine).await;
    engine.start_agent(&caller(), &other, StartContext::Native).await.unwrap();
    assert_eq!(u128::from(world.fleet.start_ms_max() - usual), by.as_millis());
    world.settings.agent_start_timeout = SHORT;
    engine.reconfigure(world.settings, world.policy).unwrap();
    world.fleet.hold_starts();
    let last = created(engine).await;
    let pending = engine.start_agent(&caller(), &last, StartContext::Native).await.unwrap();
    assert!(pending.response.pending);
    assert_eq!(world.fleet.start_ms_max(), usual, "no agent is given up sooner");
    world.fleet.release_starts();
    world.end(boot).await;
}

/// A load that fails once is tried again for the prompt that waits.
#[tokio::test]
async fn a_failed_start_is_retried_for_a_prompt() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let engine = &boot.engine;
    let session = created(engine).await;
    world.fleet.fail_starts(2);
    let prompted = engine.prompt(&caller(), &session, "hello".to_owned()).await.unwrap();
    assert!(!prompted.response.pending);
    until_named(engine, &session, "idle").await;
    assert_eq!(world.fleet.prompts(), ["hello"]);
    assert_eq!(count(engine, &session, "run.interrupted").await, 0);
    world.end(boot).await;
}

/// An agent that cannot load its conversation, and does not refuse its id: the run is interrupted, the
/// id kept, and each way out leads out.
#[tokio::test]
async fn a_stuck_agent_is_not_a_stuck_session() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let engine = &boot.engine;
    let session = created(engine).await;
    engine.prompt(&caller(), &session, "first".to_owned()).await.unwrap();
    until_named(engine, &session, "idle").await;
    world.fleet.kill();
    let is_gone = |report: &piton_runtime::SessionReport| {
        !report.overview.state.facts.executor.as_ref().unwrap().may_live()
    };
    until(engine, &session, is_gone).await;

    world.fleet.fail_starts(ALL);
    let before = world.fleet.starts().len();
    let failed = engine.prompt(&caller(), &session, "second".to_owned()).await.unwrap_err();
    let Error::StartFailed(failure) = &failed else { panic!("{failed:?}") };
    let choices = failure.choices().unwrap();
    for way in ["Retry", "Continue with history", "Continue without context", "New session"] {
        assert!(choices.contains(way), "{choices}");
    }
    assert_eq!(world.fleet.starts().len() - before, 3, "retried within limits");
    assert_eq!(interrupted_by(engine, &session).await, Some(Reason::AgentStartFailed));
    let state = engine.session(&session).await.unwrap().overview.state;
    let id = state.facts.agent.unwrap().session_id;
    assert_eq!(id, Some(format!("theirs_{session}")), "the id is kept");

    // The next prompt is taken, tries once, and stays undelivered, too.
    let before = world.fleet.starts().len();
    engine.prompt(&caller(), &session, "third".to_owned()).await.unwrap_err();
    assert_eq!(world.fleet.starts().len() - before, 1);
    assert_eq!(world.fleet.prompts(), ["first"]);

    // Retry, while nothing has changed.
    let retried = engine.resume(&caller(), &session, CONTINUE).await.unwrap_err();
    assert_eq!(retried.code(), Code::AgentError);
    // Continue with history: another conversation, and the run with it.
    world.fleet.fail_starts(0);
    let how = ResumeSpec { context: StartContext::Injected, ..CONTINUE };
    engine.resume(&caller(), &session, how).await.unwrap();
    until_named(engine, &session, "idle").await;
    assert_eq!(world.fleet.starts().last().unwrap().agent_session_id, None);
    let prompts = world.fleet.prompts();
    assert_eq!(prompts.len(), 2, "{prompts:?}");
    assert!(prompts[1].contains("first") && prompts[1].contains("third"), "{prompts:?}");
    world.end(boot).await;
}

/// Every prompt that no agent was given is delivered with the first one that an agent can be given,
/// whether or not there is a summary to quote it, with what was attached.
#[tokio::test]
async fn undelivered_prompts_are_delivered_with_and_without_a_summary() {
    for note in [true, false] {
        let mut world = World::new();
        world.policy.note = note;
        let boot = world.start("boot_1").await;
        let engine = &boot.engine;
        let session = created(engine).await;
        engine.prompt(&caller(), &session, "first".to_owned()).await.unwrap();
        until_named(engine, &session, "idle").await;
        world.fleet.kill();
        let is_gone = |report: &piton_runtime::SessionReport| {
            !report.overview.state.facts.executor.as_ref().unwrap().may_live()
        };
        until(engine, &session, is_gone).await;
        world.fleet.fail_starts(ALL);
        let link = json!({"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt"});
        let second: PromptContent =
            serde_json::from_value(json!([{"type": "text", "text": "second"}, link])).unwrap();
        engine.prompt(&caller(), &session, second).await.unwrap_err();
        engine.prompt(&caller(), &session, "third".to_owned()).await.unwrap_err();
        world.fleet.fail_starts(0);
        engine.resume(&caller(), &session, CONTINUE).await.unwrap();
        until_named(engine, &session, "idle").await;
        let prompts = world.fleet.prompts();
        assert_eq!(prompts.len(), 2, "{prompts:?}");
        if note {
            let quoted = "did not reach you:\n> second\n> [Attached link: a.txt file:///a.txt]\n";
            assert!(prompts[1].contains(quoted), "{}", prompts[1]);
            assert!(prompts[1].contains("did not reach you:\n> third\n"), "{}", prompts[1]);
            assert!(prompts[1].ends_with("[Attached link: a.txt file:///a.txt]"), "{}", prompts[1]);
        } else {
            let link = "[Attached link: a.txt file:///a.txt]";
            assert_eq!(prompts[1], format!("second\n{link}\n\nthird\n{link}"));
        }
        engine.prompt(&caller(), &session, "fourth".to_owned()).await.unwrap();
        until_named(engine, &session, "idle").await;
        assert_eq!(world.fleet.prompts()[2..], ["fourth"], "once");
        world.end(boot).await;
    }
}

/// Wants to show: a prompt that a living agent has not accepted when its run is interrupted is delivered
/// with the next one, once, with and without a summary; one that it has accepted is not delivered again.
#[tokio::test]
async fn a_living_agent_is_given_an_undelivered_prompt_once() {
    for (note, is_accepted) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut world = World::new();
        world.policy.note = note;
        let boot = world.start("boot_1").await;
        let engine = &boot.engine;
        let session = created(engine).await;
        engine.prompt(&caller(), &session, "first".to_owned()).await.unwrap();
        until_named(engine, &session, "idle").await;
        world.fleet.refuse_prompts(true);
        engine.prompt(&caller(), &session, "second".to_owned()).await.unwrap();
        until_named(engine, &session, "running").await;
        let run = engine.session(&session).await.unwrap().overview.state.facts.run.unwrap();
        if is_accepted {
            // The journal has it, and the spool has not said so.
            world.fleet.accept_silently(&Effect::key(&session, run.started_seq));
        }
        let interrupt = Command::Interrupt { run_id: run.run_id, reason: Reason::ProcessExit };
        engine.handle().unwrap().execute(&session, interrupt).await.unwrap();
        let undelivered =
            engine.session(&session).await.unwrap().overview.state.pending_context.undelivered;
        assert_eq!(undelivered.len(), 1);
        world.fleet.refuse_prompts(false);
        engine.prompt(&caller(), &session, "third".to_owned()).await.unwrap();
        until(engine, &session, |_| world.fleet.prompts().len() == 2).await;
        until_named(engine, &session, "idle").await;
        let prompts = world.fleet.prompts();
        assert_eq!(prompts.len(), 2, "{prompts:?}");
        match (note, is_accepted) {
            (_, true) => assert_eq!(prompts[1], "third"),
            (false, false) => assert_eq!(prompts[1], "second\n\nthird"),
            (true, false) => {
                assert!(prompts[1].contains("did not reach you:\n> second\n"), "{}", prompts[1]);
            }
        }
        engine.prompt(&caller(), &session, "fourth".to_owned()).await.unwrap();
        until(engine, &session, |_| world.fleet.prompts().len() == 3).await;
        assert_eq!(world.fleet.prompts()[2], "fourth", "once");
        world.end(boot).await;
    }
}

/// A resumed session waits for input; its interrupted run is continued when that is asked for.
#[tokio::test]
async fn a_resume_boots_the_agent_idle() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let engine = &boot.engine;
    let session = created(engine).await;
    engine.prompt(&caller(), &session, HANG.to_owned()).await.unwrap();
    until(engine, &session, |_| world.fleet.prompts().len() == 1).await;
    world.fleet.kill();
    until_named(engine, &session, "interrupted_startup").await;
    let resumed = engine.resume(&caller(), &session, ResumeSpec::default()).await.unwrap();
    assert_eq!(resumed.response.run_id, None);
    let report = engine.session(&session).await.unwrap();
    assert!(report.overview.evaluation.is_agent_running && report.overview.evaluation.needs_resume);
    assert_eq!(
        count(engine, &session, "run.resumed").await,
        0,
        "{:?}",
        kinds(engine, &session).await
    );
    let continued = engine.resume(&caller(), &session, CONTINUE).await.unwrap();
    assert!(continued.response.run_id.is_some());
    until(engine, &session, |_| world.fleet.prompts().len() == 2).await;
    world.end(boot).await;
}

/// Nothing is decided, written or started while the executor does not respond.
#[tokio::test]
async fn an_executor_that_does_not_respond_is_not_a_success() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let session = created(&boot.engine).await;
    boot.engine.prompt(&caller(), &session, HANG.to_owned()).await.unwrap();
    until(&boot.engine, &session, |_| world.fleet.prompts().len() == 1).await;
    world.kill(boot);
    world.fleet.set_away(true);
    let boot = world.start("boot_2").await;
    let engine = &boot.engine;
    let is_unreachable = |report: &piton_runtime::SessionReport| {
        report.overview.status.reason == Reason::ExecutorUnreachable
    };
    until(engine, &session, is_unreachable).await;
    let before = count(engine, &session, "run.started").await;
    let failures = [
        engine.resume(&caller(), &session, CONTINUE).await.unwrap_err(),
        engine.start_agent(&caller(), &session, StartContext::Native).await.unwrap_err(),
    ];
    for failed in failures {
        assert_eq!(failed.code(), Code::AgentctlUnreachable, "{failed}");
    }
    assert_eq!(count(engine, &session, "run.started").await, before);
    assert_eq!(world.fleet.starts().len(), 1);
    world.end(boot).await;
}
