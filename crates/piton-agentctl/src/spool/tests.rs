//! A spool over a real folder, and over one that breaks when told to.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use piton_agent::Journal;
use piton_core::spool::{Channel, Entry, Fact, Note, Pos};
use piton_exec::spool::{SpoolReader, format};

use super::disk::{Disk, OsDisk, SegmentFile};
use super::{ReadError, Spool};

const KEY: [u8; 32] = [3; 32];

fn text(text: &str) -> Note {
    let fact = Fact::Text {
        message_id: "msg_1".parse().unwrap(),
        channel: Channel::Answer,
        offset: 0,
        text: text.to_owned(),
    };
    Note { run_id: None, fact, raw: None, at: None }
}

fn flushed(n: usize) -> Note {
    let fact = Fact::TurnEnded { stop_reason: format!("end {n}") };
    Note { run_id: None, fact, raw: None, at: None }
}

fn on_disk(folder: &Path, after: Pos) -> Vec<Entry> {
    let reader = SpoolReader::open(folder, &KEY).unwrap();
    reader.after(after).map(Result::unwrap).collect()
}

fn positions(entries: &[Entry]) -> Vec<Pos> {
    entries.iter().map(|entry| entry.pos).collect()
}

fn segments(folder: &Path) -> usize {
    let names = std::fs::read_dir(folder).unwrap().map(|name| name.unwrap().file_name());
    names.filter(|name| name.to_str().and_then(format::segment_first).is_some()).count()
}

async fn read(spool: &Spool, after: Pos, bytes_max: usize) -> Vec<Entry> {
    let found = spool.read(after, bytes_max).await.unwrap();
    found.iter().map(|json| serde_json::from_str(json).unwrap()).collect()
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn what_is_kept_is_read_here_and_by_a_reader_from_every_cursor() {
    let temp = tempfile::tempdir().unwrap();
    let spool = Spool::create(temp.path(), &KEY, 1 << 20).unwrap();
    for n in 0..10 {
        spool.keep(vec![text("a"), flushed(n)]).await.unwrap();
    }
    for after in 0..=20 {
        let here = read(&spool, after, usize::MAX).await;
        assert_eq!(positions(&here), (after + 1..=20).collect::<Vec<_>>());
        assert_eq!(here, on_disk(temp.path(), after));
    }
    spool.close().await;
    assert!(spool.keep(vec![flushed(0)]).await.is_err());
    assert!(matches!(Spool::create(temp.path(), &KEY, 1 << 20), Err(super::Error::Exists { .. })));
}

/// Segments are followed by others, removed when all of them is acknowledged, and read from any
/// place in between, from files when memory has let go of them.
#[tokio::test]
async fn segments_rotate_are_trimmed_and_are_read_piecewise() {
    let temp = tempfile::tempdir().unwrap();
    let spool = Spool::create(temp.path(), &KEY, 64 << 20).unwrap();
    let long = "x".repeat(10_000);
    for _ in 0..300 {
        spool.keep(vec![text(&long)]).await.unwrap();
    }
    assert!(segments(temp.path()) >= 3);
    let mut after = 0;
    while after < 300 {
        let found = read(&spool, after, 50_000).await;
        assert!(!found.is_empty() && found.len() <= 5, "{}", found.len());
        assert_eq!(found[0].pos, after + 1);
        after = found.last().unwrap().pos;
    }
    spool.ack(299);
    until("trimmed", || segments(temp.path()) == 1).await;
    let health = spool.health();
    assert!(health.first > 200 && health.last == 300 && health.acked == 299, "{health:?}");
    assert!(health.bytes < 40_000, "{health:?}");
    let lost = spool.read(0, 1).await.unwrap_err();
    let first = health.first;
    assert!(matches!(lost, ReadError::Lost { first: 1, last } if last == first - 1), "{lost:?}");
    assert_eq!(positions(&read(&spool, 299, 1).await), [300]);
    // More than there is cannot be acknowledged.
    spool.ack(1_000);
    until("acked", || spool.health().acked == 300).await;
    assert_eq!(spool.health().bytes, 0);
}

/// A full spool blocks its callers, reports that, and continues when there is room; urgent entries
/// are kept all the same.
#[tokio::test]
async fn a_full_spool_waits_and_drops_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let spool = Spool::create(temp.path(), &KEY, 100_000).unwrap();
    let writer = spool.clone();
    let writing = tokio::spawn(async move {
        for n in 0..200 {
            writer.keep(vec![text(&"x".repeat(5_000)), flushed(n)]).await.unwrap();
        }
    });
    let mut seen = Vec::new();
    while seen.len() < 400 {
        let next = seen.len() as Pos;
        if next < 300 {
            until("full", || spool.health().blocked.is_some()).await;
            let health = spool.health();
            assert!(health.bytes >= 100_000 && health.bytes < 140_000, "{health:?}");
            assert!(health.blocked.unwrap().starts_with("The spool is full"));
        } else {
            until("more", || spool.health().last > next).await;
        }
        seen.extend(read(&spool, next, usize::MAX).await);
        spool.ack(seen.len() as Pos);
        until("acked", || spool.health().acked == seen.len() as Pos).await;
    }
    writing.await.unwrap();
    assert_eq!(positions(&seen), (1..=400).collect::<Vec<_>>());
    assert_eq!(spool.health().blocked, None);
}

#[tokio::test]
async fn what_must_be_said_at_once_is_kept_in_a_full_spool() {
    let temp = tempfile::tempdir().unwrap();
    let spool = Spool::create(temp.path(), &KEY, 1_000).unwrap();
    spool.keep(vec![text(&"x".repeat(5_000))]).await.unwrap();
    let (writer, mut waiting) = (spool.clone(), false);
    let held = tokio::spawn(async move { writer.keep(vec![flushed(1)]).await });
    until("full", || {
        waiting |= spool.health().blocked.is_some();
        waiting
    })
    .await;
    spool.keep_now(vec![flushed(2)]).await.unwrap();
    assert_eq!(spool.health().last, 2);
    // The end of the spool is the end of the waiting.
    spool.close().await;
    assert!(held.await.unwrap().is_err());
}

/// What breaks, and when.
#[derive(Debug, Default)]
struct Faults {
    /// Bytes that still fit; writing cuts off behind them.
    room: Mutex<Option<usize>>,
    sync_fails: AtomicUsize,
    syncs: AtomicUsize,
    /// Where a flush failed, the pages are dropped: the file loses what was not flushed.
    drops_pages: AtomicBool,
    creations_fail: AtomicUsize,
}

struct Broken {
    disk: OsDisk,
    faults: Arc<Faults>,
}

struct BrokenFile {
    file: Box<dyn SegmentFile>,
    faults: Arc<Faults>,
    synced: u64,
    length: u64,
}

fn take_one(count: &AtomicUsize) -> bool {
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
}

impl Disk for Broken {
    fn create(&mut self, name: &str) -> io::Result<Box<dyn SegmentFile>> {
        if take_one(&self.faults.creations_fail) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = self.disk.create(name)?;
        Ok(Box::new(BrokenFile { file, faults: self.faults.clone(), synced: 0, length: 0 }))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_names(&mut self) -> io::Result<()> {
        self.disk.sync_names()
    }
}

impl SegmentFile for BrokenFile {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut room = self.faults.room.lock().unwrap();
        let fits = room.map_or(bytes.len(), |room| room.min(bytes.len()));
        self.file.write_at(&bytes[..fits], offset)?;
        self.length = self.length.max(offset + fits as u64);
        if let Some(room) = &mut *room {
            *room -= fits;
        }
        if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        self.length = bytes;
        self.file.set_len(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.faults.syncs.fetch_add(1, Ordering::SeqCst);
        if take_one(&self.faults.sync_fails) {
            if self.faults.drops_pages.load(Ordering::SeqCst) {
                let lost = usize::try_from(self.length - self.synced).unwrap();
                self.file.write_at(&vec![0; lost], self.synced)?;
            }
            return Err(io::Error::other("the disk is dying"));
        }
        self.synced = self.length;
        self.file.sync()
    }
}

fn broken(folder: &Path, bytes_max: u64) -> (Spool, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    let disk = Broken { disk: OsDisk::new(folder.to_owned()), faults: faults.clone() };
    let spool = Spool::begin(Box::new(disk), folder, "spool_t".into(), &KEY, bytes_max);
    (spool.unwrap(), faults)
}

/// Wherever the disk becomes full, nothing is acknowledged and nothing is torn; with room again it
/// continues.
#[tokio::test]
async fn a_full_disk_is_waited_out() {
    for room in [0, 1, 30, 100, 250] {
        let temp = tempfile::tempdir().unwrap();
        let (spool, faults) = broken(temp.path(), 1 << 20);
        *faults.room.lock().unwrap() = Some(room);
        let writer = spool.clone();
        let writing = tokio::spawn(async move {
            for n in 0..5 {
                writer.keep(vec![flushed(n)]).await.unwrap();
            }
        });
        until("refused", || spool.health().blocked.is_some()).await;
        assert!(spool.health().blocked.unwrap().starts_with("The disk refuses"));
        let written = spool.shared.state().written;
        assert_eq!(positions(&on_disk(temp.path(), 0)), (1..=written).collect::<Vec<_>>());
        *faults.room.lock().unwrap() = None;
        writing.await.unwrap();
        assert_eq!(positions(&on_disk(temp.path(), 0)), [1, 2, 3, 4, 5], "room {room}");
        assert_eq!(spool.health().blocked, None);
    }
}

/// After a flush that failed, the pages may be gone though the next flush says “done”: the spool
/// writes everything again that was not known to be flushed, before it acknowledges it.
#[tokio::test]
async fn after_a_failed_flush_everything_unflushed_is_written_again() {
    for before in [0, 1, 3] {
        let temp = tempfile::tempdir().unwrap();
        let (spool, faults) = broken(temp.path(), 1 << 20);
        faults.drops_pages.store(true, Ordering::SeqCst);
        for n in 0..before {
            spool.keep(vec![flushed(n)]).await.unwrap();
        }
        spool.keep(vec![text("written and not flushed")]).await.unwrap();
        faults.sync_fails.store(2, Ordering::SeqCst);
        faults.creations_fail.store(1, Ordering::SeqCst);
        spool.keep(vec![text("more"), flushed(9)]).await.unwrap();
        let last = before as Pos + 3;
        assert_eq!(positions(&on_disk(temp.path(), 0)), (1..=last).collect::<Vec<_>>());
        for n in 0..3 {
            spool.keep(vec![flushed(n)]).await.unwrap();
        }
        for after in 0..=last + 3 {
            let here = read(&spool, after, usize::MAX).await;
            assert_eq!(here, on_disk(temp.path(), after), "after {after}, {before} before");
            assert_eq!(positions(&here), (after + 1..=last + 3).collect::<Vec<_>>());
        }
        spool.ack(last + 3);
        until("trimmed", || segments(temp.path()) == 1).await;
    }
}

/// Text shares the flush of what comes behind it, and what is queued shares one.
#[tokio::test]
async fn only_what_must_be_flushed_is() {
    let temp = tempfile::tempdir().unwrap();
    let (spool, faults) = broken(temp.path(), 1 << 20);
    for _ in 0..50 {
        spool.keep(vec![text("a token")]).await.unwrap();
    }
    assert_eq!(faults.syncs.load(Ordering::SeqCst), 0);
    spool.keep(vec![text("b"), flushed(1), flushed(2)]).await.unwrap();
    assert_eq!(faults.syncs.load(Ordering::SeqCst), 1);
    let keeps = (0..100).map(|n| spool.keep_now(vec![flushed(n)]));
    for kept in futures_util::future::join_all(keeps).await {
        kept.unwrap();
    }
    assert!(faults.syncs.load(Ordering::SeqCst) < 100, "{faults:?}");
    // Not for ever, though: what is not flushed is held in memory.
    let before = faults.syncs.load(Ordering::SeqCst);
    for _ in 0..100 {
        spool.keep(vec![text(&"x".repeat(10_000))]).await.unwrap();
    }
    assert!(faults.syncs.load(Ordering::SeqCst) > before);
}

/// A batch that ends in text is kept when what must be durable in it is, though a server might make
/// it so instead.
#[tokio::test]
async fn a_mixed_batch_that_ends_in_text_waits_for_its_flush() {
    let temp = tempfile::tempdir().unwrap();
    let (spool, faults) = broken(temp.path(), 1 << 20);
    let _followed = spool.followed();
    for n in 1..=3 {
        spool.keep(vec![text("before"), flushed(n), text("behind")]).await.unwrap();
        assert_eq!(faults.syncs.load(Ordering::SeqCst), n, "nobody acknowledged");
    }
}

/// Up to where everything was flushed stands beside the segments: an end that gets lost is noticed.
#[tokio::test]
async fn an_end_that_was_flushed_and_is_lost_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let spool = Spool::create(temp.path(), &KEY, 640).unwrap();
    for n in 0..3 {
        spool.keep(vec![flushed(n)]).await.unwrap();
    }
    spool.keep(vec![text("not flushed")]).await.unwrap();
    let noted = std::fs::read(temp.path().join(format::FLUSHED_FILE)).unwrap();
    let (of, pos) = format::parse_flushed(&noted).unwrap();
    assert_eq!(
        (Some(of.as_str()), pos),
        (SpoolReader::open(temp.path(), &KEY).unwrap().spool_id(), 3)
    );
    assert_eq!(positions(&on_disk(temp.path(), 0)), [1, 2, 3, 4]);
    for first in [4, 3] {
        std::fs::remove_file(temp.path().join(format::segment_name(first))).unwrap();
    }
    let reader = SpoolReader::open(temp.path(), &KEY).unwrap();
    let mut entries = reader.after(0);
    assert_eq!(
        entries.by_ref().take(2).map(|entry| entry.unwrap().pos).collect::<Vec<_>>(),
        [1, 2]
    );
    let error = entries.next().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "Entries 3 to 3 are missing");
}

/// What a server has in its log needs no flush here; one that is slow is not waited for.
#[tokio::test]
async fn an_acknowledgement_is_as_good_as_a_flush() {
    let temp = tempfile::tempdir().unwrap();
    let (spool, faults) = broken(temp.path(), 1 << 20);
    let syncs = || faults.syncs.load(Ordering::SeqCst);
    let followed = spool.followed();
    let mut last = spool.last();
    for n in 0..20 {
        let before = syncs();
        let (kept, ()) = tokio::join!(spool.keep(vec![flushed(n)]), async {
            last.wait_for(|last| *last == n as Pos + 1).await.unwrap();
            spool.ack(n as Pos + 1);
        });
        kept.unwrap();
        // A machine that is too busy may have flushed in between.
        assert!(syncs() <= before + 1);
    }
    assert!(syncs() < 20, "{faults:?}");
    let before = syncs();
    spool.keep(vec![flushed(20)]).await.unwrap();
    spool.keep(vec![flushed(21)]).await.unwrap();
    assert_eq!(syncs(), before + 2, "nobody acknowledged");
    drop(followed);
    spool.keep(vec![flushed(22)]).await.unwrap();
    assert_eq!(syncs(), before + 3, "nobody is there");
    assert_eq!(positions(&on_disk(temp.path(), 20)), [21, 22, 23]);
}

/// Who follows sees an entry before the disk has it, and reads on when the disk refuses.
#[tokio::test]
async fn what_no_file_has_yet_can_be_followed() {
    let temp = tempfile::tempdir().unwrap();
    let (spool, faults) = broken(temp.path(), 64 << 20);
    *faults.room.lock().unwrap() = Some(0);
    let long = "x".repeat(100_000);
    let keeps: Vec<_> = (0..10).map(|_| spool.send(vec![text(&long)]).unwrap()).collect();
    assert_eq!(positions(&read(&spool, 0, usize::MAX).await), (1..=10).collect::<Vec<_>>());
    assert_eq!(positions(&read(&spool, 9, usize::MAX).await), [10]);
    until("refused", || spool.health().blocked.is_some()).await;
    assert!(on_disk(temp.path(), 0).is_empty());
    *faults.room.lock().unwrap() = None;
    for kept in keeps {
        kept.await.unwrap();
    }
    assert_eq!(on_disk(temp.path(), 0), read(&spool, 0, usize::MAX).await);
    spool.close().await;
    let last = spool.health().last;
    assert!(spool.keep_now(vec![flushed(1)]).await.is_err());
    assert_eq!(spool.health().last, last, "what is not kept is not seen");
}

/// A file system that is really full, where one can be made.
#[tokio::test]
async fn a_really_full_disk_is_waited_out() {
    let temp = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=128k", "tmpfs"])
        .arg(temp.path())
        .output();
    if !mounted.is_ok_and(|done| done.status.success()) {
        println!("no file system can be mounted here");
        return;
    }
    let folder = temp.path().join("spool");
    let spool = Spool::create(&folder, &KEY, 1 << 20).unwrap();
    let ballast = temp.path().join("ballast");
    std::fs::write(&ballast, vec![0; 60_000]).unwrap();
    let writer = spool.clone();
    let writing = tokio::spawn(async move {
        for n in 0..20 {
            writer.keep(vec![text(&"x".repeat(4_000)), flushed(n)]).await.unwrap();
        }
    });
    until("refused", || spool.health().blocked.is_some()).await;
    let written = spool.shared.state().written;
    assert!(written < 40);
    assert_eq!(positions(&on_disk(&folder, 0)), (1..=written).collect::<Vec<_>>());
    std::fs::remove_file(ballast).unwrap();
    let done = tokio::time::timeout(Duration::from_secs(20), writing).await;
    let kept = on_disk(&folder, 0);
    let unmounted = std::process::Command::new("umount").arg("-l").arg(temp.path()).status();
    done.unwrap().unwrap();
    assert_eq!(positions(&kept), (1..=40).collect::<Vec<_>>());
    assert!(unmounted.unwrap().success());
}
