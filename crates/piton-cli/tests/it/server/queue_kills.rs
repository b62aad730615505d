//! Queued prompts, while server, agentctls, agents and terminals are killed: each is delivered once, in
//! order, or is still queued.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::server::cuts::Dice;
use crate::server::world::World;

#[test]
fn queued_prompts_survive_forty_kills() {
    kill(40);
}

#[test]
#[ignore = "takes minutes; `make soak`"]
fn queued_prompts_survive_five_hundred_kills() {
    kill(500);
}

fn kill(times: u32) {
    let mut dice = Dice::new();
    let mut world = World::new();
    let session = world.session();
    let (mut accepted, mut number) = (BTreeSet::new(), 0);
    for _ in 0..times {
        for _ in 0..=dice.roll(3) {
            number += 1;
            let content = format!("wait {}\nsay {number}", dice.roll(40));
            let said = json!({"content": content, "if_busy": "queue"});
            let said = world.post(&format!("/api/v1/sessions/{session}/messages"), &said);
            // The queue may be full while it is held.
            if said.code() != "limit_reached" {
                accepted.insert(said.good()["message_id"].as_str().unwrap().to_owned());
            }
        }
        std::thread::sleep(Duration::from_millis(dice.roll(60)));
        match dice.roll(4) {
            0 => {
                world.kill();
                world.start();
            }
            1 => world.kill_agentctls(),
            2 => {
                for agent in world.agents(&session) {
                    // It may end by itself meanwhile.
                    let _ = kill_process(agent, Signal::KILL);
                }
            }
            _ => {
                let mut terminal = world.command(&["attach", &session]);
                terminal.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
                let mut terminal = terminal.spawn().unwrap();
                number += 1;
                let typed = format!("say {number}\n");
                terminal.stdin.as_mut().unwrap().write_all(typed.as_bytes()).unwrap();
                std::thread::sleep(Duration::from_millis(dice.roll(300)));
                terminal.kill().unwrap();
                terminal.wait().unwrap();
            }
        }
        if dice.roll(3) == 0 {
            release(&world, &session);
        }
    }
    // The last word: everything that waits is delivered.
    world.when(&session, |status| {
        release(&world, &session);
        status["queue"]["length"] == 0 && status["status"] == "idle"
    });
    check(&world.records(&session), &accepted);
}

fn release(world: &World, session: &str) {
    world.post(&format!("/api/v1/sessions/{session}/queue/release"), &json!({})).good();
}

/// Goes through the log as a reader would, without the program's own fold.
fn check(records: &[Value], accepted: &BTreeSet<String>) {
    let mut queue: Vec<(&str, bool)> = Vec::new();
    let (mut queued, mut delivered) = (BTreeSet::new(), BTreeSet::new());
    for record in records {
        let message = record["message_id"].as_str().unwrap_or_default();
        match record["kind"].as_str().unwrap() {
            "prompt.queued" => {
                assert!(queued.insert(message), "{message} is queued twice");
                queue.push((message, false));
            }
            "message.user" => {
                assert!(delivered.insert(message.to_owned()), "{message} is delivered twice");
                if queued.contains(message) {
                    let next = queue.iter().position(|(_, held)| !held);
                    let next = next.unwrap_or_else(|| panic!("{message} is held"));
                    assert_eq!(queue.remove(next).0, message, "out of order");
                }
            }
            "run.interrupted" | "run.failed" => queue.iter_mut().for_each(|(_, held)| *held = true),
            "run.cancelled" if record["reason"] != "superseded" => {
                for (_, held) in &mut queue {
                    *held = true;
                }
            }
            "queue.released" => queue.iter_mut().for_each(|(_, held)| *held = false),
            _ => {}
        }
    }
    assert_eq!(queue, []);
    assert!(queued.len() > 5, "hardly anything was queued: {}", queued.len());
    let lost: Vec<_> = accepted.difference(&delivered).collect();
    assert!(lost.is_empty(), "accepted and never delivered: {lost:?}");
}
