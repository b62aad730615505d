//! An agent's own features, as the engine has them: what must hold over the death of a process.

use piton_core::Code;
use piton_core::agent_view::Configure;
use piton_core::decide::Command;
use piton_core::resume::StartContext;

use super::world::{World, caller, created, keyed, until};

fn mode(mode: &str) -> Configure {
    Configure { mode: Some(mode.to_owned()), ..Configure::default() }
}

/// Wants to show: a choice that is in the log, and was not given to the agent because the process died
/// before it did so, is given to the agent by the next process; once.
#[tokio::test]
async fn a_choice_outlives_the_process_that_was_to_give_it() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let session = created(&boot.engine).await;
    boot.engine.start_agent(&caller(), &session, StartContext::Native).await.unwrap();
    let handle = boot.engine.handle().unwrap();
    handle.execute(&session, Command::Configure(mode("code"))).await.unwrap();
    world.kill(boot);
    let boot = world.start("boot_2").await;
    let is_given = |choice: &Option<piton_core::agent_view::Choice<String>>| {
        choice.as_ref().is_some_and(|choice| !choice.is_pending)
    };
    let engine = &boot.engine;
    until(engine, &session, |report| is_given(&report.overview.state.features.choices.mode)).await;
    let modes = engine.agent_view(&session).await.unwrap().modes.unwrap();
    assert_eq!(modes.current.as_deref(), Some("code"));
    world.end(boot).await;
}

/// Wants to show: an agent that wants to be logged in is started with the method, and a failure is one.
#[tokio::test]
async fn an_agent_logs_in_before_its_conversation() {
    let world = World::new();
    world.fleet.set_auth("api-key");
    let boot = world.start("boot_1").await;
    let engine = &boot.engine;
    let session = created(engine).await;
    let wrong = engine.log_in(&caller(), &session, Some("browser".to_owned())).await.unwrap_err();
    assert_eq!(wrong.code(), Code::AgentAuthRequired);
    engine.log_in(&keyed("l"), &session, None).await.unwrap();
    assert!(engine.log_in(&keyed("l"), &session, None).await.unwrap().replayed);
    let methods: Vec<_> = world.fleet.starts().into_iter().map(|start| start.auth_method).collect();
    assert_eq!(methods, [Some("browser".to_owned()), Some("api-key".to_owned())]);
    world.end(boot).await;
}
