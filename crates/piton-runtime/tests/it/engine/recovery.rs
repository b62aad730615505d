//! An engine without a server recovers and resumes as one with a server does.

use std::time::Duration;

use piton_core::Code;
use piton_core::State;
use piton_core::decide::Command;
use piton_core::resume::{AgentRestart, ContinueRun, StartContext};
use piton_core::state::{Agent, AgentStatus, ExecutorStatus, Run};
use piton_core::status::WireState;
use piton_core::status_cursor::StatusCursor;
use piton_runtime::SessionReport;

use super::agentctl::HANG;
use super::world::{CONTINUE, World, caller, count, created, kinds, until, until_named};

/// The agent outlives the engine, and the next one takes its turn over.
#[tokio::test]
async fn a_turn_survives_a_killed_engine() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let session = created(&boot.engine).await;
    boot.engine.prompt(&caller(), &session, HANG.to_owned()).await.unwrap();
    until(&boot.engine, &session, |report| {
        report.contact.is_connected && report.overview.state.pending.is_empty()
    })
    .await;
    until(&boot.engine, &session, |_| world.fleet.prompts().len() == 1).await;
    assert!(world.scratch(&session).is_dir(), "a session without a folder gets its own");
    world.kill(boot);

    let boot = world.start("boot_2").await;
    let is_reattached = |run: &Run| run.boot_id.as_str() == "boot_2";
    let is_ours = |report: &SessionReport| {
        report.overview.state.facts.run.as_ref().is_some_and(is_reattached)
    };
    until(&boot.engine, &session, is_ours).await;
    world.fleet.finish();
    let report = until_named(&boot.engine, &session, "idle").await;
    assert_eq!(report.overview.status.reason.as_str(), "run_completed");
    let kinds = kinds(&boot.engine, &session).await;
    let count = |kind: &str| kinds.iter().filter(|known| *known == kind).count();
    assert_eq!(count("run.reattached"), 1, "{kinds:?}");
    assert_eq!(count("run.interrupted"), 0, "{kinds:?}");
    assert_eq!(count("executor.starting"), 1, "{kinds:?}");
    assert_eq!(world.fleet.prompts(), [HANG]);
    world.end(boot).await;
}

/// Engine and agent are killed: one interruption, and a resume that continues the run with the
/// agent's own conversation.
#[tokio::test]
async fn an_interrupted_run_is_resumed_by_an_embedded_engine() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let session = created(&boot.engine).await;
    let prompted = boot.engine.prompt(&caller(), &session, HANG.to_owned()).await.unwrap();
    until(&boot.engine, &session, |_| world.fleet.prompts().len() == 1).await;
    until(&boot.engine, &session, |report| report.overview.state.facts.agent.is_some()).await;
    world.kill(boot);
    world.fleet.kill();

    let boot = world.start("boot_2").await;
    // At once: what the dead boot left is settled before it is decided what to continue.
    let resumed = boot.engine.resume(&caller(), &session, CONTINUE).await.unwrap();
    assert_eq!(resumed.response.run_id, Some(prompted.response.run_id));
    until(&boot.engine, &session, |_| world.fleet.prompts().len() == 2).await;
    world.fleet.finish();
    until_named(&boot.engine, &session, "idle").await;
    assert_eq!(count(&boot.engine, &session, "run.interrupted").await, 1);
    assert_eq!(count(&boot.engine, &session, "run.resumed").await, 1);
    let starts = world.fleet.starts();
    assert_eq!(starts.len(), 2);
    assert_eq!(starts[1].agent_session_id, Some(format!("theirs_{session}")));
    world.end(boot).await;
}

/// Without anybody asking: agents are started at boot, and the run continues, if the policy says so.
#[tokio::test]
async fn agents_are_started_at_boot_if_the_policy_says_so() {
    let mut world = World::new();
    let boot = world.start("boot_1").await;
    let session = created(&boot.engine).await;
    boot.engine.prompt(&caller(), &session, HANG.to_owned()).await.unwrap();
    until(&boot.engine, &session, |_| world.fleet.prompts().len() == 1).await;
    world.kill(boot);
    world.fleet.kill();

    world.policy.agent_restart = AgentRestart::OnBoot;
    world.policy.continue_run = ContinueRun::Auto;
    let boot = world.start("boot_2").await;
    until(&boot.engine, &session, |_| world.fleet.prompts().len() == 2).await;
    world.fleet.finish();
    until_named(&boot.engine, &session, "idle").await;
    assert_eq!(count(&boot.engine, &session, "run.resumed").await, 1);
    world.end(boot).await;
}

/// At boot a few agents are started at a time, and only those of sessions that were active lately.
#[tokio::test]
async fn few_agents_are_started_at_once_at_boot_and_only_of_recent_sessions() {
    let mut world = World::new();
    let boot = world.start("boot_1").await;
    for _ in 0..7 {
        let session = created(&boot.engine).await;
        boot.engine.prompt(&caller(), &session, "hello".to_owned()).await.unwrap();
        until_named(&boot.engine, &session, "idle").await;
    }
    world.kill(boot);
    world.fleet.kill();
    let started = world.fleet.starts().len();
    world.fleet.launched_at_once();

    world.policy.agent_restart = AgentRestart::OnBoot;
    world.settings.boot_active_within = Duration::ZERO;
    let boot = world.start("boot_2").await;
    let session = created(&boot.engine).await;
    boot.engine.prompt(&caller(), &session, "hello".to_owned()).await.unwrap();
    until_named(&boot.engine, &session, "idle").await;
    world.end(boot).await;
    world.fleet.kill();
    assert_eq!(world.fleet.starts().len(), started + 1, "nothing but what was asked for");

    world.fleet.launched_at_once();
    world.settings.boot_active_within = Duration::from_hours(1);
    world.settings.boot_parallel = 2;
    let boot = world.start("boot_3").await;
    until(&boot.engine, &session, |_| world.fleet.starts().len() >= started + 9).await;
    assert_eq!(world.fleet.launched_at_once(), 2);
    world.end(boot).await;
}

/// An agent that nothing needs is ended, and the next prompt starts it again with its conversation.
#[tokio::test]
async fn an_idle_agent_is_ended_and_started_again_by_a_prompt() {
    let mut world = World::new();
    world.settings.agent_idle_timeout = Some(Duration::from_millis(200));
    let boot = world.start("boot_1").await;
    let session = created(&boot.engine).await;
    boot.engine.prompt(&caller(), &session, "hello".to_owned()).await.unwrap();
    let is_ended = |report: &SessionReport| {
        let agent = report.overview.state.facts.agent.as_ref();
        agent.is_some_and(|agent| agent.status == AgentStatus::Exited)
    };
    until(&boot.engine, &session, is_ended).await;
    assert_eq!(count(&boot.engine, &session, "agent.ending").await, 1);
    assert_eq!(count(&boot.engine, &session, "run.interrupted").await, 0);
    boot.engine.prompt(&caller(), &session, "again".to_owned()).await.unwrap();
    until(&boot.engine, &session, |_| world.fleet.prompts().len() == 2).await;
    let starts = world.fleet.starts();
    assert!(starts.last().unwrap().agent_session_id.is_some(), "{starts:?}");
    world.end(boot).await;
}

/// A decision that its engine did not live to carry out is carried out by the next one, before anybody
/// is given that agent.
#[tokio::test]
async fn an_agent_that_was_to_be_ended_is_ended_by_the_next_engine() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let session = created(&boot.engine).await;
    boot.engine.prompt(&caller(), &session, "hello".to_owned()).await.unwrap();
    until_named(&boot.engine, &session, "idle").await;
    until(&boot.engine, &session, |report| report.overview.state.pending.is_empty()).await;
    let facts = boot.engine.view().state(&session).await.unwrap().facts;
    let execution_id = facts.executor.unwrap().execution_id;
    let command = Command::EndIdleAgent { execution_id, idle_for: Duration::ZERO };
    let handle = boot.engine.handle().unwrap().clone();
    handle.execute(&session, command).await.unwrap();
    drop(handle);
    assert_eq!(count(&boot.engine, &session, "agent.ending").await, 1);
    world.kill(boot);

    let boot = world.start("boot_2").await;
    boot.engine.prompt(&caller(), &session, "again".to_owned()).await.unwrap();
    until(&boot.engine, &session, |_| world.fleet.prompts().len() == 2).await;
    until_named(&boot.engine, &session, "idle").await;
    assert_eq!(count(&boot.engine, &session, "run.interrupted").await, 0);
    assert_eq!(world.fleet.starts().len(), 2, "the second prompt has an agent of its own");
    world.end(boot).await;
}

/// Between the decision to stop an agent and its end a prompt is accepted: it is given to the next agent,
/// and not to the one that ends, nor to one that is started in the execution that ends.
#[tokio::test]
async fn a_prompt_beside_a_stop_is_given_to_the_next_agent() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let session = created(&boot.engine).await;
    boot.engine.prompt(&caller(), &session, "hello".to_owned()).await.unwrap();
    until_named(&boot.engine, &session, "idle").await;

    world.fleet.hold_stops(true);
    let (engine, of) = (boot.engine.clone(), session.clone());
    let stopping = tokio::spawn(async move { engine.stop_agent(&caller(), &of).await });
    let is_ending = |report: &SessionReport| {
        report.overview.state.facts.agent.as_ref().is_some_and(Agent::is_ending)
    };
    until(&boot.engine, &session, is_ending).await;
    let (engine, of) = (boot.engine.clone(), session.clone());
    let prompting =
        tokio::spawn(async move { engine.prompt(&caller(), &of, "again".to_owned()).await });
    let is_accepted =
        |report: &SessionReport| report.overview.state.facts.run.as_ref().is_some_and(Run::is_open);
    until(&boot.engine, &session, is_accepted).await;
    assert_eq!(world.fleet.prompts().len(), 1, "the agent that ends is given nothing");
    world.fleet.hold_stops(false);

    stopping.await.unwrap().unwrap();
    prompting.await.unwrap().unwrap();
    until_named(&boot.engine, &session, "idle").await;
    assert_eq!(world.fleet.prompts().len(), 2);
    assert_eq!(world.fleet.starts().len(), 2);
    assert_eq!(count(&boot.engine, &session, "executor.stopped").await, 1);
    assert_eq!(count(&boot.engine, &session, "run.interrupted").await, 0);
    world.end(boot).await;
}

/// A prompt whose engine dies before an agent was started is delivered by the next one.
#[tokio::test]
async fn an_undelivered_prompt_is_delivered_by_the_next_engine() {
    let mut world = World::new();
    world.policy.agent_restart = AgentRestart::OnOpen;
    let boot = world.start("boot_1").await;
    let session = created(&boot.engine).await;
    let prompted = boot.engine.prompt(&caller(), &session, "hello".to_owned()).await.unwrap();
    world.kill(boot);

    let boot = world.start("boot_2").await;
    let report = until(&boot.engine, &session, |report| {
        let run = report.overview.state.facts.run.as_ref();
        run.is_some_and(|run| !run.is_open())
    })
    .await;
    // Delivered by either engine, or interrupted and said so: never silently lost, never twice.
    assert_eq!(report.overview.state.facts.run.unwrap().run_id, prompted.response.run_id);
    assert!(world.fleet.prompts().len() <= 1, "{:?}", world.fleet.prompts());
    world.end(boot).await;
}

/// Wants to show: prompts that were acknowledged before this boot have their agents started four at a
/// time, however old their sessions are; what a caller asks for now waits for none of them; and each
/// prompt is delivered once.
#[tokio::test]
async fn few_agents_are_started_at_once_for_prompts_of_an_earlier_boot() {
    let mut world = World::new();
    let boot = world.start("boot_1").await;
    let mut sessions = Vec::new();
    for number in 0..7 {
        let session = created(&boot.engine).await;
        boot.engine.prompt(&caller(), &session, HANG.to_owned()).await.unwrap();
        let queued = boot.engine.prompt(&caller(), &session, format!("queued-{number}")).await;
        assert!(queued.unwrap().response.queued);
        sessions.push(session);
    }
    until(&boot.engine, &sessions[6], |_| world.fleet.prompts().len() == 7).await;
    world.kill(boot);
    world.fleet.kill();
    let boot = world.start("boot_2").await;
    for session in &sessions {
        until_named(&boot.engine, session, "interrupted_startup").await;
    }
    world.end(boot).await;
    // Nothing delivers what an offline writer releases before the next boot.
    let offline = world.offline("boot_offline");
    for session in &sessions {
        offline.dismiss(&caller(), session, None).await.unwrap();
        offline.release_queue(&caller(), session).await.unwrap();
    }
    drop(offline);
    let started = world.fleet.starts().len();
    world.fleet.hold_starts();

    world.policy.agent_restart = AgentRestart::OnBoot;
    world.settings.boot_active_within = Duration::ZERO;
    let boot = world.start("boot_3").await;
    for session in &sessions {
        let is_delivered = |report: &SessionReport| report.overview.state.queue.is_empty();
        until(&boot.engine, session, is_delivered).await;
    }
    until(&boot.engine, &sessions[0], |_| world.fleet.starts().len() == started + 4).await;
    // Long enough for a fifth one: launches take a fraction of it.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let starting = world.fleet.started_sessions().split_off(started);
    assert_eq!(starting.len(), 4, "{starting:?}");
    let waiting = sessions.iter().find(|session| !starting.contains(session)).unwrap().clone();
    let engine = boot.engine.clone();
    let asked = tokio::spawn({
        let waiting = waiting.clone();
        async move { engine.start_agent(&caller(), &waiting, StartContext::Native).await }
    });
    until(&boot.engine, &waiting, |_| world.fleet.starts().len() == started + 5).await;
    assert_eq!(world.fleet.started_sessions().last(), Some(&waiting));
    world.fleet.release_starts();
    asked.await.unwrap().unwrap();
    for session in &sessions {
        until_named(&boot.engine, session, "idle").await;
    }
    let prompts = world.fleet.prompts();
    for number in 0..7 {
        let text = format!("queued-{number}");
        let given = prompts.iter().filter(|prompt| prompt.ends_with(&text)).count();
        assert_eq!(given, 1, "{text}: {prompts:?}");
    }
    assert_eq!(world.fleet.starts().len(), started + 7);
    world.end(boot).await;
}

#[tokio::test]
async fn ten_resumes_at_once_continue_a_run_once() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let session = created(&boot.engine).await;
    let prompted = boot.engine.prompt(&caller(), &session, HANG.to_owned()).await.unwrap();
    until(&boot.engine, &session, |_| world.fleet.prompts().len() == 1).await;
    world.fleet.kill();
    until_named(&boot.engine, &session, "interrupted_startup").await;

    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (engine, session) = (boot.engine.clone(), session.clone());
        requests.spawn(async move { engine.resume(&caller(), &session, CONTINUE).await });
    }
    let mut continued = 0;
    while let Some(resumed) = requests.join_next().await {
        let resumed = resumed.unwrap().unwrap().response;
        continued += usize::from(resumed.run_id.as_ref() == Some(&prompted.response.run_id));
    }
    assert!(continued >= 1);
    assert_eq!(count(&boot.engine, &session, "run.resumed").await, 1);
    assert_eq!(world.fleet.starts().len(), 2, "one agent before, one after");
    world.end(boot).await;
}

#[tokio::test]
async fn a_prompt_needs_a_running_agent_if_agents_are_started_by_hand() {
    let mut world = World::new();
    world.policy.agent_restart = AgentRestart::Manual;
    let boot = world.start("boot_1").await;
    let session = created(&boot.engine).await;
    let refused = boot.engine.prompt(&caller(), &session, "hello".to_owned()).await.unwrap_err();
    assert_eq!(refused.code(), Code::AgentNotRunning);
    boot.engine.start_agent(&caller(), &session, StartContext::Native).await.unwrap();
    boot.engine.prompt(&caller(), &session, "hello".to_owned()).await.unwrap();
    until_named(&boot.engine, &session, "idle").await;
    assert_eq!(world.fleet.prompts(), ["hello"]);
    world.end(boot).await;
}

/// Every change of the state from a start to the ready agent, as readers of the broadcast get it:
/// nothing in between says that the session waits for input.
#[tokio::test]
async fn a_start_shows_no_other_state_in_between() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let session = created(&boot.engine).await;
    for _ in 0..2 {
        boot.engine.start_agent(&caller(), &session, StartContext::Native).await.unwrap();
        until_named(&boot.engine, &session, "idle").await;
        world.fleet.kill();
        let is_stopped = |report: &SessionReport| {
            let executor = report.overview.state.facts.executor.as_ref();
            executor.is_some_and(|executor| executor.status == ExecutorStatus::Stopped)
        };
        until(&boot.engine, &session, is_stopped).await;
    }
    let records = boot.engine.view().records(&session, 0, 1_000).await.unwrap();
    let mut trail = StatusCursor::new(State::default());
    let mut states = vec![WireState::WaitingForInput];
    for record in &records {
        let state = trail.pass(record).after.name.wire();
        if states.last() != Some(&state) {
            states.push(state);
        }
    }
    let (waits, starts) = (WireState::WaitingForInput, WireState::Starting);
    assert_eq!(
        states,
        [waits, starts, waits, starts, waits],
        "{:?}",
        kinds(&boot.engine, &session).await
    );
    world.end(boot).await;
}
