//! Real processes, killed at random moments with SIGKILL. The seed is printed; `PITON_KILL_SEED`
//! gives it again. A seed repeats what the test decides, not what the kernel does with it.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "these are tests")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use piton_core::id::BootId;
use piton_runtime::{Ids, Options, Service, SystemClock};
use piton_store::{BootLocks, Liveness, OsEntropy};
use piton_testkit::crash::audit::Audit;
use piton_testkit::crash::parent::{Life, Writer, spin};
use piton_testkit::crash::{Ack, Kind, Line};

const WRITER: &str = env!("CARGO_BIN_EXE_piton-crash-writer");

fn seed() -> u64 {
    let given = std::env::var("PITON_KILL_SEED").ok().and_then(|seed| seed.parse().ok());
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = given.unwrap_or_else(|| u64::from(since.subsec_nanos()));
    println!("PITON_KILL_SEED={seed}");
    seed
}

fn writer(data: &Path, arguments: &[&str]) -> Writer {
    Writer::on(WRITER, data.as_os_str(), arguments)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap()
}

fn is_alive(data: &Path, boot: &str) -> bool {
    BootLocks::new(data).is_alive(&boot.parse::<BootId>().unwrap())
}

/// One folder, its lives and their books.
struct World {
    kind: Kind,
    folder: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    random: fastrand::Rng,
    audit: Audit,
    /// Everything that was ever acknowledged, for the last look.
    acks: Vec<Ack>,
    /// Kills before the recovery was over.
    early: usize,
    /// Those among them that found some sessions recovered and some not.
    amid: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        Self::on(Kind::Sqlite, seed)
    }

    fn on(kind: Kind, seed: u64) -> Self {
        Self {
            kind,
            folder: tempfile::tempdir().unwrap(),
            runtime: runtime(),
            random: fastrand::Rng::with_seed(seed),
            audit: Audit::default(),
            acks: Vec::new(),
            early: 0,
            amid: 0,
        }
    }

    fn data(&self) -> &Path {
        self.folder.path()
    }

    fn start(&mut self, prefix: &str) -> Writer {
        let seed = self.random.u32(..).to_string();
        let store = self.kind.as_str();
        let arguments = ["--store", store, "--prefix", prefix, "--sessions", "4", "--seed", &seed];
        writer(self.data(), &arguments)
    }

    fn spin(&mut self, max: Duration) {
        let micros = u64::try_from(max.as_micros()).unwrap();
        spin(Duration::from_micros(self.random.u64(0..=micros)));
    }

    /// Lets a writer run to a random moment.
    fn await_some_moment(&mut self, writer: &mut Writer) {
        match self.random.u32(0..10) {
            // While it starts, wherever that is.
            0 => self.spin(Duration::from_millis(30)),
            // While it recovers.
            1 => {
                assert!(writer.read_until(|line| matches!(line, Line::Boot(_))));
                self.spin(Duration::from_millis(8));
            }
            2 => {
                let wanted = |line: &Line| matches!(line, Line::Recovered(..) | Line::Ready);
                assert!(writer.read_until(wanted));
            }
            // While it works.
            _ => {
                let acks = self.random.usize(0..120);
                assert!(writer.read_acks(acks), "the writer ended after {:?}", writer.life());
                self.spin(Duration::from_millis(2));
            }
        }
    }

    fn buried(&mut self, life: &Life) {
        // A race that another boot has won is not a failure.
        let fine = |(_, outcome): &(String, String)| {
            ["Settled", "Owned", "Unchanged"].contains(&outcome.as_str())
        };
        assert!(life.recovered.iter().all(fine), "{:?}", life.recovered);
        if let Some(boot) = &life.boot {
            assert!(!is_alive(self.data(), boot), "a killed boot is taken for alive");
            let lock = self.data().join(format!("boots/{boot}.lock"));
            assert!(lock.exists(), "its lock file went with it: nothing was shown");
        }
        self.early += usize::from(!life.ready);
        self.amid += usize::from(!life.ready && !life.recovered.is_empty());
        self.audit.expect(life);
        self.acks.extend(life.acks.iter().cloned());
    }

    /// One life, and what is there after it. Half of the time the audit is skipped, so that the
    /// next writer is the first to open what the killed one left.
    fn cycle(&mut self, verify: bool) {
        let mut writer = self.start("s");
        self.await_some_moment(&mut writer);
        if let Some(boot) = &writer.life().boot {
            assert!(is_alive(self.data(), boot), "a living boot is taken for dead");
        }
        let life = writer.kill();
        assert_eq!(life.refused, [], "{}", life.errors);
        self.buried(&life);
        if verify || self.random.bool() {
            self.look(&life, verify);
        }
    }

    fn look(&mut self, life: &Life, verify: bool) {
        let Some(store) = self.kind.open_to_read(self.folder.path()) else {
            assert!(self.acks.is_empty(), "the store is gone");
            return;
        };
        self.runtime.block_on(async {
            self.audit.look(&*store).await;
            if let Some(boot) = life.boot.clone().filter(|_| life.ready) {
                self.audit.only_open_of(&[boot]);
            }
            if verify {
                self.audit.verify(&*store).await;
            }
        });
    }

    /// A last boot recovers and does nothing else; then everything is looked at from the start.
    fn close(self) -> Audit {
        let mut all = Audit::default();
        all.expect(&Life { acks: self.acks, ..Life::default() });
        let data = self.folder.path();
        self.runtime.block_on(async {
            let ids = Ids::new(Arc::new(SystemClock), Arc::new(OsEntropy));
            let guard = BootLocks::new(data).hold(ids.boot().unwrap()).unwrap();
            let store = self.kind.open(data).unwrap();
            let locks = Arc::new(BootLocks::new(data));
            let options =
                Options::new(guard.boot().clone(), Arc::clone(&store), locks, Arc::new(OsEntropy));
            let service = Service::start(options, |_| {}).await.unwrap();
            service.shut_down().await;
            all.look(&*store).await;
            all.only_open_of(&[]);
            all.verify(&*store).await;
            store.rebuild_caches().await.unwrap();
            all.verify(&*store).await;
        });
        all
    }
}

fn kill_again_and_again(kind: Kind, cycles: usize, verify_every: usize) {
    let mut world = World::on(kind, seed());
    let started = Instant::now();
    for cycle in 1..=cycles {
        world.cycle(cycle % verify_every == 0);
        if cycle % 100 == 0 {
            println!("{cycle} kills, {:?}, {:.0?}", world.audit.found, started.elapsed());
        }
    }
    // How many die before they work is chance: a few lives are followed by more, until enough did.
    let mut more = 0;
    while world.early <= cycles / 20 && more < cycles * 10 {
        world.cycle(false);
        more += 1;
    }
    let (early, amid) = (world.early, world.amid);
    let found = world.close().found;
    println!("{cycles} kills, {early} before the work began, {amid} amid recovery, {found:?}");
    println!("{:.1?}", started.elapsed());
    // That all of it holds means something only if there was something.
    let kills = cycles as u64;
    assert!(found.acks > kills * 10, "{found:?}");
    assert!(found.interruptions > kills, "{found:?}");
    assert!(found.large > kills / 2, "{found:?}");
    assert!(early > cycles / 20, "{early}");
}

/// Wants to show: whatever was acknowledged before a SIGKILL is there after it, once and in order;
/// whatever run was killed is interrupted once; the next life continues.
#[test]
fn fifty_kills() {
    kill_again_and_again(Kind::Sqlite, 50, 10);
}

/// Wants to show: the same for the store of plain files.
#[test]
fn twenty_kills_of_plain_files() {
    kill_again_and_again(Kind::Files, 20, 5);
}

/// Wants to show: a second process does not get a folder of plain files while the first lives, and
/// does when it was killed.
#[test]
fn plain_files_belong_to_one_process() {
    let world = World::on(Kind::Files, seed());
    let serving = || {
        let mut one = writer(world.data(), &["--serve", "--store", "files"]);
        one.until_ready();
        one
    };
    let mut first = serving();
    assert!(matches!(first.ask("prompt s"), Line::Ack(_)));
    let (status, life) = writer(world.data(), &["--serve", "--store", "files"]).wait();
    assert!(!status.success());
    assert!(life.errors.contains("store_in_use"), "{}", life.errors);
    assert!(matches!(first.ask("say s"), Line::Ack(_)), "the holder was disturbed");
    drop(first.kill());
    assert!(matches!(serving().ask("say s"), Line::Ack(_)));
}

/// Wants to show: the same, for rarer moments. `make soak` runs it.
#[test]
#[ignore = "takes minutes; make soak runs it"]
fn soak_thousand_kills() {
    kill_again_and_again(Kind::Sqlite, 1_000, 100);
    kill_again_and_again(Kind::Files, 1_000, 100);
}

/// Wants to show: two processes on one folder lose nothing of each other's when both are killed,
/// and each life recovers what is dead and leaves alone what is alive.
#[test]
fn kill_between_two_processes() {
    let mut world = World::new(seed());
    for cycle in 0..6 {
        // Both recover what the last two left, at the same time; their own sessions are new, since
        // the process that recovers a session owns it.
        let mut one = world.start(&format!("a{cycle}"));
        let mut two = world.start(&format!("b{cycle}"));
        let (first, second) = (world.random.usize(0..60), world.random.usize(1..60));
        assert!(one.read_acks(first), "{:?}", one.kill());
        assert!(two.read_acks(second), "{:?}", two.kill());
        world.spin(Duration::from_millis(2));
        let one = one.kill();
        // The other one writes on beside the corpse.
        assert!(two.read_acks(10), "{:?}", two.kill());
        let two = two.kill();
        for life in [one, two] {
            assert_eq!(life.refused, [], "{}", life.errors);
            world.buried(&life);
        }
        world.look(&Life::default(), false);
    }
    let found = world.close().found;
    println!("{found:?}");
    assert!(found.acks > 100 && found.interruptions > 12, "{found:?}");
}

fn code(line: &Line) -> &str {
    match line {
        Line::Refused(_, code) => code,
        other => panic!("not refused: {other:?}"),
    }
}

fn serving(data: &Path) -> Writer {
    let mut writer = writer(data, &["--serve"]);
    writer.until_ready();
    writer
}

fn boot(writer: &Writer) -> String {
    writer.life().boot.clone().unwrap()
}

/// Wants to show: a session has one writer. While its owner lives no other process gets it; when
/// the owner is dead the next one does; the store refuses a former owner, even one that believes to
/// own it.
#[test]
fn one_writer_across_processes() {
    let mut world = World::new(seed());
    let (mut a, mut b) = (serving(world.data()), serving(world.data()));
    assert!(matches!(a.ask("prompt s"), Line::Ack(_)));
    assert_eq!(code(&b.ask("say s")), "session_owned");
    assert_eq!(b.ask("recover"), Line::Recovered("s".into(), "Owned".into()));
    assert_eq!(b.read(), Some(Line::Ready));
    assert!(matches!(a.ask("say s"), Line::Ack(_)), "the owner was disturbed");

    let owner = boot(&a);
    let a = a.kill();
    world.buried(&a);
    assert!(matches!(b.ask("say s"), Line::Ack(_)), "a dead boot's session was not taken over");
    // What the dead one would present.
    assert_eq!(code(&b.ask(&format!("append s {owner} 1"))), "epoch_stale");
    assert_eq!(code(&b.ask(&format!("append s {owner} 2"))), "session_owned");

    // A boot that lives but lost its lock file, and does not know it.
    assert!(matches!(b.ask("prompt s"), Line::Ack(_)));
    std::fs::remove_file(world.data().join(format!("boots/{}.lock", boot(&b)))).unwrap();
    let mut c = serving(world.data());
    assert!(matches!(c.ask("say s"), Line::Ack(_)), "a boot without a lock is dead");
    assert_eq!(code(&b.ask("say s")), "session_owned");
    assert_eq!(code(&b.ask(&format!("append s {} 2", boot(&b)))), "epoch_stale");
    assert!(matches!(c.ask("say s"), Line::Ack(_)), "the owner was disturbed");

    let (b, c) = (b.kill(), c.kill());
    world.audit.expect(&b);
    world.acks.extend(b.acks);
    world.buried(&c);
    world.look(&c, true);
    // The run of the first writer, and the one that the second had when it lost its lock.
    assert_eq!(world.close().found.interruptions, 2);
}

/// Wants to show: a token's first result is given again to every client that repeats the same
/// answer, in any process, with the session's owner alive or dead; another answer is refused
/// everywhere.
#[test]
fn a_token_is_replayed_across_processes() {
    let mut world = World::new(seed());
    let mut a = serving(world.data());
    assert!(matches!(a.ask("prompt s"), Line::Ack(_)));
    let Line::Asked(_, token) = a.ask("ask s") else { panic!("no question") };
    let (yes, no) = (format!("answer {token} yes"), format!("answer {token} no"));
    let Line::Answered { session, result_seq, replayed: false } = a.ask(&yes) else {
        panic!("the first answer was not taken")
    };
    let again = Line::Answered { session, result_seq, replayed: true };
    assert_eq!(a.ask(&yes), again);
    assert_eq!(code(&a.ask(&no)), "resume_token_consumed");

    // The owner lives: a replay needs no lease, and takes none.
    let mut b = serving(world.data());
    assert_eq!(b.ask(&yes), again);
    assert_eq!(code(&b.ask(&no)), "resume_token_consumed");
    assert!(matches!(a.ask("say s"), Line::Ack(_)), "the replay took the lease");

    let a = a.kill();
    world.buried(&a);
    assert_eq!(b.ask(&yes), again);
    assert_eq!(code(&b.ask(&no)), "resume_token_consumed");
    let mut c = serving(world.data());
    assert_eq!(c.ask(&yes), again);
    assert_eq!(code(&c.ask(&no)), "resume_token_consumed");
    let wrong = format!("answer {} yes", token.replace(|c: char| c.is_ascii_digit(), "0"));
    assert!(["resume_token_not_found", "resume_token_mismatch"].contains(&code(&c.ask(&wrong))));
    drop((b, c));
    assert_eq!(world.close().found.interruptions, 1);
}
