//! `piton doctor` and `piton open`.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::server::world::World;

/// What the doctor says, by check, and whether it ended well.
fn examined(world: &World) -> (bool, Vec<(String, String, String)>) {
    let output = world.command(&["doctor", "--json"]).output().unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["good"], output.status.success());
    let text = |finding: &Value, name: &str| finding[name].as_str().unwrap().to_owned();
    let findings = said["findings"].as_array().unwrap().iter();
    let findings = findings.map(|f| (text(f, "check"), text(f, "level"), text(f, "says")));
    (output.status.success(), findings.collect())
}

fn of<'a>(findings: &'a [(String, String, String)], check: &str) -> (&'a str, &'a str) {
    let found = findings.iter().find(|(name, ..)| name == check).unwrap();
    (&found.1, &found.2)
}

#[test]
fn the_doctor_looks_at_a_server_and_its_agents_and_changes_nothing() {
    let mut world = World::new();
    let session = world.session();
    let before = world.records(&session);
    let (good, findings) = examined(&world);
    assert!(good, "{findings:?}");
    let (level, says) = of(&findings, "server");
    assert_eq!(level, "ok");
    assert!(says.contains(&world.address), "{says}");
    assert_eq!(of(&findings, "store"), ("ok", "sqlite; it can be opened"));
    assert_eq!(of(&findings, "executions"), ("ok", "1 running"));
    assert_eq!(world.records(&session), before);
    world.kill();
    let (_, findings) = examined(&world);
    assert_eq!(of(&findings, "executions"), ("ok", "1 running without a server"));
    assert_eq!(of(&findings, "server").0, "ok");

    let mode = |mode: u32| {
        std::fs::set_permissions(world.data(), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o777);
    let (good, findings) = examined(&world);
    assert_eq!((good, of(&findings, "data folder").0), (false, "problem"));
    mode(0o700);
    std::fs::write(world.data().join("store.sqlite3"), "this is no store").unwrap();
    let (good, findings) = examined(&world);
    assert_eq!((good, of(&findings, "store").0), (false, "problem"));
    let printed = world.command(&["doctor"]).output().unwrap();
    assert_eq!(printed.status.code(), Some(1));
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains("\nproblem  store"), "{printed}");
}

/// A server stopped by SIGSTOP is alive and does not answer: the doctor says so, and does not wait
/// for ever.
#[test]
fn a_server_that_does_not_answer_is_found_out() {
    let world = World::new();
    let place = std::fs::read(world.data().join("run/server.json")).unwrap();
    let place: Value = serde_json::from_slice(&place).unwrap();
    let pid = i32::try_from(place["pid"].as_i64().unwrap()).unwrap();
    let signal = |signal| kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    signal(Signal::STOP);
    let (good, findings) = examined(&world);
    signal(Signal::CONT);
    let (level, says) = of(&findings, "server");
    assert_eq!((good, level), (false, "problem"));
    assert!(says.ends_with("runs but does not answer: no answer within 5 s"), "{says}");
    assert!(examined(&world).0);
}

fn without_display(world: &World, arguments: &[&str]) -> Command {
    let mut command = world.command(arguments);
    for name in ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"] {
        command.env_remove(name);
    }
    command
}

fn link_of(url: &str) -> &str {
    url.split("/#link=").nth(1).unwrap()
}

#[test]
fn a_link_signs_one_browser_in_once() {
    let world = World::new();
    let output = without_display(&world, &["open", "--json"]).output().unwrap();
    let opened: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&opened["opened"], &opened["why_not"]),
        (&json!(false), &json!("there is no display"))
    );
    let url = opened["url"].as_str().unwrap();
    assert!(url.starts_with(&format!("{}/#link=key_", world.address)), "{url}");
    let sign_in = |link: &str| {
        let body = json!({"link": link}).to_string();
        world.raw("POST", "/api/v1/sign-in", Some(body.as_bytes()), &[])
    };
    let token = sign_in(link_of(url)).good()["token"].as_str().unwrap().to_owned();
    assert_eq!(sign_in(link_of(url)).code(), "unauthenticated");
    let bearer = format!("Bearer {token}");
    let ask = |path: &str| world.raw("GET", path, None, &[("authorization", &bearer)]);
    assert_eq!(ask("/api/v1/sessions").status, 200);
    assert_eq!(ask("/api/v1/access-tokens").code(), "insufficient_scope");

    let output = without_display(&world, &["open", "--print"]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.starts_with(&world.address) && printed.lines().count() == 1, "{printed}");
}

/// The browser gets a page that only the owner can read; nothing secret stands among the arguments,
/// which everybody on the machine can see.
#[test]
fn a_browser_is_opened_without_showing_the_secret_to_others() {
    let world = World::new();
    let bin = world.folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let install = |script: &str| {
        let path = bin.join("xdg-open");
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let open = || {
        let mut command = without_display(&world, &["open", "--json"]);
        command.env("DISPLAY", ":7").env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    install(&format!("#!/bin/sh\necho \"$@\" > {}/asked\n", bin.display()));
    let opened = open();
    assert_eq!((&opened["opened"], &opened["why_not"]), (&json!(true), &Value::Null));
    let url = opened["url"].as_str().unwrap();
    let asked = std::fs::read_to_string(bin.join("asked")).unwrap();
    assert!(!asked.contains(link_of(url)), "{asked}");
    let page = std::path::Path::new(asked.trim());
    assert!(std::fs::read_to_string(page).unwrap().contains(url));
    assert_eq!(page.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    install("#!/bin/sh\nexit 3\n");
    let failed = open();
    assert_eq!(failed["opened"], false);
    assert!(failed["why_not"].as_str().unwrap().contains("failed"), "{failed}");
}
