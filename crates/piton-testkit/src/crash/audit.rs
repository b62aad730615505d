//! The books: what was acknowledged to writers, and what their logs say. The checks are cheap
//! enough to run after every kill, since they continue where they stopped; a new audit checks
//! everything that was acknowledged.

use std::collections::{BTreeMap, HashMap};

use piton_core::event::Event;
use piton_core::id::{BootId, SessionId};
use piton_core::{Content, Record, Seq, chain, fold};
use piton_store::{Detail, Query, Select, Store};

use super::lines::{Ack, mark_of};
use super::parent::Life;

const READ_MAX: usize = 1_000;
const PAGE: usize = 100;

/// What is known about the logs of one data folder.
#[derive(Debug, Default)]
pub struct Audit {
    logs: BTreeMap<SessionId, Log>,
    /// Where each marked record lies.
    marks: HashMap<String, (SessionId, Seq, usize)>,
    /// Acknowledged and not yet looked for.
    acks: Vec<Ack>,
    pub found: Found,
}

/// How much was looked at: a check of nothing passes, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub records: u64,
    pub acks: u64,
    pub interruptions: u64,
    /// Contents too large to lie beside their record.
    pub large: u64,
}

#[derive(Debug)]
struct Log {
    last_seq: Seq,
    chain: chain::Hash,
    /// The highest acknowledged position so far.
    acked: Seq,
    stretch: Option<Stretch>,
    /// A run that the new writer found open and has to interrupt before anything else.
    to_interrupt: Option<String>,
}

/// A run since its last start, resume or reattach.
#[derive(Debug)]
struct Stretch {
    run: String,
    boot: String,
    interrupted: bool,
}

impl Default for Log {
    fn default() -> Self {
        let chain = chain::GENESIS;
        Self { last_seq: 0, chain, acked: 0, stretch: None, to_interrupt: None }
    }
}

impl Audit {
    pub fn expect(&mut self, life: &Life) {
        self.acks.extend(life.acks.iter().cloned());
    }

    /// Looks at what is new since the last look.
    ///
    /// # Panics
    /// If anything is not as it should be.
    pub async fn look(&mut self, store: &dyn Store) {
        for session in sessions(store).await {
            self.read_on(store, &session).await;
        }
        self.find_acknowledged();
    }

    async fn read_on(&mut self, store: &dyn Store, session: &SessionId) {
        let log = self.logs.entry(session.clone()).or_default();
        let here = store.chain_at(session, log.last_seq).await;
        assert_eq!(here.ok().flatten(), Some(log.chain), "{session}: what was read has changed");
        loop {
            let records = store.read(session, log.last_seq, READ_MAX, Detail::Full).await;
            let records = records.unwrap_or_else(|e| panic!("{session}: {e}"));
            if records.is_empty() {
                break;
            }
            for record in &records {
                assert_eq!(record.seq, log.last_seq + 1, "{session}: a gap");
                log.last_seq = record.seq;
                self.found.records += 1;
                let event = record.event().unwrap_or_else(|e| panic!("{session}: {e}"));
                self.found.interruptions += u64::from(log.follow(session, record.seq, &event));
                let Some((mark, of)) = mark_of(record, &event) else { continue };
                let bytes = content(session, record, &of);
                self.found.large += u64::from(bytes > piton_core::limits::PAYLOAD_INLINE_BYTES_MAX);
                let place = (session.clone(), record.seq, bytes);
                let twice = self.marks.insert(mark.clone(), place);
                assert_eq!(twice, None, "{mark} is there twice, again at {}", record.seq);
            }
        }
        let here = store.chain_at(session, log.last_seq).await;
        log.chain = here.ok().flatten().unwrap_or_else(|| panic!("{session}: no chain"));
    }

    fn find_acknowledged(&mut self) {
        for ack in self.acks.drain(..) {
            let place = self.marks.get(&ack.mark);
            let (session, seq, bytes) =
                place.unwrap_or_else(|| panic!("acknowledged and lost: {ack:?}"));
            assert_eq!(session.as_str(), ack.session, "{ack:?}");
            assert_eq!(*bytes, ack.bytes, "{ack:?}");
            // A prompt's message is followed by its run's start, all else comes last in its batch.
            let behind = ack.last_seq - seq;
            let last = u64::from(ack.mark.starts_with("message.user"));
            let created = ack.mark.starts_with("session.created");
            assert!(behind == last || created, "{ack:?} lies at {seq}");
            self.found.acks += 1;
            if let Some(log) = self.logs.get_mut(session) {
                assert!(ack.last_seq > log.acked, "out of order: {ack:?}, after {}", log.acked);
                log.acked = ack.last_seq;
            }
        }
    }

    /// No run is left open by any boot but these: everybody else is dead, and was recovered from.
    ///
    /// # Panics
    /// If one is.
    pub fn only_open_of(&self, boots: &[String]) {
        for (session, log) in &self.logs {
            assert_eq!(log.to_interrupt, None, "{session}: not interrupted");
            if let Some(stretch) = log.stretch.as_ref().filter(|stretch| !stretch.interrupted) {
                assert!(boots.contains(&stretch.boot), "{session}: an orphan: {stretch:?}");
            }
        }
    }

    /// Every session's chain, anchor and blobs are good, and what would be loaded is what the
    /// records fold into.
    ///
    /// # Panics
    /// If not.
    pub async fn verify(&self, store: &dyn Store) {
        for (session, log) in &self.logs {
            let verified = store.verify(session).await.unwrap_or_else(|e| panic!("{session}: {e}"));
            assert_eq!(verified.problem, None, "{session}");
            assert!(verified.good_to >= log.last_seq, "{session}: {verified:?}");
            let loaded = piton_store::load(store, session).await;
            let loaded = loaded.unwrap_or_else(|e| panic!("{session}: {e}")).state;
            let mut records = Vec::new();
            while (records.len() as u64) < loaded.last_seq {
                let after = records.len() as u64;
                let read = store.read(session, after, READ_MAX, Detail::Headers).await;
                records.extend(read.unwrap_or_else(|e| panic!("{session}: {e}")));
            }
            records.truncate(usize::try_from(loaded.last_seq).unwrap_or(usize::MAX));
            let replayed = fold::replay(&records).unwrap_or_else(|e| panic!("{session}: {e}"));
            assert!(loaded == replayed, "{session}: {loaded:?}\nis not\n{replayed:?}");
        }
    }
}

impl Log {
    /// A boot that takes over an open run interrupts it once, before anything else happens to it,
    /// and no other run is interrupted. Returns whether the event is an interruption.
    fn follow(&mut self, session: &SessionId, seq: Seq, event: &Event) -> bool {
        let at = || format!("{session} at {seq}");
        let open = self.stretch.as_ref().filter(|stretch| !stretch.interrupted);
        match event {
            Event::SessionLeased(e) => {
                assert_eq!(self.to_interrupt, None, "{}", at());
                let orphan = open.filter(|open| open.boot != e.boot_id.as_str());
                self.to_interrupt = orphan.map(|open| open.run.clone());
            }
            Event::RunStarted(e) => {
                assert_eq!(self.to_interrupt, None, "{}", at());
                assert!(open.is_none(), "{}: two runs at once", at());
                self.begin(e.run_id.as_str(), e.boot_id.as_str());
            }
            Event::RunResumed(e) => {
                assert_eq!(self.to_interrupt, None, "{}", at());
                self.begin(e.run_id.as_str(), e.boot_id.as_str());
            }
            Event::RunReattached(e) => {
                self.to_interrupt = None;
                self.begin(e.run_id.as_str(), e.boot_id.as_str());
            }
            Event::RunInterrupted(e) => {
                assert_eq!(
                    self.to_interrupt.take().as_deref(),
                    Some(e.run_id.as_str()),
                    "{}",
                    at()
                );
                let Some(stretch) = &mut self.stretch else { panic!("{}: no run", at()) };
                assert!(!stretch.interrupted, "{}: interrupted twice", at());
                assert_eq!(
                    e.boot_id.as_ref().map(BootId::as_str),
                    Some(&*stretch.boot),
                    "{}",
                    at()
                );
                stretch.interrupted = true;
                return true;
            }
            Event::RunCompleted(_) | Event::RunCancelled(_) | Event::RunFailed(_) => {
                assert_eq!(self.to_interrupt, None, "{}", at());
                self.stretch = None;
            }
            _ => {}
        }
        false
    }

    fn begin(&mut self, run: &str, boot: &str) {
        let (run, boot) = (run.to_owned(), boot.to_owned());
        self.stretch = Some(Stretch { run, boot, interrupted: false });
    }
}

/// The length of a marked record's content, which must be the one that its id stands for.
fn content(session: &SessionId, record: &Record, of: &str) -> usize {
    let Content::Json(json) = &record.content else { return 0 };
    let fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(json).unwrap_or_else(|e| panic!("{session} {}: {e}", record.seq));
    let Some(text) = fields.values().next().and_then(serde_json::Value::as_str) else { return 0 };
    // A serving writer answers with the word from its command; all other contents are made from
    // ids.
    let answered = *record.kind == *"run.resumed" && text == "yes";
    let made = answered || text == super::filler(of, text.len());
    assert!(made, "{session}: the content of {} has changed", record.seq);
    text.len()
}

async fn sessions(store: &dyn Store) -> Vec<SessionId> {
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let query = Query { task_id: None, select: Select::All, after, limit: PAGE };
        let page = store.list(query).await.unwrap_or_else(|e| panic!("list: {e}"));
        found.extend(page.rows.into_iter().map(|row| row.session));
        match page.next {
            Some(next) => after = Some(next),
            None => return found,
        }
    }
}

/// That the books are checked means something only if a wrong entry is found.
#[cfg(test)]
mod tests {
    use super::*;
    use piton_core::Reason;
    use piton_core::event::{RunInterrupted, RunStarted, SessionLeased};

    fn follow(events: &[Event]) -> (u64, Log) {
        let mut log = Log::default();
        let session: SessionId = "s".parse().unwrap();
        let found = (1..).zip(events).map(|(seq, event)| log.follow(&session, seq, event));
        (found.map(u64::from).sum(), log)
    }

    fn leased(boot: &str, epoch: u64) -> Event {
        SessionLeased { boot_id: boot.parse().unwrap(), epoch }.into()
    }

    fn started(run: &str, boot: &str) -> Event {
        let (run_id, boot_id) = (run.parse().unwrap(), boot.parse().unwrap());
        RunStarted { run_id, boot_id, message_id: None }.into()
    }

    fn interrupted(run: &str, boot: &str) -> Event {
        let (run_id, boot_id) = (run.parse().unwrap(), boot.parse().ok());
        RunInterrupted {
            run_id,
            reason: Reason::ProcessRestart,
            boot_id,
            phase: None,
            stop_reason: None,
        }
        .into()
    }

    #[test]
    fn one_interruption_of_a_dead_boots_run_is_right() {
        let (found, log) = follow(&[
            leased("a", 1),
            started("r", "a"),
            leased("b", 2),
            interrupted("r", "a"),
            started("q", "b"),
        ]);
        assert_eq!((found, log.to_interrupt), (1, None));
    }

    #[test]
    #[should_panic(expected = "s at 4")]
    fn a_second_interruption_is_found() {
        let twice = interrupted("r", "a");
        follow(&[started("r", "a"), leased("b", 2), twice.clone(), twice]);
    }

    #[test]
    #[should_panic(expected = "s at 3")]
    fn a_missing_interruption_is_found() {
        follow(&[started("r", "a"), leased("b", 2), started("q", "b")]);
    }

    #[test]
    #[should_panic(expected = "s at 3")]
    fn an_interruption_of_a_living_boots_run_is_found() {
        follow(&[leased("a", 1), started("r", "a"), interrupted("r", "a")]);
    }

    #[test]
    #[should_panic(expected = "an orphan")]
    fn an_orphan_is_found() {
        let mut audit = Audit::default();
        audit.logs.insert("s".parse().unwrap(), follow(&[started("r", "a")]).1);
        audit.only_open_of(&["b".into()]);
    }

    fn book(seq: Seq, acked: Seq) -> Audit {
        let mut audit = Audit::default();
        let session: SessionId = "s".parse().unwrap();
        audit.logs.insert(session.clone(), Log { acked, ..Log::default() });
        audit.marks.insert("m".into(), (session, seq, 5));
        let ack = Ack { session: "s".into(), last_seq: 7, bytes: 5, mark: "m".into() };
        audit.acks.push(ack);
        audit
    }

    #[test]
    fn what_is_where_it_was_acknowledged_is_right() {
        book(7, 6).find_acknowledged();
    }

    #[test]
    #[should_panic(expected = "acknowledged and lost")]
    fn a_lost_record_is_found() {
        let mut audit = book(7, 6);
        audit.marks.clear();
        audit.find_acknowledged();
    }

    #[test]
    #[should_panic(expected = "lies at 6")]
    fn a_moved_record_is_found() {
        book(6, 5).find_acknowledged();
    }

    #[test]
    #[should_panic(expected = "out of order")]
    fn an_acknowledgement_out_of_order_is_found() {
        book(7, 7).find_acknowledged();
    }
}
