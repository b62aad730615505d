//! A spool's entries become records: exactly once, in order, and whatever became of their run
//! meanwhile. What comes late is kept and reopens nothing.

mod agent;
mod permission;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Context, Decision, Refusal, recovery, run, with_status};
use crate::code::{AnyCode, Code};
use crate::event::{
    AgentHistoryDiverged, AgentUpdated, EffectDone, Event, MessageCompleted, MessageDelta,
    SpoolImported, TokenRevoked, ToolIntent, ToolOutcome, ToolUpdated, WaitCancelled,
    content_fields,
};
use crate::id::{CallId, ExecutionId, MessageId, RunId, WaitId};
use crate::interruption;
use crate::limits::{CALLS_OPEN_MAX, DELTA_BYTES_MAX, PAYLOAD_BYTES_MAX, SPOOLS_KEPT};
use crate::permission::Rules;
use crate::planted::{self, Bug};
use crate::reason::Reason;
use crate::record::NewRecord;
use crate::spool::{Channel, Ended, Entry, Fact, Pos, REFUSAL};
use crate::state::{Effect, Phase, Run, State};
use crate::time::Timestamp;
use crate::token::NewToken;

/// Largest content of an imported record, in bytes; half of what a record takes, since masking may
/// make it larger.
const IMPORT_CONTENT_BYTES_MAX: usize = PAYLOAD_BYTES_MAX / 2;
/// Text of one record that came in one piece.
const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Why an agent says that it left out a message of the agent's: the message was too long to be read.
const LINE_TOO_LONG: &str = "line_too_long";
/// Names of tools, kinds of updates and the like, in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// Entries of an execution's spool, in order.
#[derive(Clone, Debug)]
pub struct Import {
    pub execution_id: ExecutionId,
    pub spool_id: String,
    pub entries: Vec<Entry>,
    /// Positions before the first entry that are gone for ever, first and last.
    pub lost: Option<(Pos, Pos)>,
    /// Why there is no more of a spool though there may have been: the rest is lost.
    pub damage: Option<String>,
    /// Texts that were masked further than agentctl did: where each ends, as the spool counts.
    pub masked: BTreeMap<Pos, u64>,
    /// A token for every question among the entries ([`asks`]).
    pub fresh: Vec<NewToken>,
    /// What is answered without asking. The caller fills it in with the rules of that moment.
    pub rules: Arc<Rules>,
}

/// How many tokens an import needs.
pub fn asks(entries: &[Entry]) -> usize {
    entries.iter().filter(|entry| matches!(entry.fact, Fact::WaitOpened { .. })).count()
}

/// What is at or below the cursor was imported: the log wins. The rest must follow without a gap.
pub(super) fn import(state: &State, cx: &Context, import: Import) -> Result<Decision, Refusal> {
    let Import { execution_id, spool_id, mut entries, mut lost, damage, masked, fresh, rules } =
        import;
    if is_forgotten(state, &execution_id)
        && let Some(last) = entries.last()
    {
        // Whether it was imported is not known any more: named as lost it is not there twice.
        lost = Some((1, last.pos));
        entries.clear();
    }
    let known = state.spools.get(&execution_id).filter(|spool| spool.spool_id == spool_id);
    let cursor = known.map_or(0, |spool| spool.pos);
    let mut last = cursor;
    // Only what was not imported can be lost.
    let gone = lost.filter(|(_, to)| *to > cursor).map(|(from, to)| (from.max(cursor + 1), to));
    if let Some((_, to)) = gone {
        last = to;
    }
    let mut importing = Importing {
        state: state.clone(),
        cx,
        execution_id: &execution_id,
        masked,
        fresh: fresh.into_iter(),
        rules: &rules,
        records: Vec::new(),
        text: None,
        suspects: BTreeSet::new(),
    };
    importing.suspects = suspects(&entries);
    for entry in entries {
        if entry.pos <= last {
            continue;
        }
        if entry.pos != last + 1 {
            return Err(Refusal::SpoolGap { last, pos: entry.pos });
        }
        last = entry.pos;
        importing.entry(entry);
    }
    importing.end_text();
    if let Some(damage) = damage {
        importing.perhaps_prompted(cx);
        importing.updated(cx, None, "spool_damaged", json!({"after": last, "message": damage}));
    } else if last == cursor {
        return Ok(Decision::already());
    }
    let interrupted = |record: &NewRecord| matches!(record.event, Event::RunInterrupted(_));
    let mut records = importing.records;
    if records.iter().any(interrupted) {
        records = with_status(state, cx, records);
    }
    let is_text = |record: &NewRecord| matches!(record.event, Event::MessageDelta(_));
    if planted::is(Bug::CursorLeftOut) && records.iter().all(is_text) && !records.is_empty() {
        return Ok(Decision::done(records));
    }
    let imported = SpoolImported { execution_id, spool_id, pos: last, lost: gone };
    records.push(NewRecord::new(cx.now, imported));
    Ok(Decision::done(records))
}

/// The turn ends after which the agent ended by a signal within a moment, and the questions that ended with
/// them unanswered: these were cut off, not withdrawn.
fn suspects(entries: &[Entry]) -> BTreeSet<Pos> {
    let mut suspects = BTreeSet::new();
    let mut exit = None;
    for entry in entries.iter().rev() {
        let is_part_of_exit = || exit.is_some_and(|(at, window)| is_soon(entry.at, at, window));
        match &entry.fact {
            fact @ Fact::AgentExited { .. } => {
                exit = interruption::exit_window_ms(fact).map(|window| (entry.at, window));
            }
            Fact::TurnStarted {} => exit = None,
            Fact::TurnEnded { .. } | Fact::WaitEnded { why: Ended::Withdrawn, .. }
                if is_part_of_exit() =>
            {
                suspects.insert(entry.pos);
            }
            _ => {}
        }
    }
    suspects
}

/// Whether an agent ended so soon after its turn that the turn's end is a part of its own.
fn is_soon(ended_at: Timestamp, exited_at: Timestamp, window_ms: i64) -> bool {
    exited_at.as_millis().saturating_sub(ended_at.as_millis()) <= window_ms
}

/// An execution of long ago, of which it is not known how far its spool was imported.
fn is_forgotten(state: &State, execution_id: &ExecutionId) -> bool {
    let current = state.facts.executor.as_ref().map(|executor| &executor.execution_id);
    state.spools.len() >= SPOOLS_KEPT
        && current != Some(execution_id)
        && !state.spools.contains_key(execution_id)
}

/// What an agent says has no limit, a record has: what is too large for one is named, not kept. A
/// spool that could not be imported would hold up its session for ever.
fn cap(record: &mut NewRecord) {
    let bytes = record.payload.as_ref().map_or(0, |payload| payload.len());
    if bytes <= IMPORT_CONTENT_BYTES_MAX {
        return;
    }
    let field = content_fields(&record.kind).first().copied().unwrap_or_default();
    record.payload = Some(json!({field: {"truncated": true, "bytes": bytes}}).to_string().into());
}

/// A name, cut where it is too long for a header.
fn short(mut name: String) -> String {
    if name.len() > NAME_BYTES_MAX {
        let mut end = NAME_BYTES_MAX;
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        name.truncate(end);
        name.push('…');
    }
    name
}

/// A newer agentctl's code, cut where it is too long for a header.
fn short_code(code: AnyCode) -> AnyCode {
    match code {
        AnyCode::Other(spelling) => AnyCode::from(&*short(spelling.into())),
        known @ AnyCode::Known(_) => known,
    }
}

struct Importing<'a> {
    /// The state as it will be when the records so far are applied.
    state: State,
    cx: &'a Context,
    execution_id: &'a ExecutionId,
    masked: BTreeMap<Pos, u64>,
    fresh: std::vec::IntoIter<NewToken>,
    rules: &'a Rules,
    records: Vec<NewRecord>,
    text: Option<Piece>,
    /// Turn ends that are a part of their agent's exit.
    suspects: BTreeSet<Pos>,
}

/// Text of one message that is put together from adjacent entries.
#[derive(Clone)]
struct Piece {
    message_id: MessageId,
    channel: Channel,
    run_id: Option<RunId>,
    offset: u64,
    text: String,
    sent: Option<u64>,
    cx: Context,
}

impl Importing<'_> {
    fn push(&mut self, mut record: NewRecord) {
        cap(&mut record);
        self.state.apply(self.state.last_seq + 1, record.ts, &record.event);
        self.records.push(record);
    }

    fn extend(&mut self, decided: Result<Decision, Refusal>) {
        // A refusal is what makes a late entry one that changes nothing.
        for record in decided.into_iter().flat_map(|decision| decision.records) {
            self.push(record);
        }
    }

    /// Whether the execution is the session's own; one that was given up or replaced speaks of
    /// an agent that is not the session's any more.
    fn is_current(&self) -> bool {
        let executor = self.state.facts.executor.as_ref();
        executor.is_some_and(|e| e.execution_id == *self.execution_id && e.may_live())
    }

    /// The run that an entry belongs to, if it is still at work.
    fn open_run(&self, run_id: Option<&RunId>) -> Option<&Run> {
        let run = self.state.facts.run.as_ref().filter(|run| run.is_unfinished());
        run.filter(|run| self.state.facts.closed.is_none() && run_id == Some(&run.run_id))
    }

    fn entry(&mut self, entry: Entry) {
        // A record says when it happened, and an agent's clock does not run ahead of ours.
        let cx = Context { now: entry.at.min(self.cx.now), ..self.cx.clone() };
        let run_id = entry.run_id;
        if let Fact::Text { message_id, channel, offset, text } = entry.fact {
            let sent = self.masked.get(&entry.pos).copied();
            let piece = Piece { message_id, channel, run_id, offset, text, sent, cx };
            return self.text(piece);
        }
        self.end_text();
        match entry.fact {
            Fact::TurnEnded { stop_reason } if self.suspects.contains(&entry.pos) => {
                self.turn_belied(&cx, run_id.as_ref(), stop_reason);
            }
            Fact::WaitEnded { .. } if self.suspects.contains(&entry.pos) => {}
            fact => self.fact(&cx, run_id, fact),
        }
    }

    fn fact(&mut self, cx: &Context, run_id: Option<RunId>, fact: Fact) {
        match fact {
            // A beginning is reported by its command, streaming by `text`.
            Fact::TurnStarted {} | Fact::Text { .. } => {}
            Fact::CommandAccepted { command_id, .. } => self.commanded(cx, &command_id),
            Fact::AgentStarting {}
            | Fact::AgentReady { .. }
            | Fact::AgentSessionAssigned { .. }
            | Fact::AgentSessionRefused { .. }
            | Fact::AgentError { .. }
            | Fact::AgentExited { .. } => self.agent(cx, fact),
            Fact::TurnEnded { stop_reason } => self.turn_ended(cx, run_id.as_ref(), stop_reason),
            Fact::TurnFailed { code, message } => {
                let Some(run) = self.open_run(run_id.as_ref()).filter(|run| run.is_open()) else {
                    return;
                };
                // As with a turn's end: what failed may be the turn that was stopped.
                if code != Code::AgentClosed && recovery::awaited(&self.state, run) {
                    return;
                }
                // There was no agent any more: interrupted, not failed.
                if code == Code::AgentClosed {
                    let records = recovery::interrupted(&self.state, cx, run, Reason::ProcessExit);
                    return self.extend(Ok(Decision::done(records)));
                }
                let run_id = run.run_id.clone();
                self.extend(run::fail(&self.state, cx, &run_id, Some(short_code(code)), message));
            }
            Fact::TextEnd { message_id, length, hash } => {
                self.push(NewRecord::new(cx.now, MessageCompleted { message_id, length, hash }));
            }
            Fact::ToolCall { call_id, name, arguments } => {
                self.call(cx, run_id, call_id, name, arguments);
            }
            Fact::ToolUpdate { call_id, update } => {
                let event = ToolUpdated { call_id, run_id };
                self.push(NewRecord::with_content(cx.now, event, "update", update));
            }
            Fact::ToolResult { call_id, status, result } => match run_id {
                Some(run_id) => {
                    let event = ToolOutcome { call_id, run_id, status };
                    self.push(NewRecord::with_content(cx.now, event, "result", result));
                }
                None => self.updated(
                    cx,
                    None,
                    "tool_result",
                    json!({"call_id": call_id, "status": status, "result": result}),
                ),
            },
            Fact::WaitOpened { wait_id, wait_kind, question } => {
                self.asked(cx, run_id, wait_id, wait_kind, question);
            }
            Fact::WaitEnded { wait_id, why } => self.ask_ended(cx, run_id, wait_id, why),
            Fact::Update { what, update } => self.updated(cx, run_id, &what, update),
            Fact::HistoryDiverged { unseen, rest } => {
                let event =
                    AgentHistoryDiverged { execution_id: self.execution_id.clone(), unseen };
                self.push(NewRecord::with_content(cx.now, event, "rest", rest));
            }
            Fact::Dropped { why, bytes } => {
                // Only this may have been something that the agent said.
                let truncated = why == LINE_TOO_LONG && run_id.is_some();
                let update = json!({"why": why, "bytes": bytes});
                self.updated_with(cx, run_id, "dropped", update, truncated);
            }
            Fact::Unknown { name, fields } => {
                self.updated(cx, run_id, &format!("unknown:{name}"), fields);
            }
        }
    }

    fn updated(&mut self, cx: &Context, run_id: Option<RunId>, what: &str, update: Value) {
        self.updated_with(cx, run_id, what, update, false);
    }

    fn updated_with(
        &mut self,
        cx: &Context,
        run_id: Option<RunId>,
        what: &str,
        update: Value,
        truncated: bool,
    ) {
        let (execution_id, what) = (self.execution_id.clone(), short(what.to_owned()));
        let event = AgentUpdated { execution_id, what, run_id, truncated };
        self.push(NewRecord::with_content(cx.now, event, "update", update));
    }

    /// agentctl has the command on its disk: the effect it stands for will not be asked for again.
    fn commanded(&mut self, cx: &Context, command_id: &str) {
        let session = self.state.info.as_ref().map(|info| info.session_id.as_str());
        let of_seq = command_id.rsplit_once('/').filter(|(of, _)| Some(*of) == session);
        let Some(of_seq) = of_seq.and_then(|(_, seq)| seq.parse().ok()) else { return };
        if !self.state.awaits_delivery(of_seq) {
            return;
        }
        let effect = self.state.pending.get(&of_seq).cloned();
        self.push(NewRecord::new(cx.now, EffectDone { of_seq }));
        if let Some(Effect::Stop { run_id }) = effect
            && self.state.prompts(&run_id).any(|seq| seq < of_seq)
        {
            // The run was paused before it was begun: it continues with its first prompt.
            let later = self.state.prompts(&run_id).filter(|seq| *seq > of_seq);
            for of_seq in later.collect::<Vec<_>>() {
                self.push(NewRecord::new(cx.now, EffectDone { of_seq }));
            }
        }
    }

    /// What is lost may have said that a prompt was given: given again it might be done twice.
    fn perhaps_prompted(&mut self, cx: &Context) {
        let run_id = self.state.facts.run.as_ref().map(|run| run.run_id.clone());
        let Some(run_id) = run_id.filter(|_| self.is_current()) else { return };
        for of_seq in self.state.prompts(&run_id).collect::<Vec<_>>() {
            self.push(NewRecord::new(cx.now, EffectDone { of_seq }));
        }
    }

    /// A run that was cancelled or paused ends its turn, too; that is no news, unless the agent has
    /// dropped what it was told.
    fn turn_ended(&mut self, cx: &Context, run_id: Option<&RunId>, stop_reason: String) {
        // A run that is to go on has another turn before it: what ends is the one that was stopped.
        let is_stopped =
            |run: &&Run| run.phase == Phase::Paused || recovery::awaited(&self.state, run);
        let Some(run) = self.open_run(run_id).filter(|run| !is_stopped(run)) else {
            if stop_reason == REFUSAL {
                self.updated(cx, run_id.cloned(), REFUSAL, Value::Null);
            }
            return;
        };
        let run_id = run.run_id.clone();
        if stop_reason == "cancelled" && self.state.rejected_run.as_ref() == Some(&run_id) {
            // That is how some agents take a rejection, and the rejection is recorded.
            let ended = run::cancel(&self.state, cx, run_id, Reason::PermissionRejected);
            return self.extend(ended);
        }
        if stop_reason == "cancelled" {
            // A cancellation is recorded first, and ends the run: no user asked for this one.
            return self.turn_belied(cx, Some(&run_id), stop_reason);
        }
        let stop_reason = Some(short(stop_reason));
        self.extend(run::completed(&self.state, cx, &run_id, stop_reason));
    }

    fn has_room_for_call(&self) -> bool {
        self.state.calls.len() < CALLS_OPEN_MAX || planted::is(Bug::CallsUnlimited)
    }

    /// The agent says that its turn is over, and what it says is not the end of the work: it was
    /// interrupted.
    fn turn_belied(&mut self, cx: &Context, run_id: Option<&RunId>, stop_reason: String) {
        let is_stopped =
            |run: &&Run| run.phase == Phase::Paused || recovery::awaited(&self.state, run);
        let Some(run) = self.open_run(run_id).filter(|run| !is_stopped(run)) else { return };
        let timed_out = run.wait_timed_out;
        let reason = if timed_out { Reason::WaitTimeout } else { Reason::ProcessExit };
        let stop_reason = Some(short(stop_reason));
        let records = recovery::interrupted_in_turn(&self.state, cx, run, reason, stop_reason);
        self.extend(Ok(Decision::done(records)));
    }

    fn call(
        &mut self,
        cx: &Context,
        run_id: Option<RunId>,
        call_id: CallId,
        name: String,
        arguments: Value,
    ) {
        match run_id {
            Some(run_id) if self.has_room_for_call() => {
                let event = ToolIntent { call_id, run_id, name: short(name) };
                self.push(NewRecord::with_content(cx.now, event, "arguments", arguments));
            }
            run_id => {
                let update = json!({"call_id": call_id, "name": name, "arguments": arguments});
                self.updated(cx, run_id, "tool_call", update);
            }
        }
    }

    fn ask_ended(&mut self, cx: &Context, run_id: Option<RunId>, wait_id: WaitId, why: Ended) {
        let wait = self.open_run(run_id.as_ref()).and_then(|run| run.waits.get(&wait_id));
        // Who answered has said so already.
        let (Some(wait), Some(run_id), true) = (wait, run_id, why != Ended::Answered) else {
            return;
        };
        let reason = Reason::Withdrawn;
        if let Some(token_id) =
            wait.token_id.clone().filter(|id| self.state.tokens.contains_key(id))
        {
            self.push(NewRecord::new(cx.now, TokenRevoked { token_id, reason }));
        }
        self.push(NewRecord::new(cx.now, WaitCancelled { run_id, wait_id, reason }));
    }

    fn text(&mut self, mut piece: Piece) {
        while piece.text.len() > TEXT_BYTES_MAX && piece.sent.is_none() {
            let mut end = TEXT_BYTES_MAX;
            while !piece.text.is_char_boundary(end) {
                end -= 1;
            }
            let rest = piece.text.split_off(end);
            let offset = piece.offset + end as u64;
            let next = Piece { text: rest, offset, ..piece.clone() };
            self.text_piece(std::mem::replace(&mut piece, next));
        }
        self.text_piece(piece);
    }

    fn text_piece(&mut self, piece: Piece) {
        let fits = |open: &Piece| {
            open.message_id == piece.message_id
                && open.run_id == piece.run_id
                && open.text.len() + piece.text.len() <= DELTA_BYTES_MAX
        };
        if let Some(open) = self.text.as_mut().filter(|open| fits(open)) {
            open.text.push_str(&piece.text);
            open.sent = piece.sent.or(open.sent);
            return;
        }
        self.end_text();
        // Masking may have made it another length here than there; what is late is not counted.
        let offset = self.state.messages.get(&piece.message_id).copied().unwrap_or(piece.offset);
        self.text = Some(Piece { offset, ..piece });
    }

    fn end_text(&mut self) {
        let Some(Piece { message_id, channel, run_id, offset, text, sent, cx }) = self.text.take()
        else {
            return;
        };
        let length = text.len() as u64;
        let event = MessageDelta { message_id, run_id, offset, length, channel, sent };
        self.push(NewRecord::with_content(cx.now, event, "text", text.into()));
    }
}
