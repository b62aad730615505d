//! Readers beside a writer, which is another process.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::*;
use crate::conformance::{piece, run, said};
use crate::contract::{Problem, Select};

/// The tests below run this one in a process of its own: it writes until it is killed, and says
/// what was acknowledged.
#[test]
fn writer_process() {
    let Some(data) = std::env::var_os("PITON_TEST_FILES_DATA") else { return };
    run(async {
        let store: Arc<dyn Store> = Arc::new(FilesStore::open(Options::new(&data)).unwrap());
        let mut one = Driver::create(&store, "busy").await;
        let mut count = 0;
        loop {
            count += 1;
            // Long lines, so that readers meet them half written.
            let records = vec![piece(count, "x"), said("y".repeat(12_000)), said("z")];
            let appended = one.append(records).await.unwrap();
            if count % 20 == 0 {
                let target_seq = appended.last - 1;
                let redacted = event::RecordRedacted { target_seq, reason: None };
                one.append(vec![of(0, redacted)]).await.unwrap();
            }
            if count % 10 == 0 {
                let name = format!("short_{count}");
                let short = Driver::create(&store, &name).await;
                if count % 30 == 0 {
                    let (session_id, chain, reason) = (short.session.clone(), None, None);
                    let note = event::SessionDeleted { session_id, last_seq: 2, chain, reason };
                    let guard = Guard::Lease { boot: short.boot.clone(), epoch: 1 };
                    let notes = crate::WritableRecords::verbatim(vec![of(0, note)]);
                    store.delete(&short.session, 2, guard, notes).await.unwrap();
                }
            }
            println!("acknowledged {}", appended.last);
        }
    });
}

/// The writer, ended with the test.
struct Writer {
    child: Child,
    lines: Box<dyn Iterator<Item = std::io::Result<String>>>,
}

impl Writer {
    fn start(place: &InFolder) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "files::tests::beside::writer_process", "--nocapture"])
            .env("PITON_TEST_FILES_DATA", place.folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Box::new(BufReader::new(child.stdout.take().unwrap()).lines());
        Self { child, lines }
    }

    /// Waits until the writer has acknowledged a record.
    fn wait_for(&mut self, wanted: Seq) -> Seq {
        loop {
            let line = self.lines.next().unwrap().unwrap();
            let seq = line.rsplit("acknowledged ").next().and_then(|seq| seq.parse().ok());
            if let Some(seq) = seq.filter(|seq| *seq >= wanted) {
                return seq;
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn reader(place: &InFolder) -> Arc<dyn Store> {
    let options = Options { access: Access::ReadOnly, ..place.options() };
    Arc::new(FilesStore::open(options).unwrap())
}

/// Wants to show: readers that come and go beside a busy writer see everything that was
/// acknowledged, and take nothing that is being written for damage.
#[test]
fn readers_work_beside_a_writer() {
    let place = InFolder::new();
    let mut writer = Writer::start(&place);
    let mut seen = writer.wait_for(10);
    let busy = session("busy");
    let query = || Query { task_id: None, select: Select::All, after: None, limit: 1_000 };
    for round in 0..60 {
        run(async {
            let store = reader(&place);
            let records = store.read(&busy, 0, 10_000, Detail::Full).await.unwrap();
            let last = records.last().unwrap().seq;
            assert!(last >= seen, "round {round}: {last} of {seen}");
            assert!(records.iter().map(|record| record.seq).eq(1..=last));
            let listed = store.list(query()).await.unwrap().rows;
            assert!(listed.iter().any(|row| row.session == busy));
            assert_eq!(store.verify_store().await.unwrap(), []);
            for id in store.logs(None, 1_000).await.unwrap() {
                match store.verify(&id).await {
                    Ok(found) => assert_eq!(found.problem, None, "round {round}: {id}"),
                    // Deleted since it was named.
                    Err(Error::SessionNotFound { .. }) => {}
                    Err(e) => panic!("round {round}: {id}: {e}"),
                }
            }
        });
        seen = writer.wait_for(seen + 5);
    }
}

/// Wants to show: a reader that stays open follows what the writer appends.
#[test]
fn a_reader_follows_a_writer() {
    let place = InFolder::new();
    let mut writer = Writer::start(&place);
    writer.wait_for(3);
    run(async {
        let store = reader(&place);
        let busy = session("busy");
        let mut after = 0;
        while after < 200 {
            let seen = writer.wait_for(after + 1);
            let head = store.head(&busy).await.unwrap().unwrap();
            assert!(head.last_seq >= seen, "{} of {seen}", head.last_seq);
            let records = store.read(&busy, after, 10_000, Detail::Headers).await.unwrap();
            after = records.last().unwrap().seq;
            let loaded = store.load(&busy).await.unwrap().unwrap();
            assert!(loaded.state.last_seq >= after);
        }
    });
}

/// Wants to show: a reader does not report what a killed writer left half written as damage, but
/// does report a cut.
#[test]
fn a_reader_tells_a_torn_end_from_a_cut() {
    let place = InFolder::new();
    let mut writer = Writer::start(&place);
    writer.wait_for(30);
    drop(writer);
    drop(place.store());
    let path = place.file("busy.messages.jsonl");
    let whole = std::fs::read(&path).unwrap();
    let verify = || {
        let mut found = None;
        run(async { found = Some(reader(&place).verify(&session("busy")).await.unwrap()) });
        found.unwrap()
    };
    assert_eq!(verify().problem, None);
    let mut torn = whole.clone();
    torn.extend_from_slice(b"{\"seq\":9999,\"ts\":\"2026");
    std::fs::write(&path, &torn).unwrap();
    assert_eq!(verify().problem, None);
    let mut lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    lines.truncate(lines.len() - 3);
    std::fs::write(&path, lines.concat()).unwrap();
    let problem = verify().problem;
    assert!(matches!(problem, Some(Problem::CutBehindAnchor { .. })), "{problem:?}");
}
