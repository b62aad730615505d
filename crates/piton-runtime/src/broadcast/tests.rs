use std::time::Duration;

use piton_core::event::{MessageUser, RecordRedacted, SessionCreated, SessionLeased};
use piton_core::id::BootId;
use piton_core::{Event, NewRecord, Timestamp};
use piton_store::{
    BootLocks, Durability, Position, SqliteStore, Store, WritableRecords, Writer, sqlite,
};

use super::kept::{BEHIND_BYTES_MAX, KEPT_RECORDS_MAX};
use super::*;
use crate::interfaces::SystemClock;

fn of(event: impl Into<Event>) -> NewRecord {
    NewRecord::new(Timestamp::from_millis(1), event)
}

fn said(text: &str) -> NewRecord {
    let message_id = "msg_1".parse().unwrap();
    let event = MessageUser { message_id, run_id: None };
    NewRecord::with_content(Timestamp::from_millis(1), event, "content", text.into())
}

fn redacted(target_seq: Seq) -> NewRecord {
    of(RecordRedacted { target_seq, reason: None })
}

fn chunk(first: Seq, records: &[NewRecord]) -> Chunk<()> {
    let state = State { last_seq: first - 1, ..State::default() };
    let records = (first..).zip(records).map(|(seq, record)| record.at(seq)).collect();
    Chunk::new(&mut StatusCursor::new(state), records).unwrap()
}

fn trail(at: Seq) -> StatusCursor {
    StatusCursor::new(State { last_seq: at, ..State::default() })
}

fn given(kept: &Kept<()>, after: Seq) -> Option<Vec<Seq>> {
    let seqs =
        |part: &ChunkPart<()>| part.entries().iter().map(|e| e.record.seq).collect::<Vec<_>>();
    kept.after(after).map(|parts| parts.iter().flat_map(seqs).collect())
}

#[test]
fn what_is_kept_is_bounded_and_contiguous() {
    let mut kept: Kept<()> = Kept::new(10);
    let last = 10 + 2 * KEPT_RECORDS_MAX as u64;
    for seq in (11..=last).step_by(2) {
        kept.push(chunk(seq, &[said("x"), said("y")]));
    }
    let before = last - KEPT_RECORDS_MAX as u64;
    assert_eq!(given(&kept, before - 1), None, "read from the log");
    assert_eq!(given(&kept, before).unwrap()[0], before + 1);
    assert_eq!(given(&kept, last - 1), Some(vec![last]), "the end of a batch");
    assert!(kept.after(last - 1).unwrap()[0].rendered().is_none());
    assert_eq!(given(&kept, last), Some(Vec::new()));
    let large = Arc::new(chunk(1, &[said(&"x".repeat(BEHIND_BYTES_MAX / 2))]));
    for after in 0..3 {
        let ticket = kept.ticket();
        kept.keep_behind(ticket, after, &large, trail(after + 1));
    }
    let found: Vec<Seq> = (0..3).filter(|after| kept.behind(*after).is_some()).collect();
    assert_eq!(found, [2], "what the furthest behind have had goes first");
}

#[test]
fn what_was_redacted_is_not_shown_from_memory() {
    let mut kept: Kept<()> = Kept::new(0);
    kept.push(chunk(1, &[said("secret"), said("other")]));
    let (ticket, read) = (kept.ticket(), Arc::new(chunk(1, &[said("secret")])));
    kept.keep_behind(ticket, 0, &read, trail(1));
    kept.push(chunk(3, &[redacted(1)]));
    assert!(kept.after(0).is_none() && kept.behind(0).is_none(), "read from the log");
    kept.push(chunk(4, &[said("after")]));
    assert_eq!(given(&kept, 3), Some(vec![4]));
    // In one batch with its target: the log has a tombstone, the batch has the text.
    kept.push(chunk(5, &[said("secret"), redacted(5)]));
    assert!(kept.after(4).is_none(), "read from the log");
    assert_eq!(given(&kept, 6), Some(Vec::new()));
}

/// A reader has read the text, the redaction comes, and only then is kept what was read.
#[test]
fn text_read_before_a_redaction_is_not_kept_after_it() {
    let mut kept: Kept<()> = Kept::new(2);
    let ticket = kept.ticket();
    let read = Arc::new(chunk(1, &[said("secret")]));
    kept.push(chunk(3, &[redacted(1)]));
    kept.keep_behind(ticket, 0, &read, trail(1));
    assert!(kept.behind(0).is_none());
    let ticket = kept.ticket();
    kept.keep_behind(ticket, 0, &read, trail(1));
    assert!(kept.behind(0).is_some(), "what was read after it is kept");
}

/// A store with one session, and its writer.
struct World {
    _folder: tempfile::TempDir,
    store: Arc<dyn Store>,
    writer: Writer,
    session: SessionId,
    last: Seq,
    broadcasts: Broadcasts<()>,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(sqlite::Options::new(folder.path())).unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let boot: BootId = "boot_1".parse().unwrap();
        let writer = Writer::new(Arc::clone(&store), boot.clone(), Arc::default());
        let liveness = Arc::new(BootLocks::new(folder.path()));
        let view = View::new(Arc::clone(&store), liveness, Arc::new(SystemClock));
        let session: SessionId = "s".parse().unwrap();
        let broadcasts = Broadcasts::new(view);
        let mut world = Self { _folder: folder, store, writer, session, last: 0, broadcasts };
        let created = SessionCreated {
            session_id: world.session.clone(),
            title: None,
            task_id: Some("task_1".parse().unwrap()),
            working_dir: None,
            provider: None,
            agent_profile_id: None,
        };
        world.append(vec![of(created), of(SessionLeased { boot_id: boot, epoch: 1 })]).await;
        world
    }

    async fn append(&mut self, records: Vec<NewRecord>) {
        let at = Position { expected: self.last, epoch: 1 };
        self.last += records.len() as Seq;
        let records = WritableRecords::verbatim(records);
        let appended =
            self.writer.append(&self.session, at, records, Durability::Synced, None).await;
        assert_eq!(appended.unwrap().last, self.last);
    }

    async fn reader(&self, after: Seq) -> Reader<()> {
        self.broadcasts.read(&self.session, after).await.unwrap().0.unwrap()
    }
}

/// Reads up to a record; the texts by seq.
async fn texts(reader: &mut Reader<()>, last: Seq) -> Vec<(Seq, Option<String>)> {
    let mut texts = Vec::new();
    while reader.position() < last {
        let next = tokio::time::timeout(Duration::from_secs(30), reader.next());
        for part in next.await.unwrap().unwrap() {
            texts.extend(part.entries().iter().map(|entry| {
                let text = entry.record.content_field("content");
                (entry.record.seq, text.and_then(|text| text.as_str().map(str::to_owned)))
            }));
        }
    }
    texts
}

fn seqs(texts: &[(Seq, Option<String>)]) -> Vec<Seq> {
    texts.iter().map(|(seq, _)| *seq).collect()
}

#[tokio::test]
async fn readers_from_anywhere_get_every_record_once_and_no_redacted_text() {
    let mut world = World::new().await;
    for n in 0..600 {
        world.append(vec![said(&format!("secret {n}")), said("more")]).await;
    }
    let last = world.last;
    let mut live = world.reader(last).await;
    let mut all = world.reader(0).await;
    let mut middle = world.reader(555).await;
    assert_eq!(seqs(&texts(&mut all, last).await), (1..=last).collect::<Vec<_>>());
    assert_eq!(seqs(&texts(&mut middle, last).await), (556..=last).collect::<Vec<_>>());
    assert_eq!(live.owner().task, Some("task_1".parse().unwrap()));
    world.append(vec![said("live"), said("end")]).await;
    for reader in [&mut live, &mut all, &mut middle] {
        assert_eq!(seqs(&texts(reader, last + 2).await), [last + 1, last + 2]);
    }
    world.append(vec![redacted(3), redacted(last + 1)]).await;
    texts(&mut live, last + 4).await;
    let mut late = world.reader(0).await;
    let seen = texts(&mut late, last + 4).await;
    assert_eq!(seen[2], (3, None));
    assert_eq!(seen[usize::try_from(last).unwrap()], (last + 1, None));
    assert!(seen.iter().any(|(_, text)| text.as_deref() == Some("secret 1")));
    let beyond = world.broadcasts.read(&world.session, last + 5).await.unwrap();
    assert!(beyond.0.is_none() && beyond.1 == last + 4);
}

#[tokio::test]
async fn the_end_of_a_log_ends_its_readers() {
    let mut world = World::new().await;
    let mut reader = world.reader(world.last).await;
    world.append(vec![said("x")]).await;
    texts(&mut reader, world.last).await;
    let session_id = world.session.clone();
    let note = piton_core::event::SessionDeleted {
        session_id,
        last_seq: world.last,
        chain: None,
        reason: None,
    };
    let at = Position { expected: world.last, epoch: 1 };
    world.writer.delete(&world.session, at, of(note)).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(30), reader.next()).await.unwrap();
    assert_eq!(ended.unwrap_err().code(), piton_core::Code::SessionNotFound);
    let gone = world.broadcasts.read(&world.session, 0).await.unwrap_err();
    assert_eq!(gone.code(), piton_core::Code::SessionNotFound);
    drop(world.store);
}

/// One log is followed once, however many readers it has, and not at all without one.
#[tokio::test]
async fn readers_share_one_broadcast() {
    let world = World::new().await;
    let (one, other) = (world.reader(0).await, world.reader(1).await);
    assert!(Arc::ptr_eq(&one.broadcast, &other.broadcast));
    let follower = Arc::downgrade(&one.broadcast);
    drop((one, other));
    assert!(follower.upgrade().is_none());
}
