//! Pages of a conversation, from its end backwards. A page has whole messages, however many records
//! each of them has.

use piton_core::conversation::{self, Item};
use piton_core::id::{RunId, SessionId};
use piton_core::status::Name;
use piton_core::turns::is_live;
use piton_core::{Record, Seq, State};

use crate::error::Result;
use crate::view::View;

/// Records that are read at a time.
const CHUNK: u64 = 1_000;
/// Records that are read for one page, in each direction. What is longer is shown as far as it was
/// read.
const READ_MAX: u64 = 50_000;

/// A page of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversationPage {
    pub items: Vec<Item>,
    /// Older items begin before this seq; `None`: there are none.
    pub before: Option<Seq>,
}

/// Whether a page shows what rewinds left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abandoned {
    Hidden,
    /// Marked as what it is.
    Shown,
}

impl View {
    /// The last `limit` items that begin before a seq, as of a state.
    pub async fn conversation_before(
        &self,
        session: &SessionId,
        state: &State,
        before: Seq,
        limit: usize,
        abandoned: Abandoned,
    ) -> Result<ConversationPage> {
        let last = state.last_seq;
        let before = before.min(last + 1);
        let status = self.status(&state.facts).name;
        let run = state.facts.run.as_ref();
        let at_work = matches!(status, Name::Running | Name::Waiting);
        let live = run.filter(|_| at_work).map(|run| &run.run_id);
        let segments = state.turns.live_segments(last);
        let segments = segments.as_deref();
        let is_wanted = |record: &Record| match abandoned {
            Abandoned::Hidden => is_live(segments, record.seq),
            Abandoned::Shown => true,
        };
        // Backwards, until there are enough items with their beginnings.
        let mut begin = before;
        let mut records: Vec<Record> = Vec::new();
        loop {
            let from = begin.saturating_sub(CHUNK).max(1);
            let mut read = self.between(session, from, begin).await?;
            read.retain(is_wanted);
            read.append(&mut records);
            (records, begin) = (read, from);
            let items = Self::build(session, &records, live)?;
            let is_enough =
                items.len() > limit && items[items.len() - limit..].iter().all(Item::has_beginning);
            if is_enough || begin == 1 || before - begin >= READ_MAX {
                break;
            }
        }
        // Forwards, until the items that begin before it are settled.
        let mut end = before;
        let mut items = Self::build(session, &records, live)?;
        while end <= last && end - before < READ_MAX && items.iter().any(Item::is_open) {
            let to = (end + CHUNK).min(last + 1);
            let read = self.between(session, end, to).await?;
            records.extend(read.into_iter().filter(is_wanted));
            end = to;
            items = Self::build(session, &records, live)?;
            items.retain(|item| item.seq() < before);
        }
        // At the very beginning of what was read something may have begun before it.
        let over = items.len().saturating_sub(limit);
        items.drain(..over);
        conversation::mark_abandoned(&mut items, segments);
        let first = items.first().map(Item::seq);
        let before = first.filter(|first| over > 0 || (begin > 1 && *first > 1));
        Ok(ConversationPage { items, before })
    }

    /// The records from a seq to before another one.
    async fn between(&self, session: &SessionId, from: Seq, to: Seq) -> Result<Vec<Record>> {
        let count = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
        if count == 0 {
            return Ok(Vec::new());
        }
        self.records(session, from - 1, count).await
    }

    fn build(session: &SessionId, records: &[Record], live: Option<&RunId>) -> Result<Vec<Item>> {
        let seq = records.last().map_or(0, |record| record.seq);
        Ok(conversation::build(records, live).map_err(|error| {
            let source: piton_store::Cause = std::sync::Arc::new(error);
            piton_store::Error::RecordDamaged {
                session: session.clone(),
                seq,
                source: Some(source),
            }
        })?)
    }
}
