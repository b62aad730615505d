//! The real store under strace: what is acknowledged was flushed before; what cannot be flushed or
//! written is not acknowledged. Only order is looked at, so a slow machine changes nothing.
#![expect(clippy::unwrap_used, reason = "these are tests")]

use std::path::Path;
use std::process::{Command, ExitStatus};

use piton_store::{SqliteStore, sqlite};
use piton_testkit::crash::audit::Audit;
use piton_testkit::crash::parent::{Life, Writer};
use piton_testkit::crash::trace::{self, Call, Shown, WAL};
use piton_testkit::crash::writer::EXIT_POISONED;

const WRITER: &str = env!("CARGO_BIN_EXE_piton-crash-writer");
const DATABASE: &str = "store.sqlite3";
/// Longer than any page.
const STRING_MAX: &str = "200000";
const CALLS: &str = "trace=pwrite64,pwritev,write,writev,fdatasync,fsync,openat";

/// Whether processes can be traced here. If not, one line says what is left out and why; it goes
/// past the test's captured output.
fn can_trace(what: &str) -> bool {
    let tried = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
    let why = match tried {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().replace('\n', " "),
        Err(e) => format!("strace does not start ({e}); scripts/setup installs it"),
    };
    piton_testkit::tools::left_out(what, &why);
    false
}

/// A traced life of a writer, on a folder of its own.
struct Traced {
    folder: tempfile::TempDir,
    status: ExitStatus,
    life: Life,
    trace: String,
}

impl Traced {
    fn run(strace: &[&str], writer: &[&str]) -> Self {
        Self::run_on(None, strace, writer)
    }

    /// Sees and changes only what concerns one file of the data folder, if one is given.
    fn run_on(only: Option<&str>, strace: &[&str], writer: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().canonicalize().unwrap().join("data");
        let file = folder.path().join("trace");
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-s", STRING_MAX, "-e", CALLS]).args(strace);
        if let Some(only) = only {
            command.arg("-P").arg(data.join(only));
        }
        command.arg("-o").arg(&file).arg(WRITER).arg(&data).args(writer);
        let (status, life) = Writer::start(command).wait();
        let trace = String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned();
        Self { folder, status, life, trace }
    }

    fn calls(&self) -> Vec<Call> {
        trace::parse(&self.trace)
    }

    fn check(&self) -> Shown {
        trace::check(&self.calls()).unwrap_or_else(|wrong| panic!("{}", wrong.join("\n")))
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    fn refused_only_as(&self, code: &str) {
        let others: Vec<_> = self.life.refused.iter().filter(|(_, c)| c != code).collect();
        assert!(others.is_empty(), "{others:?}");
    }
}

/// Every acknowledged record is there when the store is opened again, and all of it verifies.
fn assert_kept(data: &Path, life: &Life) {
    let mut audit = Audit::default();
    audit.expect(life);
    let store = SqliteStore::open(sqlite::Options::new(data)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        audit.look(&store).await;
        audit.verify(&store).await;
    });
    assert_eq!(audit.found.acks, life.acks.len() as u64);
}

/// The trace as it would be if the log were not flushed.
fn unflushed(trace: &str) -> String {
    let is_flush = |line: &&str| line.contains("sync(") && line.contains(WAL);
    trace.lines().filter(|line| !is_flush(line)).collect::<Vec<_>>().join("\n")
}

/// Wants to show: one append at a time, each is flushed before it is acknowledged, with one flush
/// of its own.
#[test]
fn a_flush_before_every_acknowledgement() {
    if !can_trace("flush before acknowledgement, one append at a time") {
        return;
    }
    let traced = Traced::run(&[], &["--serial", "--steps", "80", "--seed", "1"]);
    assert!(traced.status.success(), "{:?} {}", traced.status, traced.life.errors);
    let (shown, life) = (traced.check(), &traced.life);
    println!("{shown:?}, {} batches, {} flushes", life.batches, life.flushes);
    assert_eq!(shown.acks, life.acks.len());
    assert!(shown.acks > 100, "{shown:?}");
    assert_eq!(life.batches, life.acks.len() as u64);
    assert_eq!(life.flushes, life.batches, "one flush per append");
    // Beside them: the log's own head, and the copying at the end.
    let others = shown.flushes as u64 - life.flushes;
    assert!(others <= 4, "{others} flushes that belong to no append");
    assert_kept(&traced.data(), life);

    // The check rejects the same trace without its flushes.
    let wrong = trace::check(&trace::parse(&unflushed(&traced.trace))).unwrap_err();
    assert_eq!(wrong.len(), shown.acks, "the check would not see a missing flush");
}

/// Wants to show: with many sessions at once, synced and buffered, appends share flushes, and
/// still none is acknowledged before its own.
#[test]
fn a_shared_flush_before_every_acknowledgement() {
    if !can_trace("flush before acknowledgement, many sessions at once") {
        return;
    }
    let traced = Traced::run(&[], &["--sessions", "8", "--steps", "150", "--seed", "2"]);
    assert!(traced.status.success(), "{:?} {}", traced.status, traced.life.errors);
    let (shown, life) = (traced.check(), &traced.life);
    println!("{shown:?}, {} batches, {} flushes", life.batches, life.flushes);
    assert_eq!(shown.acks, life.acks.len());
    assert!(shown.acks > 200, "{shown:?}");
    assert!(life.flushes < life.batches, "no flush was shared");
    assert_kept(&traced.data(), life);
    let wrong = trace::check(&trace::parse(&unflushed(&traced.trace))).unwrap_err();
    assert_eq!(wrong.len(), shown.acks, "the check would not see a missing flush");
}

fn assert_poisoned(traced: &Traced) {
    assert_eq!(traced.status.code(), Some(EXIT_POISONED.into()), "{}", traced.life.errors);
    traced.refused_only_as("store_poisoned");
    assert!(traced.life.refused.len() >= 5, "{:?}", traced.life.refused);
    let shown = traced.check();
    assert!(shown.flushes_failed > 0, "no flush failed: {shown:?}");
    assert_eq!(shown.acks_after_failure, 0, "acknowledged after a failed flush");
    assert!(shown.acks > 10, "{shown:?}");
    assert_kept(&traced.data(), &traced.life);
}

/// Wants to show: after a flush that failed nothing is acknowledged any more, though later flushes
/// would work, and whatever was acknowledged before is there after a restart.
#[test]
fn a_failed_flush_ends_all_writing() {
    if !can_trace("failed flush") {
        return;
    }
    for arguments in [&["--serial"][..], &["--sessions", "4"][..]] {
        // Fails once: a second flush would succeed.
        let inject = "inject=fsync,fdatasync:error=EIO:when=40";
        let writer = [arguments, &["--steps", "500", "--seed", "3"][..]].concat();
        assert_poisoned(&Traced::run(&["-e", inject], &writer));
    }
    let inject = "inject=fsync,fdatasync:error=EIO:when=40+";
    assert_poisoned(&Traced::run(&["-e", inject], &["--serial", "--steps", "500"]));
}

/// Wants to show: the same when it is a checkpoint's flush that fails, after everybody was
/// answered: what it was to make durable may be gone, and a later flush would not tell.
#[test]
fn a_failed_flush_of_a_checkpoint_ends_all_writing() {
    if !can_trace("failed flush of a checkpoint") {
        return;
    }
    // Only checkpoints flush the database itself.
    let inject = "inject=fsync,fdatasync:error=EIO:when=1";
    let writer = ["--serial", "--steps", "500", "--seed", "4", "--bytes", "300000"];
    let traced = Traced::run_on(Some(DATABASE), &["-e", inject], &writer);
    assert_eq!(traced.trace.matches("(INJECTED)").count(), 1, "no checkpoint");
    assert_eq!(traced.status.code(), Some(EXIT_POISONED.into()), "{}", traced.life.errors);
    traced.refused_only_as("store_poisoned");
    let before = traced.life.acks_before_refusal;
    assert_eq!(before, Some(traced.life.acks.len()), "acknowledged after a refusal");
    assert!(before > Some(10), "{before:?}");
    assert_kept(&traced.data(), &traced.life);
}

/// Wants to show: a full disk is said to be one, loses nothing, and is over when there is space.
#[test]
fn a_full_disk_loses_nothing() {
    if !can_trace("full disk") {
        return;
    }
    for arguments in [&["--serial"][..], &["--sessions", "4"][..]] {
        let writer = [arguments, &["--steps", "120", "--seed", "5"][..]].concat();
        // The database is written by pwrite64; `write` is how the writer speaks to its parent.
        let inject = "inject=pwrite64:error=ENOSPC:when=200..215";
        let traced = Traced::run(&["-e", inject], &writer);
        assert!(traced.status.success(), "{:?} {}", traced.status, traced.life.errors);
        traced.refused_only_as("disk_full");
        let before = traced.life.acks_before_refusal.expect("the disk was never full");
        assert!(before > 10 && traced.life.acks.len() > before + 10, "{before}");
        assert_eq!(traced.check().acks, traced.life.acks.len());
        assert_kept(&traced.data(), &traced.life);
    }
}
