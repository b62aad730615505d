//! Sessions in worktrees of a real repository, with the real binary: side by side, refused for a
//! reason of its own when something is missing, cleaned up without losing anything, and made although
//! the server was killed on the way.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::world::{Answer, TEST_TIMEOUT, World, answer};

/// What git says, which must work.
fn git(folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]).args(args);
    let output = command.current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// A repository whose name has spaces and other letters, with one commit and a hook that tells.
fn repository(world: &World) -> PathBuf {
    let repo = world.folder.path().canonicalize().unwrap().join("mein Projekt ü");
    fs::create_dir(&repo).unwrap();
    git(&repo, &["init", "--quiet", "--initial-branch=main"]);
    fs::write(repo.join("a"), "one\n").unwrap();
    git(&repo, &["add", "a"]);
    git(&repo, &["commit", "--quiet", "-m", "Begin"]);
    let hook = repo.join(".git/hooks/post-checkout");
    fs::write(&hook, format!("#!/bin/sh\ntouch '{}'\n", hook_ran(&repo).display())).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    repo
}

fn hook_ran(repo: &Path) -> PathBuf {
    repo.with_file_name("hook-ran")
}

fn new_session(world: &mut World, repo: &Path) -> (String, PathBuf, String) {
    let made = world.post("/api/v1/sessions", &json!({"repo": repo, "start": false})).good();
    let session = made["session_id"].as_str().unwrap().to_owned();
    world.adopt(&session);
    let status = world.status(&session);
    let text = |name: &str| status[name].as_str().unwrap().to_owned();
    (session, text("worktree_path").into(), text("worktree_branch"))
}

fn start(world: &World, session: &str) -> Answer {
    world.post(&format!("/api/v1/sessions/{session}/start"), &json!({}))
}

fn kinds(world: &World, session: &str) -> Vec<String> {
    let records = world.records(session);
    let kinds = records.iter().filter_map(|record| record["kind"].as_str());
    kinds.filter(|kind| kind.starts_with("workspace.")).map(str::to_owned).collect()
}

/// An agent that is started, or has nothing to do, does not work on the task.
#[test]
fn a_new_task_is_to_do_until_something_is_asked() {
    let mut world = World::new();
    let repo = repository(&world);
    let made = world.json(&["tasks", "new", "Do it", "--repo", repo.to_str().unwrap()]);
    let task = made["task_id"].as_str().unwrap();
    let session = made["session_id"].as_str().unwrap().to_owned();
    world.adopt(&session);
    let state = |world: &World| world.json(&["tasks", "show", task])["state"].clone();
    assert_eq!(state(&world), "TODO");
    world.when(&session, |status| status["is_agent_running"] == true);
    assert_eq!(state(&world), "TODO");
    world.prompt(&session, "wait 60000");
    world.when(&session, |status| status["status"] == "running");
    assert_eq!(state(&world), "IN_PROGRESS");
}

#[test]
fn two_sessions_of_a_task_work_side_by_side() {
    let mut world = World::new();
    let repo = repository(&world);
    let at = repo.to_str().unwrap();
    let first = world.json(&["tasks", "new", "Do it", "--repo", at, "--base", "main"]);
    let task = first["task_id"].as_str().unwrap();
    let second = world.json(&["sessions", "new", "--task", task, "--repo", at]);
    let text = |made: &Value, name: &str| made[name].as_str().unwrap().to_owned();
    assert_ne!(first["worktree_branch"], second["worktree_branch"]);
    for (made, name) in [(&first, "one"), (&second, "two")] {
        let session = text(made, "session_id");
        world.adopt(&session);
        world.when(&session, |status| status["is_agent_running"] == true);
        let run = world.prompt(
            &session,
            &format!(
                "run echo {name} > {name} && git add {name} && git -c user.name=A -c user.email=a@b \
                 commit -qm 'Add {name}' && pwd"
            ),
        );
        let done = world.when(&session, |status| status["last_outcome"] == "completed");
        assert_eq!(done["run_id"], run.as_str());
        let folder = PathBuf::from(text(made, "worktree_path"));
        assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), format!("{name}\n"));
        let branch = text(made, "worktree_branch");
        assert_eq!(git(&repo, &["log", "--format=%s", &branch]), format!("Add {name}\nBegin"));
        let shown = world.json(&["sessions", "show", &session]);
        assert_eq!(shown["worktree"]["branch"], branch.as_str());
        assert_eq!(shown["worktree"]["repository"], at);
    }
    // The user's checkout is as it was, and its hook was not run by us.
    assert_eq!(git(&repo, &["log", "--format=%s"]), "Begin");
    assert_eq!(git(&repo, &["status", "--porcelain", "--branch"]), "## main");
    assert!(!hook_ran(&repo).exists());
    let task = world.get(&format!("/api/v1/tasks/{task}")).good();
    assert_eq!(task["sessions"].as_array().unwrap().len(), 2);
}

#[test]
fn a_session_whose_worktree_is_not_as_it_was_says_why() {
    let mut world = World::new();
    let repo = repository(&world);
    let refused = |world: &World, session: &str| {
        let refused = start(world, session);
        assert_eq!((refused.status, refused.code()), (409, "workspace_unusable"), "{refused:?}");
        assert!(refused.body["detail"].is_string() && refused.body["hint"].is_string());
        refused.body["reason"].as_str().unwrap().to_owned()
    };

    let (removed, path, _) = new_session(&mut world, &repo);
    fs::remove_dir_all(&path).unwrap();
    assert_eq!(refused(&world, &removed), "worktree_missing");
    assert_eq!(world.refused(&["sessions", "resume", &removed]), "workspace_unusable");
    let repaired = world.json(&["sessions", "repair", &removed]);
    assert_eq!(repaired["worktree_path"], path.to_str().unwrap());
    start(&world, &removed).good();
    assert!(path.join("a").exists());

    let (branchless, path, branch) = new_session(&mut world, &repo);
    git(&path, &["checkout", "--quiet", "--detach"]);
    git(&repo, &["branch", "-D", &branch]);
    assert_eq!(refused(&world, &branchless), "branch_missing");
    assert_eq!(world.refused(&["sessions", "repair", &branchless]), "workspace_unusable");

    let (homeless, path, _) = new_session(&mut world, &repo);
    fs::rename(&repo, repo.with_extension("moved")).unwrap();
    assert_eq!(refused(&world, &homeless), "repository_missing");
    assert!(path.join("a").exists());
    fs::rename(repo.with_extension("moved"), &repo).unwrap();
    start(&world, &homeless).good();

    // One that works in place has no worktree, and a reason of its own.
    let workspace = world.workspace();
    let in_place = world.quiet_session(Some(&workspace));
    assert_eq!(world.status(&in_place)["worktree_path"], Value::Null);
    fs::remove_dir(&workspace).unwrap();
    assert_eq!(refused(&world, &in_place), "workspace_missing");
    let none = world.ask("DELETE", &format!("/api/v1/sessions/{in_place}/worktree"), None, &[]);
    assert_eq!((none.status, none.code()), (404, "worktree_not_found"));
}

#[test]
fn a_clean_up_loses_nothing_unless_forced() {
    let mut world = World::new();
    let repo = repository(&world);
    let (session, path, branch) = new_session(&mut world, &repo);
    start(&world, &session).good();
    world.when(&session, |status| status["is_agent_running"] == true);

    // Not under a turn that is under way.
    world.prompt(&session, "ask May I?");
    world.when(&session, |status| status["status"] == "waiting");
    assert_eq!(world.refused(&["sessions", "cleanup", &session]), "run_in_progress");
    world.json(&["sessions", "cancel", &session]);
    world.when(&session, |status| status["status"] == "idle");

    fs::write(path.join("new ü"), "x").unwrap();
    let asked = format!("/api/v1/sessions/{session}/worktree");
    let refused = world.ask("DELETE", &asked, None, &[]);
    assert_eq!((refused.status, refused.code()), (409, "worktree_dirty"), "{refused:?}");
    assert!(refused.body["detail"].as_str().unwrap().contains("new ü"), "{refused:?}");
    // The agent was not ended for nothing.
    assert_eq!(world.status(&session)["is_agent_running"], true);
    git(&path, &["add", "."]);
    git(&path, &["commit", "--quiet", "-m", "Work"]);
    let refused = world.ask("DELETE", &asked, None, &[]);
    assert!(refused.body["detail"].as_str().unwrap().contains("1 unpushed commit"), "{refused:?}");

    // Once it is merged it goes, and the idle agent with it.
    git(&repo, &["merge", "--quiet", &branch]);
    let cleaned = world.json(&["sessions", "cleanup", &session]);
    assert_eq!((&cleaned["kept_branch"], &cleaned["changed"]), (&json!(false), &json!(true)));
    assert!(!path.exists());
    let status = world.status(&session);
    assert_eq!(
        (&status["is_agent_running"], &status["worktree_path"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(git(&repo, &["branch", "--format=%(refname:short)"]), "main");
    assert_eq!(world.json(&["sessions", "cleanup", &session])["changed"], false);

    let (session, path, branch) = new_session(&mut world, &repo);
    fs::write(path.join("a"), "lost").unwrap();
    assert_eq!(world.refused(&["sessions", "cleanup", &session]), "worktree_dirty");
    world.json(&["sessions", "cleanup", &session, "--force"]);
    assert!(!path.exists() && !git(&repo, &["branch"]).contains(&branch));

    // Who may only look may not.
    let reader = world.bearer(&["read"]);
    let refused = world.raw("DELETE", &asked, None, &[("authorization", &reader)]);
    assert_eq!(refused.code(), "insufficient_scope");
}

#[test]
fn a_deleted_session_leaves_what_is_not_clean_and_says_so() {
    let mut world = World::new();
    let repo = repository(&world);
    let delete = |world: &World, session: &str| {
        world.ask("DELETE", &format!("/api/v1/sessions/{session}"), None, &[])
    };
    let (clean, path, _) = new_session(&mut world, &repo);
    let deleted = delete(&world, &clean).good();
    assert_eq!((&deleted["worktree_removed"], path.exists()), (&json!(true), false));

    let (dirty, path, _) = new_session(&mut world, &repo);
    fs::write(path.join("precious"), "x").unwrap();
    let deleted = delete(&world, &dirty).good();
    assert_eq!((&deleted["worktree_removed"], path.exists()), (&json!(false), true));
    assert!(deleted["left_because"].as_str().unwrap().contains("precious"), "{deleted}");

    let (dirty, path, _) = new_session(&mut world, &repo);
    fs::write(path.join("precious"), "x").unwrap();
    let output = world.command(&["sessions", "delete", &dirty, "--yes"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && stderr.contains(path.to_str().unwrap()), "{stderr}");
    assert!(path.join("precious").exists());

    let plain = world.quiet_session(None);
    assert_eq!(delete(&world, &plain).status, 204);
}

#[test]
fn what_is_no_repository_is_refused_before_anything_is_made() {
    let world = World::new();
    let repo = repository(&world);
    let folder = world.workspace();
    git(&folder, &["clone", "--quiet", "--bare", repo.to_str().unwrap(), "bare.git"]);
    let rows = [
        (json!({"repo": "relative"}), "repository_invalid"),
        (json!({"repo": folder.join("missing")}), "repository_invalid"),
        (json!({"repo": folder}), "repository_invalid"),
        (json!({"repo": folder.join("bare.git")}), "repository_invalid"),
        (json!({"repo": repo, "base": "nowhere"}), "base_not_found"),
        (json!({"repo": repo, "base": "--all"}), "base_not_found"),
        (json!({"repo": repo, "working_dir": folder}), "request_invalid"),
        (json!({"working_dir": folder, "base": "main"}), "request_invalid"),
    ];
    for (body, code) in rows {
        let refused = world.post("/api/v1/sessions", &body);
        assert_eq!((refused.status, refused.code()), (400, code), "{body}: {refused:?}");
    }
    let listed = world.get("/api/v1/sessions").good();
    assert_eq!(listed["sessions"], json!([]));
    let at = folder.to_str().unwrap();
    assert_eq!(world.refused(&["sessions", "new", "--repo", at]), "repository_invalid");
    assert_eq!(git(&repo, &["branch", "--format=%(refname:short)"]), "main");
}

fn appears(path: &Path) {
    let until = Instant::now() + TEST_TIMEOUT;
    while !path.exists() {
        assert!(Instant::now() < until, "{} never appears", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The server is killed while git makes the worktree, and git lives on. The next server, asked the
/// same under the same key, waits for that git, and has one session with one whole worktree.
#[test]
fn a_server_killed_while_it_prepares_leaves_a_plan_that_the_next_one_carries_out() {
    let mut world = World::new();
    let repo = repository(&world);
    let bin = world.folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let (begun, go) = (bin.join("begun"), bin.join("go"));
    let path = std::env::var("PATH").unwrap();
    let script = format!(
        "#!/bin/sh\nfor word; do if [ \"$word\" = add ]; then touch '{}'\n\
         while [ ! -e '{}' ]; do sleep 0.02; done; fi; done\n\
         PATH='{path}'\nexport PATH\nexec git \"$@\"\n",
        begun.display(),
        go.display(),
    );
    fs::write(bin.join("git"), script).unwrap();
    fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    world.kill();
    world.start_with(|command| {
        command.env("PATH", format!("{}:{path}", bin.display()));
    });
    let body = json!({"repo": repo, "start": false}).to_string();
    let ask = |world: &World| {
        let bearer = format!("Bearer {}", world.token);
        let headers = [("authorization", bearer.as_str()), ("idempotency-key", "one")];
        world.send("POST", "/api/v1/sessions", Some(body.as_bytes()), &headers)
    };
    let unanswered = ask(&world);
    appears(&begun);
    world.kill();
    drop(unanswered);

    world.start();
    let listed = world.get("/api/v1/sessions").good();
    let session = listed["sessions"][0]["session_id"].as_str().unwrap().to_owned();
    world.adopt(&session);
    assert_eq!(kinds(&world, &session), ["workspace.planned"]);
    assert_eq!(world.status(&session)["worktree_path"], Value::Null);
    let asked_again = ask(&world);
    fs::write(&go, "").unwrap();
    let made = answer(asked_again, "the same again").good();
    assert_eq!(made["session_id"], session.as_str());
    assert_eq!(kinds(&world, &session), ["workspace.planned", "workspace.prepared"]);
    let status = world.status(&session);
    let path = PathBuf::from(status["worktree_path"].as_str().unwrap());
    assert_eq!(git(&path, &["status", "--porcelain"]), "");
    assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "one\n");
    assert_eq!(git(&repo, &["worktree", "list"]).lines().count(), 2);
    start(&world, &session).good();
}
