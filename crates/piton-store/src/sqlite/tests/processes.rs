//! Several processes on one store, and processes that end without warning.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::*;
use crate::conformance::{leased, said};

#[test]
fn two_handles_see_and_respect_each_other() {
    let folder = InFolder::new();
    run(async {
        let mine: Arc<dyn Store> = Arc::new(folder.store());
        let theirs: Arc<dyn Store> = Arc::new(folder.store());
        let mut one = Driver::create(&mine, "s").await;
        let mut other = Driver::create(&theirs, "t").await;
        for _ in 0..20 {
            one.append(vec![said("mine")]).await.unwrap();
            other.append(vec![said("theirs")]).await.unwrap();
        }
        assert_eq!(texts(&*theirs, &one).await.len(), 20);
        assert_eq!(texts(&*mine, &other).await.len(), 20);
        // A living owner is respected across handles, a dead one is not.
        let mut rival = one.rival("boot_2");
        rival.store = Some(theirs.clone());
        let take = vec![leased(&rival.boot, 2)];
        let refused = theirs.append(rival.clone().batch(take.clone())).await;
        assert!(matches!(refused, Err(Error::SessionOwned { .. })));
        folder.kill(&one.boot);
        rival.append(take).await.unwrap();
        // The old writer has the session's end cached, but its append still fails.
        let mut stale = one.clone();
        assert!(matches!(stale.append(vec![said("x")]).await, Err(Error::EpochStale { .. })));
        one.state.last_seq = rival.state.last_seq;
        assert!(matches!(one.append(vec![said("x")]).await, Err(Error::EpochStale { .. })));
        assert_eq!(mine.verify(&one.session).await.unwrap().problem, None);
    });
}

/// A tail is woken by another process's commit, sooner than its own polling would.
#[test]
fn a_tail_follows_another_process() {
    let folder = InFolder::new();
    run(async {
        let mine: Arc<dyn Store> = Arc::new(folder.store());
        let theirs: Arc<dyn Store> = Arc::new(folder.store());
        let mut other = Driver::create(&theirs, "t").await;
        let mut hints = mine.subscribe(&other.session);
        for _ in 0..3 {
            let (hint, appended) = tokio::join!(
                tokio::time::timeout(Duration::from_secs(20), hints.next()),
                other.append(vec![said("x")])
            );
            appended.unwrap();
            assert!(matches!(hint, Ok(crate::Hint::Look)), "{hint:?}");
        }
    });
}

/// The files as they are while the store is open, copied: what a power cut would leave.
#[test]
fn what_was_acknowledged_is_in_the_files() {
    let folder = InFolder::new();
    let copy = InFolder::new();
    run(async {
        let store: Arc<dyn Store> = Arc::new(folder.store());
        let mut one = Driver::create(&store, "s").await;
        for _ in 0..10 {
            one.append(vec![said("x")]).await.unwrap();
        }
        for name in [schema::FILE, "store.sqlite3-wal", crate::KEY_FILE] {
            fs::copy(folder.folder.path().join(name), copy.folder.path().join(name)).unwrap();
        }
        let found = copy.store();
        assert_eq!(texts(&found, &one).await.len(), 10);
        assert_eq!(found.verify(&one.session).await.unwrap().problem, None);
    });
}

/// The test below runs this one in a process of its own: it writes until it is killed, and says
/// what was acknowledged.
#[test]
fn writer_process() {
    let Some(data) = std::env::var_os("PITON_TEST_STORE_DATA") else { return };
    run(async {
        let options = Options::new(&data);
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(options).unwrap());
        let mut one = Driver::create(&store, "s").await;
        loop {
            let appended = one.append(vec![said("a"), said("b"), said("c")]).await.unwrap();
            println!("acknowledged {}", appended.last);
        }
    });
}

#[test]
fn a_killed_writer_loses_nothing_that_it_acknowledged() {
    let folder = InFolder::new();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sqlite::tests::processes::writer_process", "--nocapture"])
        .env("PITON_TEST_STORE_DATA", folder.folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = 0;
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut take = |lines: &mut dyn Iterator<Item = std::io::Result<String>>| {
        let line = lines.next()?.ok()?;
        if let Some(seq) = line.rsplit("acknowledged ").next().and_then(|seq| seq.parse().ok()) {
            acknowledged = seq;
        }
        Some(acknowledged)
    };
    while take(&mut lines).unwrap() < 300 {}
    child.kill().unwrap();
    // What it had said before it died still lies in the pipe.
    while take(&mut lines).is_some() {}
    child.wait().unwrap();
    run(async {
        let store: Arc<dyn Store> = Arc::new(folder.store());
        let session = "s".parse().unwrap();
        let head = store.head(&session).await.unwrap().unwrap();
        assert!(head.last_seq >= acknowledged, "{} < {acknowledged}", head.last_seq);
        assert_eq!((head.last_seq - 2) % 3, 0, "a batch was split");
        let found = store.verify(&session).await.unwrap();
        assert_eq!((found.good_to, found.problem), (head.last_seq, None));
    });
}
