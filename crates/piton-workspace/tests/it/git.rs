//! git in real repositories.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use piton_core::Code;
use piton_workspace::git::Runner;
use piton_workspace::{BranchReport, DIFF_BYTES_MAX, GitDiff, GitStatus, Staged, Workspace};
use tempfile::TempDir;

struct Repository {
    workspace: Workspace,
    folder: TempDir,
    private: TempDir,
}

fn folder() -> Repository {
    let (folder, private) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let workspace = Workspace::open(folder.path(), Runner::new(private.path())).unwrap();
    Repository { workspace, folder, private }
}

fn repository() -> Repository {
    let repository = folder();
    repository.git(&["init", "-q", "-b", "main"]);
    repository
}

impl Repository {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn git(&self, args: &[&str]) -> String {
        let mut command = Command::new("git");
        command.current_dir(self.folder.path()).env("GIT_CONFIG_GLOBAL", "/dev/null");
        command.args(["-c", "user.name=A B", "-c", "user.email=a@example.org"]);
        let output = command.args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    fn commit(&self, subject: &str) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", subject]);
        self.git(&["rev-parse", "HEAD"])
    }

    async fn changed(&self) -> Vec<(String, String)> {
        let status = self.workspace.git_status().await.unwrap();
        status.changed.into_iter().map(|change| (change.status, change.path)).collect()
    }
}

fn pair(status: &str, path: &str) -> (String, String) {
    (status.to_owned(), path.to_owned())
}

#[tokio::test]
async fn where_there_is_no_repository_all_is_empty() {
    let plain = folder();
    assert_eq!(plain.workspace.git_status().await.unwrap(), GitStatus::default());
    assert_eq!(plain.workspace.git_diff(Staged::No, None).await.unwrap(), GitDiff::default());
    assert_eq!(plain.workspace.git_log(5).await.unwrap(), []);
}

#[tokio::test]
async fn a_branch_without_a_commit() {
    let unborn = repository();
    fs::write(unborn.path("new"), "text\n").unwrap();
    let status = unborn.workspace.git_status().await.unwrap();
    assert!(status.repository);
    assert_eq!((status.branch.as_deref(), status.head), (Some("main"), None));
    assert_eq!(unborn.changed().await, [pair("??", "new")]);
    assert_eq!(unborn.workspace.git_log(5).await.unwrap(), []);
    unborn.git(&["add", "new"]);
    let diff = unborn.workspace.git_diff(Staged::Yes, None).await.unwrap();
    assert!(diff.diff.contains("+text\n"), "{diff:?}");
}

#[tokio::test]
async fn renames_and_names_that_are_hard_to_print() {
    let repository = repository();
    fs::write(repository.path("old name"), "a\nb\nc\nd\n").unwrap();
    fs::write(repository.path("kept"), "1\n").unwrap();
    let head = repository.commit("first");
    repository.git(&["mv", "old name", "new\nname"]);
    fs::write(repository.path("kept"), "2\n").unwrap();
    fs::create_dir(repository.path("fö")).unwrap();
    fs::write(repository.path("fö/a \"b\""), "").unwrap();
    let expected = [pair(".M", "kept"), pair("R.", "new\nname"), pair("??", "fö/a \"b\"")];
    assert_eq!(repository.changed().await, expected);
    let status = repository.workspace.git_status().await.unwrap();
    assert_eq!((status.head, status.truncated), (Some(head), false));
    let diff = repository.workspace.git_diff(Staged::No, None).await.unwrap().diff;
    assert!(diff.contains("-1\n+2\n") && !diff.contains("rename"), "{diff}");
    let diff = repository.workspace.git_diff(Staged::Yes, None).await.unwrap().diff;
    assert!(diff.contains("rename from old name"), "{diff}");
    let of = |path: &'static str| repository.workspace.git_diff(Staged::No, Some(Path::new(path)));
    assert!(of("kept").await.unwrap().diff.contains("+2"));
    assert_eq!(of("k*").await.unwrap(), GitDiff::default());
    assert_eq!(of("../kept").await.unwrap_err().code(), Code::PathOutside);
}

#[tokio::test]
async fn a_head_without_a_branch_and_the_log() {
    let repository = repository();
    fs::write(repository.path("file"), "1").unwrap();
    let first = repository.commit("first");
    let second = repository.commit("second: ä");
    repository.git(&["checkout", "-q", "--detach", &first]);
    let status = repository.workspace.git_status().await.unwrap();
    assert_eq!((status.branch, status.head), (None, Some(first.clone())));
    repository.git(&["checkout", "-q", "main"]);
    let log = repository.workspace.git_log(10).await.unwrap();
    let ids: Vec<_> = log.iter().map(|commit| commit.id.clone()).collect();
    assert_eq!(ids, [second, first]);
    assert_eq!((log[0].author.as_str(), log[0].subject.as_str()), ("A B", "second: ä"));
    assert!(log[0].at.contains('T'));
    assert_eq!(repository.workspace.git_log(1).await.unwrap().len(), 1);
}

/// Wants to show: a branch is compared with its base; what is not there is not reported.
#[tokio::test]
async fn a_branch_is_compared_with_its_base() {
    let outside = folder().workspace.branch_report(Some("main")).await.unwrap();
    assert_eq!(outside, BranchReport::default());
    let repository = repository();
    let report = async |base| repository.workspace.branch_report(base).await.unwrap();
    let empty = BranchReport { branch: Some("main".to_owned()), ..BranchReport::default() };
    assert_eq!(report(Some("main")).await, empty, "no commit");
    let first = repository.commit("first");
    repository.git(&["checkout", "-q", "-b", "work"]);
    repository.commit("second");
    let head = repository.commit("third");
    repository.git(&["branch", "-f", "main", &first]);
    repository.git(&["checkout", "-q", "main"]);
    repository.commit("elsewhere");
    repository.git(&["checkout", "-q", "work"]);
    repository.git(&["remote", "add", "origin", "/nowhere"]);
    fs::create_dir(repository.path("new")).unwrap();
    fs::write(repository.path("new/a"), "1\n").unwrap();
    fs::write(repository.path("a b"), "1\n").unwrap();
    let whole = BranchReport {
        branch: Some("work".to_owned()),
        head: Some(head),
        base: Some("main".to_owned()),
        merge_base: Some(first),
        ahead: 2,
        behind: 1,
        uncommitted: 2,
        remotes: vec!["origin".to_owned()],
    };
    assert_eq!(report(Some("main")).await, whole);
    let alone = BranchReport { base: None, merge_base: None, ahead: 0, behind: 0, ..whole };
    assert_eq!(report(Some("gone")).await, alone);
    repository.git(&["checkout", "-q", "--detach"]);
    assert_eq!(report(None).await, BranchReport { branch: None, ..alone });
}

#[tokio::test]
async fn a_large_diff_is_cut_at_a_line() {
    let repository = repository();
    let lines = |text: &str| format!("{text}\n").repeat(DIFF_BYTES_MAX / 8);
    fs::write(repository.path("file"), lines("old old")).unwrap();
    repository.commit("first");
    fs::write(repository.path("file"), lines("new new")).unwrap();
    let diff = repository.workspace.git_diff(Staged::No, None).await.unwrap();
    assert!(diff.truncated);
    assert!(diff.diff.len() <= DIFF_BYTES_MAX && diff.diff.ends_with('\n'));
}

/// A workspace below the repository's top sees its own files, by its own paths.
#[tokio::test]
async fn a_workspace_within_a_repository() {
    let repository = repository();
    fs::create_dir(repository.path("sub")).unwrap();
    fs::write(repository.path("sub/file"), "1\n").unwrap();
    fs::write(repository.path("top"), "1\n").unwrap();
    repository.commit("first");
    fs::write(repository.path("sub/file"), "2\n").unwrap();
    fs::write(repository.path("top"), "2\n").unwrap();
    let runner = Runner::new(repository.private.path());
    let workspace = Workspace::open(&repository.path("sub"), runner).unwrap();
    let status = workspace.git_status().await.unwrap();
    let paths: Vec<_> = status.changed.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(paths, ["file"]);
    let diff = workspace.git_diff(Staged::No, None).await.unwrap().diff;
    assert!(diff.contains("a/file") && !diff.contains("top"), "{diff}");
}

impl Repository {
    /// A program that leaves a mark when it is run, and passes on what it is given.
    fn trap(&self, name: &str) -> String {
        self.trap_that(name, "cat")
    }

    fn trap_that(&self, name: &str, does: &str) -> String {
        let folder = self.path(".git/traps");
        fs::create_dir_all(&folder).unwrap();
        let trap = folder.join(name);
        fs::write(&trap, format!("#!/bin/sh\n: > \"$0.ran\"\n{does}\n")).unwrap();
        fs::set_permissions(&trap, fs::Permissions::from_mode(0o755)).unwrap();
        trap.to_str().unwrap().to_owned()
    }

    /// The traps that were run, in order of their names.
    fn ran(&self) -> Vec<String> {
        let names = fs::read_dir(self.path(".git/traps")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut ran: Vec<_> =
            names.filter_map(|name| Some(name.strip_suffix(".ran")?.to_owned())).collect();
        ran.sort();
        ran
    }

    /// Runs git without any of the precautions.
    fn careless(&self, args: &[&str]) {
        let mut command = Command::new("git");
        command.current_dir(self.folder.path()).env("GIT_CONFIG_GLOBAL", "/dev/null");
        command.stdin(std::process::Stdio::null()).args(args).output().unwrap();
    }
}

/// Wants to show: what a repository's configuration and attributes name is not run, though git
/// would. Each program leaves a mark of its own.
#[tokio::test]
async fn no_program_of_the_repository_is_run() {
    let repository = repository();
    let inner = repository.path("sub");
    let inner = inner.to_str().unwrap();
    repository.git(&["init", "-q", "-b", "main", inner]);
    fs::write(repository.path("sub/file"), "1\n").unwrap();
    let in_sub = |args: &[&str]| repository.git(&[&["-C", inner], args].concat());
    in_sub(&["add", "file"]);
    in_sub(&["commit", "-q", "-m", "inner"]);
    for name in ["file", "cleaned", "processed", "named"] {
        fs::write(repository.path(name), "1\n").unwrap();
    }
    let attributes =
        "file diff=evil\ncleaned filter=evil\nprocessed filter=long\nnamed filter=a=b.c\n";
    fs::write(repository.path(".gitattributes"), attributes).unwrap();
    repository.commit("first");
    // One that is said to be signed.
    let commit = repository.git(&["cat-file", "commit", "HEAD"]);
    let signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n";
    let text = repository.path(".git/signed");
    fs::write(&text, commit.replacen("\n\n", &format!("\n{signature}"), 1)).unwrap();
    let signed = repository.git(&["hash-object", "-t", "commit", "-w", text.to_str().unwrap()]);
    repository.git(&["update-ref", "refs/heads/main", &signed]);

    for (key, trap) in [
        ("core.fsmonitor", "monitor"),
        ("diff.external", "external"),
        ("diff.evil.command", "command"),
        ("diff.evil.textconv", "textconv"),
        ("filter.evil.clean", "clean"),
        ("filter.evil.smudge", "smudge"),
        ("filter.long.process", "process"),
        ("filter.a=b.c.clean", "named"),
        ("gpg.program", "gpg"),
        ("core.pager", "pager"),
        ("credential.helper", "credential"),
        ("core.sshCommand", "ssh"),
    ] {
        repository.git(&["config", key, &repository.trap(trap)]);
    }
    repository.git(&["config", "filter.evil.required", "true"]);
    repository.git(&["config", "log.showSignature", "true"]);
    repository.git(&["config", "diff.submodule", "diff"]);
    in_sub(&["config", "core.fsmonitor", &repository.trap("inner-monitor")]);
    in_sub(&["config", "diff.external", &repository.trap("inner-external")]);
    let hook = repository.trap("hook");
    fs::copy(hook, repository.path(".git/hooks/post-index-change")).unwrap();
    for name in ["file", "cleaned", "processed", "named", "sub/file"] {
        fs::write(repository.path(name), "2\n").unwrap();
    }

    let changed = ["cleaned", "file", "named", "processed"].map(|name| pair(".M", name));
    assert_eq!(repository.changed().await, changed);
    let diff = repository.workspace.git_diff(Staged::No, None).await.unwrap();
    assert_eq!(diff.diff.matches("-1\n+2\n").count(), 4, "{diff:?}");
    repository.workspace.git_diff(Staged::Yes, None).await.unwrap();
    assert_eq!(repository.workspace.git_log(3).await.unwrap().len(), 1);
    let report = repository.workspace.branch_report(Some("main")).await.unwrap();
    assert_eq!((report.uncommitted, report.base.as_deref()), (4, Some("main")));
    assert_eq!(repository.ran(), [""; 0]);
    assert!(!repository.path(".git/hooks/post-index-change.ran").exists());

    // The traps are good.
    repository.careless(&["status"]);
    repository.careless(&["-c", "core.fsmonitor=false", "diff"]);
    repository.careless(&["diff", "--no-ext-diff"]);
    repository.careless(&["log"]);
    let good =
        ["clean", "command", "gpg", "inner-monitor", "monitor", "named", "process", "textconv"];
    let ran = repository.ran();
    let unset: Vec<_> = good.iter().filter(|name| !ran.contains(&(**name).to_owned())).collect();
    assert!(unset.is_empty(), "never run: {unset:?}; run: {ran:?}");
}

/// What a partial clone does not have is not fetched, by whatever program.
#[tokio::test]
async fn nothing_is_fetched() {
    let repository = repository();
    fs::write(repository.path("file"), "1\n").unwrap();
    repository.commit("first");
    let blob = repository.git(&["rev-parse", "HEAD:file"]);
    let (folder, name) = blob.split_at(2);
    fs::remove_file(repository.path(&format!(".git/objects/{folder}/{name}"))).unwrap();
    let url = repository.path("elsewhere");
    repository.git(&["init", "-q", "--bare", url.to_str().unwrap()]);
    for (key, value) in [
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", url.to_str().unwrap()),
        ("remote.origin.uploadpack", &repository.trap_that("uploadpack", "exit 1")),
        ("protocol.file.allow", "always"),
    ] {
        repository.git(&["config", key, value]);
    }
    fs::write(repository.path("file"), "2\n").unwrap();
    let error = repository.workspace.git_diff(Staged::No, None).await.unwrap_err();
    assert_eq!(error.code(), Code::GitFailed);
    assert_eq!(repository.ran(), [""; 0]);
    repository.careless(&["diff"]);
    assert_eq!(repository.ran(), ["uploadpack"], "the trap is good");
}

/// A `git` that has something done to the repository right before each command that touches files
/// of a work tree: a process that can write to a repository can do that at any moment.
fn late(folder: &Path, does: &str) -> PathBuf {
    let program = folder.join("late-git");
    let script = format!(
        "#!/bin/sh\nfor arg; do case \"$arg\" in\n\
         status|diff|add|reset|checkout|read-tree) (unset GIT_DIR GIT_COMMON_DIR\n{does}\n) ;;\n\
         esac; done\nexec git \"$@\"\n"
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// Wants to show: a filter that is configured after the runner has looked at the configuration, and
/// before git runs, is not run. In the repository's own file, and in the file of the work tree.
#[tokio::test]
async fn a_filter_that_appears_later_is_not_run() {
    for (file, extra) in [("config", ""), ("config.worktree", "extensions.worktreeConfig")] {
        let repository = repository();
        fs::write(repository.path(".gitattributes"), "file filter=late\n").unwrap();
        fs::write(repository.path("file"), "1\n").unwrap();
        repository.commit("first");
        fs::write(repository.path("file"), "2\n").unwrap();
        let (trap, config) = (repository.trap("late"), repository.path(".git").join(file));
        let mut does = format!("git config -f {} filter.late.clean {trap}", config.display());
        if !extra.is_empty() {
            let main = repository.path(".git/config");
            does = format!("{does}\ngit config -f {} {extra} true", main.display());
        }
        let program = late(repository.private.path(), &does);
        let runner = Runner::new(repository.private.path()).with_program(program);
        let workspace = Workspace::open(repository.folder.path(), runner).unwrap();
        let status = workspace.git_status().await.unwrap();
        assert_eq!(status.changed.len(), 1, "{status:?}");
        let diff = workspace.git_diff(Staged::No, None).await.unwrap().diff;
        assert!(diff.contains("-1\n+2\n"), "{diff}");
        assert_eq!(workspace.branch_report(None).await.unwrap().uncommitted, 1);
        assert_eq!(repository.ran(), [""; 0], "{file}");
        // The filter is configured now, and the trap is good.
        repository.careless(&["diff"]);
        assert_eq!(repository.ran(), ["late"], "{file}");
    }
}

/// Wants to show: what is configured and names no program holds: line endings, ignored files, modes.
#[tokio::test]
async fn settings_that_run_nothing_are_kept() {
    let repository = repository();
    for (name, text) in [("crlf", "a\r\n"), ("script", "x\n"), ("ignored", "x\n")] {
        fs::write(repository.path(name), text).unwrap();
    }
    let excludes = repository.private.path().join("excludes");
    fs::write(&excludes, "ignored\n").unwrap();
    repository.git(&["config", "core.autocrlf", "true"]);
    repository.git(&["config", "core.fileMode", "false"]);
    repository.git(&["config", "core.excludesFile", excludes.to_str().unwrap()]);
    repository.commit("first");
    // Changed times: git has to compare contents.
    fs::write(repository.path("crlf"), "a\r\n").unwrap();
    fs::set_permissions(repository.path("script"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(repository.changed().await, []);
}

/// Wants to show: other formats of a repository, work trees of it, and parts of it.
#[tokio::test]
async fn sha256_linked_and_sparse_work_trees() {
    let repository = folder();
    repository.git(&["init", "-q", "-b", "main", "--object-format=sha256"]);
    for name in ["in/file", "out/file"] {
        fs::create_dir_all(repository.path(name).parent().unwrap()).unwrap();
        fs::write(repository.path(name), "1\n").unwrap();
    }
    let head = repository.commit("first");
    let linked = repository.private.path().join("linked");
    repository.git(&["worktree", "add", "-q", "-b", "other", linked.to_str().unwrap()]);
    repository.git(&["-C", linked.to_str().unwrap(), "sparse-checkout", "set", "in"]);
    assert!(!linked.join("out").exists());
    fs::write(linked.join("in/file"), "2\n").unwrap();
    let runner = Runner::new(repository.private.path());
    let workspace = Workspace::open(&linked, runner).unwrap();
    let status = workspace.git_status().await.unwrap();
    assert_eq!((status.branch.as_deref(), status.head), (Some("other"), Some(head)));
    let changed: Vec<_> = status.changed.into_iter().map(|c| (c.status, c.path)).collect();
    assert_eq!(changed, [pair(".M", "in/file")]);
    assert_eq!(repository.changed().await, []);
    let left: Vec<_> = fs::read_dir(repository.private.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "private configurations are removed: {left:?}");
}
