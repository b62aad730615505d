//! Graphs from the command line: `run`, and what `sessions` does with them. The real binary, killed and
//! interrupted for real.

use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cli::home::Home;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/graphs").join(name)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn piton(home: &Home, arguments: &[&str]) -> Output {
    home.command(arguments).output().unwrap()
}

/// What a command that succeeds prints as JSON, line by line.
fn json(home: &Home, arguments: &[&str]) -> Vec<Value> {
    let mut all: Vec<&str> = arguments.to_vec();
    all.push("--json");
    let output = piton(home, &all);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The arguments behind `Resume:  piton`.
fn resume_command(printed: &str) -> Vec<String> {
    let line = printed.lines().find_map(|line| line.strip_prefix("Resume:  piton ")).unwrap();
    line.split_whitespace().map(str::to_owned).collect()
}

fn kinds_of(home: &Home, session: &str, kind: &str) -> Vec<Value> {
    let timeline = json(home, &["sessions", "timeline", session]);
    timeline.into_iter().filter(|entry| entry["kind"] == kind).collect()
}

/// Wants to show: a missing credential fails the ninth node; the printed command, pasted, completes the
/// graph without repeating the eight before it, and the credential reaches no byte of the data folder.
#[test]
fn a_failed_run_is_resumed_by_the_command_that_it_prints() {
    let mut home = Home::new();
    let graph = example("credential.yaml");
    let failed = piton(&home, &["run", graph.to_str().unwrap()]);
    assert_eq!(failed.status.code(), Some(1), "{}", text(&failed.stderr));
    let printed = text(&failed.stdout);
    assert!(printed.contains("✓ n8") && printed.contains("✗ n9"), "{printed}");
    assert!(printed.contains("api_key is not set"), "{printed}");
    assert!(printed.contains("Failed at `n9`. Everything before it is kept."), "{printed}");
    let resume = resume_command(&printed);
    assert_eq!(resume[3..], ["--set", "api_key=@env:API_KEY"]);
    let session = resume[2].clone();

    let listed = json(&home, &["sessions", "list", "--agent", "credential", "--status", "failed"]);
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["session_id"], session.as_str());
    for other in [["--agent", "other"], ["--status", "paused"]] {
        let line = ["sessions", "list", other[0], other[1]];
        assert_eq!(json(&home, &line), Vec::<Value>::new(), "{other:?}");
    }

    let unset = home.command(&resume).output().unwrap();
    assert_eq!(unset.status.code(), Some(1));
    assert!(text(&unset.stderr).contains("$API_KEY"), "{}", text(&unset.stderr));
    home.set("API_KEY", "sk-0123456789-never-on-disk");
    let done = home.command(&resume).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert!(!text(&done.stdout).contains("n8"), "{}", text(&done.stdout));
    let started = kinds_of(&home, &session, "node.started");
    let of = |node: &str| started.iter().filter(|entry| entry["node"] == node).count();
    assert_eq!((of("n1"), of("n8"), of("n9")), (1, 1, 2));
    assert_eq!(home.files_with("sk-0123456789"), Vec::<PathBuf>::new());
    let completed = json(&home, &["sessions", "list", "--status", "completed"]);
    assert_eq!(completed.len(), 1);
}

/// Wants to show: checkpoints are listed with filters, looked into, compared, deleted, pruned and forked.
#[test]
fn checkpoints_are_listed_inspected_compared_pruned_and_forked() {
    let home = Home::new();
    let graph = example("pipeline.yaml");
    let run = json(&home, &["run", graph.to_str().unwrap(), "--input", "text=one two three"]);
    let ended = run.last().unwrap();
    assert_eq!((&ended["event"], &ended["outcome"]), (&"run_ended".into(), &"completed".into()));
    assert_eq!(ended["memory"]["result"], "Fine: 3 words");
    let session = run[0]["session_id"].as_str().unwrap();

    let all = &json(&home, &["sessions", "checkpoints", session])[0];
    let total = all["total_checkpoints"].as_u64().unwrap();
    assert_eq!(total, 6, "before and after each of three nodes");
    assert_eq!(all["latest_checkpoint_id"], all["checkpoints"][0]["checkpoint_id"]);
    let line = ["sessions", "checkpoints", session, "--type", "node_complete", "--node", "count"];
    let chosen = &json(&home, &line)[0]["checkpoints"];
    assert_eq!(chosen.as_array().unwrap().len(), 1);
    let counted = chosen[0]["checkpoint_id"].as_str().unwrap();

    let inspected = &json(&home, &["sessions", "inspect", session, counted, "--include-memory"])[0];
    assert_eq!(inspected["shared_memory"]["words"], 3);
    assert_eq!(inspected["execution_path"], serde_json::json!(["count"]));
    assert_eq!(inspected["signature"].as_str().unwrap().len(), 64);
    let without = &json(&home, &["sessions", "inspect", session, counted])[0];
    assert_eq!(without.get("shared_memory"), None);
    let end = &counted[counted.len() - 8..];
    let short = text(&piton(&home, &["sessions", "inspect", session, end]).stdout);
    assert!(short.starts_with(&format!("Checkpoint {counted}")), "{short}");

    let diff = &json(&home, &["sessions", "diff", session, end])[0];
    assert_eq!(diff["nodes_completed"], serde_json::json!(["report", "accept"]));
    assert_eq!(diff["memory"]["added"]["report"], "3 words");
    let shown = text(&piton(&home, &["sessions", "diff", session, end, "--memory"]).stdout);
    assert!(shown.contains("+ report") && !shown.contains("node"), "{shown}");

    let levels = |level: &str| json(&home, &["sessions", "log", session, "--level", level]).len();
    assert!(levels("run") < levels("node") && levels("node") < levels("detail"));

    let forked = &json(&home, &["sessions", "fork", session, "--checkpoint", end])[0];
    let fork = forked["session_id"].as_str().unwrap();
    let resumed = json(&home, &["sessions", "resume", fork, "--set", "words=200"]);
    assert_eq!(resumed.last().unwrap()["memory"]["result"], "Too long: 200 words");

    let plan = &json(&home, &["sessions", "prune", session, "--keep", "2"])[0];
    assert_eq!((plan["pruned"].as_array().unwrap().len(), &plan["done"]), (4, &false.into()));
    let pruned = &json(&home, &["sessions", "prune", session, "--keep", "2", "--yes"])[0];
    assert_eq!(pruned["pruned"], plan["pruned"]);
    let left = &json(&home, &["sessions", "checkpoints", session])[0];
    assert_eq!(left["total_checkpoints"], 2);
    let oldest = left["checkpoints"][1]["checkpoint_id"].as_str().unwrap();
    json(&home, &["sessions", "checkpoints", "delete", session, oldest]);
    let gone = piton(&home, &["sessions", "inspect", session, oldest]);
    assert!(text(&gone.stderr).contains("checkpoint_not_found"), "{}", text(&gone.stderr));
    assert!(text(&piton(&home, &["verify"]).stdout).contains("good"));
}

/// A loop whose iterations wait for a file each, so that a test decides how far it comes.
const GATED: &str = "\
piton: graph/v1
name: gated
nodes:
  work:
    loop: {max_iterations: 50}
    command: [sh, gate.sh, '{{ iteration }}']
    output: json
    writes: last
  end: {template: \"ended with {{ last }}\", writes: result}
edges: [work -> end]
";
const GATE: &str = "\
while [ ! -e gate ]; do sleep 0.02; done
echo $1 >> ran
[ $1 -ge 4 ] && done=true || done=false
echo '{\"outputs\": {\"last\": '$1'}, \"done\": '$done'}'
[ $1 -ge 1 ] && [ -e once ] && rm gate once
exit 0
";

fn gated() -> Home {
    let home = Home::new();
    home.write("gated.yaml", GATED);
    home.write("gate.sh", GATE);
    home.write("gate", "");
    home.write("once", "");
    home
}

fn spawn(home: &Home, arguments: &[&str]) -> Child {
    let mut command = home.command(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The lines that the loop wrote, once there are so many.
fn ran(home: &Home, lines: usize) -> Vec<String> {
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        let ran = std::fs::read_to_string(home.path().join("ran")).unwrap_or_default();
        if ran.lines().count() >= lines && !home.path().join("gate").exists() {
            return ran.lines().map(str::to_owned).collect();
        }
        assert!(Instant::now() < until, "the loop did not come so far: {ran:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Wants to show: Ctrl-C pauses behind the iteration that runs, and the printed command continues with the
/// next one.
#[test]
fn ctrl_c_pauses_at_the_next_safe_point() {
    let home = gated();
    let child = spawn(&home, &["run", "gated.yaml"]);
    assert_eq!(ran(&home, 2), ["0", "1"]);
    signal(&child, rustix::process::Signal::INT);
    home.write("gate", "");
    let paused = child.wait_with_output().unwrap();
    assert_eq!(paused.status.code(), Some(130), "{}", text(&paused.stderr));
    let printed = text(&paused.stdout);
    assert!(printed.contains("Paused."), "{printed}");
    let resume = resume_command(&printed);
    assert_eq!(json(&home, &["sessions", "list", "--status", "paused"]).len(), 1);
    let before = std::fs::read_to_string(home.path().join("ran")).unwrap();
    assert!(before.lines().count() < 5, "it ran to its end: {before}");
    let done = home.command(&resume).output().unwrap();
    assert!(text(&done.stdout).contains("Completed."), "{}", text(&done.stdout));
    let lines = std::fs::read_to_string(home.path().join("ran")).unwrap();
    assert_eq!(lines.lines().collect::<Vec<_>>(), ["0", "1", "2", "3", "4"], "each exactly once");
    let newest = &json(&home, &["sessions", "checkpoints", &resume[2]])[0]["checkpoints"][0];
    assert_eq!(newest["is_clean"], true, "a pause is no retry");
}

/// Wants to show: a second Ctrl-C stops at once, and what completed is kept.
#[test]
fn a_second_ctrl_c_stops_now() {
    let home = gated();
    let child = spawn(&home, &["run", "gated.yaml"]);
    ran(&home, 2);
    signal(&child, rustix::process::Signal::INT);
    // The gate is shut, so no safe point comes; the program says so before it hears the second one.
    let stopped = {
        let mut child = child;
        let mut said = String::new();
        let mut errors = std::io::BufReader::new(child.stderr.take().unwrap());
        std::io::BufRead::read_line(&mut errors, &mut said).unwrap();
        assert!(said.contains("Ctrl-C again"), "{said}");
        signal(&child, rustix::process::Signal::INT);
        child.wait_with_output().unwrap()
    };
    assert_eq!(stopped.status.code(), Some(130));
    let resume = resume_command(&text(&stopped.stdout));
    assert_eq!(json(&home, &["sessions", "list", "--status", "cancelled"]).len(), 1);
    home.write("gate", "");
    let done = home.command(&resume).output().unwrap();
    assert!(text(&done.stdout).contains("Completed."), "{}", text(&done.stderr));
}

/// Wants to show: a `run` that is killed leaves an interrupted session, which is resumed.
#[test]
fn a_killed_run_is_interrupted_and_resumed() {
    let home = gated();
    let mut child = spawn(&home, &["run", "gated.yaml"]);
    ran(&home, 2);
    child.kill().unwrap();
    child.wait().unwrap();
    let listed = json(&home, &["sessions", "list", "--status", "paused", "--agent", "gated"]);
    assert_eq!(listed.len(), 1, "paused means interrupted, too");
    let session = listed[0]["session_id"].as_str().unwrap();
    home.write("gate", "");
    let events = json(&home, &["sessions", "resume", session]);
    assert_eq!(events.last().unwrap()["memory"]["result"], "ended with 4");
    let iterations = kinds_of(&home, session, "loop.iterated");
    assert_eq!(iterations.len(), 5, "each completed iteration exists once");
}

/// Wants to show: a question outlives its process, is answered without a server, and the graph continues.
#[test]
fn a_question_is_answered_and_the_graph_continues() {
    let home = Home::new();
    let graph = example("approval.yaml");
    let waiting = piton(&home, &["run", graph.to_str().unwrap(), "--input", "topic=pitons"]);
    assert_eq!(waiting.status.code(), Some(5), "{}", text(&waiting.stderr));
    let resume = resume_command(&text(&waiting.stdout));
    let session = resume[2].as_str();
    let asked = text(&piton(&home, &["sessions", "answer", session]).stdout);
    assert!(asked.contains("Send this?") && asked.contains("2  revise"), "{asked}");
    let wrong = piton(&home, &["sessions", "answer", session, "perhaps"]);
    assert!(text(&wrong.stderr).contains("answer_invalid"), "{}", text(&wrong.stderr));
    assert!(piton(&home, &["sessions", "answer", session, "1"]).status.success());
    let done = home.command(&resume).output().unwrap();
    assert!(text(&done.stdout).contains("Sent: A text about pitons"), "{}", text(&done.stdout));
}

/// Wants to show: a graph file that changed is not taken silently; either of the two can be chosen.
#[test]
fn a_changed_graph_file_has_to_be_chosen() {
    let home = Home::new();
    let graph = |last: &str| {
        format!(
            "piton: graph/v1\nname: two\nnodes:\n  a: {{set: {{x: 1}}}}\n  b:\n    command: [sh, -c, '{last}']\nedges: [a -> b]\n"
        )
    };
    home.write("two.yaml", &graph("exit 1"));
    let failed = piton(&home, &["run", "two.yaml"]);
    let resume = resume_command(&text(&failed.stdout));
    home.write("two.yaml", &graph("exit 0"));
    let refused = home.command(&resume).output().unwrap();
    assert!(text(&refused.stderr).contains("graph_changed"), "{}", text(&refused.stderr));
    let session = resume[2].as_str();
    let again = piton(&home, &["sessions", "resume", session, "--recorded-graph"]);
    assert_eq!(again.status.code(), Some(1), "as it ran, it fails again");
    let done = piton(&home, &["sessions", "resume", session, "--graph", "two.yaml"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
}

/// Wants to show: what is wrong is said with a code, a place and a hint, and nothing is made.
#[test]
fn mistakes_are_named() {
    let home = Home::new();
    home.write(
        "bad.yaml",
        "piton: graph/v1\nname: bad\nnodes:\n  a:\n    template: x\n    wrties: y\n",
    );
    let bad = text(&piton(&home, &["run", "bad.yaml"]).stderr);
    assert!(bad.contains("--> bad.yaml:6:5") && bad.contains("did you mean `writes`?"), "{bad}");
    let graph = example("pipeline.yaml");
    let graph = graph.to_str().unwrap();
    for (arguments, expected) in [
        (vec!["run", "missing.yaml"], "graph_invalid"),
        (vec!["run", graph], "The input `text` is required"),
        (vec!["run", graph, "--input", "txet=x"], "Did you mean `text`?"),
        (vec!["run", graph, "--input", "text"], "key=value"),
        (vec!["run", graph, "--input", "text=@missing"], "cannot be read"),
        (
            vec!["run", graph, "--input", "text=x", "--checkpoint-config", "bad.yaml"],
            "config_invalid",
        ),
        (vec!["sessions", "checkpoints", "sess_none"], "session_not_found"),
    ] {
        let said = text(&piton(&home, &arguments).stderr);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

/// Wants to show: a graph that waits is listed with its question, though no process runs it.
#[test]
fn the_wait_of_a_graph_is_listed() {
    let home = Home::new();
    let graph = example("approval.yaml");
    let waiting = piton(&home, &["run", graph.to_str().unwrap(), "--input", "topic=pitons"]);
    let session = resume_command(&text(&waiting.stdout))[2].clone();
    for arguments in [vec!["sessions", "waits"], vec!["sessions", "waits", session.as_str()]] {
        let listed = json(&home, &arguments);
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(listed[0]["session_id"], session.as_str());
        assert!(listed[0]["question"].to_string().contains("Send this?"), "{listed:?}");
        let wait = listed[0]["wait_id"].as_str().unwrap();
        assert!(piton(&home, &["sessions", "waits", wait]).status.success());
    }
    let wait = json(&home, &["sessions", "waits"])[0]["wait_id"].as_str().unwrap().to_owned();
    assert!(piton(&home, &["sessions", "answer", &wait, "send"]).status.success());
}

/// Wants to show: what `--checkpoint-config` excluded stays out of the data folder in a resume that does
/// not name the file again.
#[test]
fn a_key_that_a_run_excluded_is_not_written_by_a_resume() {
    const SECRET: &str = "078-05-1120-never-on-disk";
    for store in ["sqlite", "files"] {
        let mut home = Home::new();
        home.set("PITON_STORE", store);
        home.write("options.yaml", "exclude_memory_keys: [ssn]\n");
        home.write(
            "ssn.yaml",
            "piton: graph/v1\nname: ssn\ninputs: {ssn: {type: string, required: false}}\nnodes:\n  \
             a: {template: \"{{ ssn }}\", reads: ssn, writes: ssn_length}\n  \
             b: {command: [sh, -c, \"grep -q never\"], reads: ssn}\nedges: [a -> b]\n",
        );
        let failed = piton(&home, &["run", "ssn.yaml", "--checkpoint-config", "options.yaml"]);
        assert_eq!(failed.status.code(), Some(1), "{}", text(&failed.stderr));
        let resume = resume_command(&text(&failed.stdout));
        assert!(resume.iter().any(|one| one.starts_with("ssn=")), "{resume:?}");
        let set = format!("ssn={SECRET}");
        let done = piton(&home, &["sessions", "resume", &resume[2], "--set", &set]);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        assert_eq!(home.files_with(SECRET), Vec::<PathBuf>::new(), "{store}");
    }
}

/// Wants to show: a key source that is not the store's is refused.
#[test]
fn another_key_source_is_refused() {
    let home = Home::new();
    home.write("options.yaml", "encryption_key_source: keychain\n");
    let graph = example("approval.yaml");
    let graph = graph.to_str().unwrap();
    let topic = ["--input", "topic=pitons", "--checkpoint-config", "options.yaml"];
    let refused = piton(&home, &[&["run", graph][..], &topic].concat());
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("config_conflict"), "{}", text(&refused.stderr));
}
