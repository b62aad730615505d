//! Reading: states, statuses, lists, conversations, tails. Writes nothing and needs no boot, so it
//! works beside any writer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use piton_core::agent_view::AgentView;
use piton_core::conversation;
use piton_core::event::WaitKind;
use piton_core::id::{BootId, SessionId, TaskId, WaitId};
use piton_core::mcp::McpServer;
use piton_core::overview::{ErrorCause, OpenWait, Overview};
use piton_core::permission::{PermissionRequest, asked_call, update_of_intent};
use piton_core::reason::Reason;
use piton_core::resume::{self, Abilities};
use piton_core::state::{Executor, ExecutorStatus, Facts, Info, Run};
use piton_core::status::{self, Status};
use piton_core::transcript::Item;
use piton_core::turns::is_live;
use piton_core::{Code, Event, Record, Seq, State, Timestamp, title};
use piton_store::{Cursor, Detail, Liveness, Query, Row, Select, Store, Tail};
use serde_json::Value;

use crate::env::Env;
use crate::error::{Result, StartFailure};
use crate::interfaces::Clock;
use crate::titles::Titles;

/// Records read at a time for views over a whole session.
const READ_MAX: usize = 1_000;

/// Sessions of one task that its state is derived from.
pub(crate) const TASK_SESSIONS_MAX: usize = 1_000;

/// Longer questions are read from the log.
const QUESTION_BYTES_MAX: usize = 64 * 1024;
/// Of a permission request in a status; the rest is read from the log.
const PERMISSION_BYTES_MAX: usize = 48 * 1024;
/// Records at the beginning of a log that are searched for its first prompt.
const FIRST_RECORDS: usize = 32;
/// Records behind a question that are searched for what the agent said of its call later.
const UPDATES_READ_MAX: usize = 64;

/// What a reader holds. Cheap to clone.
#[derive(Clone, Debug)]
pub struct View {
    store: Arc<dyn Store>,
    liveness: Arc<dyn Liveness>,
    clock: Arc<dyn Clock>,
    /// The reader's own boot, if it has one: alive without asking.
    boot: Option<BootId>,
    titles: Arc<Titles>,
}

/// A session in a list.
#[derive(Clone, Debug)]
pub struct Listed {
    pub row: Row,
    pub status: Status,
    /// No one gave the title: it is the beginning of the first prompt.
    pub is_title_derived: bool,
}

impl Listed {
    /// Where the next page begins if this is the last row of one.
    pub fn cursor(&self) -> Cursor {
        cursor(&self.row)
    }
}

fn cursor(row: &Row) -> Cursor {
    Cursor { millis: row.summary.info.active_at.as_millis(), session: row.session.clone() }
}

impl View {
    pub fn new(store: Arc<dyn Store>, liveness: Arc<dyn Liveness>, clock: Arc<dyn Clock>) -> Self {
        Self { store, liveness, clock, boot: None, titles: Arc::default() }
    }

    pub(crate) fn of(env: &Env) -> Self {
        Self {
            store: Arc::clone(&env.store),
            liveness: Arc::clone(&env.liveness),
            clock: Arc::clone(&env.clock),
            boot: Some(env.boot.clone()),
            titles: Arc::default(),
        }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn is_alive(&self, boot: &BootId) -> bool {
        self.boot.as_ref() == Some(boot) || self.liveness.is_alive(boot)
    }

    /// Asks the one function that derives statuses; only the run's own boot matters to it.
    pub fn status(&self, facts: &Facts) -> Status {
        let boot = facts.run.as_ref().map(|run: &Run| &run.boot_id);
        let dead: BTreeSet<BootId> =
            boot.filter(|boot| !self.is_alive(boot)).cloned().into_iter().collect();
        status::derive(facts, &dead, self.clock.now())
    }

    /// A run that a dead boot left open, with no executor that may live: no process works on it,
    /// and its waits cannot be answered any more, though no record says so yet. A graph that waits needs
    /// no process: it is answered, and then resumed.
    pub fn stranded<'a>(&self, facts: &'a Facts) -> Option<&'a Run> {
        let executor_lives = facts.executor.as_ref().is_some_and(Executor::may_live);
        let run = facts.run.as_ref().filter(|run| run.is_open() && facts.closed.is_none());
        run.filter(|run| {
            !executor_lives && !self.is_alive(&run.boot_id) && !facts.is_graph_waiting()
        })
    }

    /// The open waits of a session with their questions, the earliest first.
    pub async fn open_waits(&self, session: &SessionId, facts: &Facts) -> Vec<OpenWait> {
        let mut waits = OpenWait::of(facts);
        for open in &mut waits {
            self.read_question(session, open, PERMISSION_BYTES_MAX).await;
        }
        waits
    }

    /// An open wait with its whole question, and the whole of what it asks permission for.
    pub async fn whole_wait(
        &self,
        session: &SessionId,
        facts: &Facts,
        wait_id: &WaitId,
    ) -> Option<OpenWait> {
        let mut open = OpenWait::of(facts).into_iter().find(|open| open.wait_id == *wait_id)?;
        self.read_question(session, &mut open, usize::MAX).await;
        Some(open)
    }

    async fn read_question(&self, session: &SessionId, open: &mut OpenWait, bytes_max: usize) {
        let question = match self.question(session, open.since_seq()).await {
            Ok(question) => question,
            // The wait is known all the same.
            Err(error) => {
                let wait_id = &open.wait_id;
                tracing::warn!(%session, %wait_id, code = %error.code(), "the question of a wait was not read");
                None
            }
        };
        if let (WaitKind::Permission, Some(question)) = (open.wait.kind, &question) {
            let request = self.permission_request(session, open.since_seq(), question).await;
            open.permission = Some(request.limited(bytes_max));
        }
        let question_bytes_max =
            if bytes_max == usize::MAX { bytes_max } else { QUESTION_BYTES_MAX };
        open.question =
            question.filter(|question| question.to_string().len() <= question_bytes_max);
    }

    /// All of what a question of a permission asks for, with what the agent said of its call since.
    /// `asked`: the record of the question.
    pub async fn permission_request(
        &self,
        session: &SessionId,
        asked: Seq,
        question: &Value,
    ) -> PermissionRequest {
        let updates = self.later_updates(session, asked, question).await;
        PermissionRequest::new(question, &updates)
    }

    async fn question(&self, session: &SessionId, seq: Seq) -> Result<Option<Value>> {
        let asked = self.store.read(session, seq - 1, 1, Detail::Full).await?;
        Ok(asked.first().and_then(|record| record.content_field("question")))
    }

    /// What the agent said of a question's tool call after it had asked, among the next records.
    async fn later_updates(&self, session: &SessionId, asked: Seq, question: &Value) -> Vec<Value> {
        let Some(call_id) = asked_call(question) else { return Vec::new() };
        let later = self.store.read(session, asked, UPDATES_READ_MAX, Detail::Headers).await;
        let mut updates = Vec::new();
        for record in later.unwrap_or_default() {
            let event = record.event();
            let said_in = match &event {
                Ok(Event::ToolUpdated(e)) if e.call_id.as_str() == call_id => "update",
                Ok(Event::ToolIntent(e)) if e.call_id.as_str() == call_id => "arguments",
                _ => continue,
            };
            let read = self.store.read(session, record.seq - 1, 1, Detail::Full).await;
            let said = read.ok().and_then(|read| read.first()?.content_field(said_in));
            match &event {
                Ok(Event::ToolIntent(e)) => updates.push(update_of_intent(&e.name, said.as_ref())),
                _ => updates.extend(said),
            }
        }
        updates
    }

    /// Why the session's executor or agent is in error.
    pub async fn error_cause(&self, session: &SessionId, facts: &Facts) -> Option<ErrorCause> {
        let seq = facts.error_seq()?;
        match self.store.read(session, seq - 1, 1, Detail::Full).await {
            Ok(records) => records.first().map(ErrorCause::of),
            // The status is known all the same.
            Err(error) => {
                tracing::warn!(%session, seq, code = %error.code(), "the cause of an error was not read");
                None
            }
        }
    }

    /// Why the session's agent does not run though it was started.
    pub async fn start_failure(&self, session: &SessionId, state: &State) -> StartFailure {
        let facts = &state.facts;
        let cause = self.error_cause(session, facts).await.unwrap_or_default();
        let executor = facts.executor.as_ref();
        let is_silent = executor.is_some_and(|e| e.status == ExecutorStatus::Unreachable);
        let reason = if is_silent {
            Reason::ExecutorUnreachable
        } else {
            let agent = facts.agent.as_ref().and_then(|agent| agent.error);
            agent.or(executor.and_then(|executor| executor.reason)).unwrap_or(Reason::AgentError)
        };
        let otherwise = if is_silent { Code::AgentctlUnreachable } else { Code::AgentClosed };
        let profile = state.info.as_ref().and_then(|info| info.agent_profile_id.clone());
        StartFailure {
            session: session.clone(),
            agent: profile.unwrap_or_else(|| "unknown".to_owned()),
            reason,
            code: cause.code.unwrap_or(otherwise.into()),
            message: cause.message.unwrap_or_else(|| reason.sentence().to_owned()),
            has_conversation: facts.agent.as_ref().is_some_and(|a| a.session_id.is_some())
                && !is_silent,
        }
    }

    /// Everything about where a session stands, as of a state.
    pub async fn overview(
        &self,
        session: &SessionId,
        state: State,
        abilities: Abilities,
    ) -> Result<Overview> {
        let unknown = || piton_store::Error::SessionNotFound { session: session.clone() };
        let mut info = state.info.clone().ok_or_else(unknown)?;
        info.title = self.title(session, &info, &state.facts).await;
        // Its owner died, or left: whether its executor lives is being found out.
        let is_owned = state.lease.owner.as_ref().is_some_and(|owner| self.is_alive(owner));
        Ok(Overview {
            session_id: session.clone(),
            info,
            status: self.status(&state.facts),
            evaluation: resume::evaluate(&state, abilities, !is_owned),
            abilities,
            error: self.error_cause(session, &state.facts).await,
            waits: self.open_waits(session, &state.facts).await,
            state,
        })
    }

    /// The state that the durable records fold into.
    pub async fn state(&self, session: &SessionId) -> Result<State> {
        Ok(piton_store::load(&*self.store, session).await?.state)
    }

    /// What the session's agent offers, and said about itself; also when it does not run.
    pub async fn agent_view(&self, session: &SessionId, state: &State) -> Result<AgentView> {
        let mut said = BTreeMap::new();
        for (feature, seq) in &state.features.latest {
            // What was redacted is not known any more.
            if let Some(update) = self.content(session, *seq, "update").await? {
                said.insert(*feature, update);
            }
        }
        let servers = self.mcp_servers(session, state).await?;
        Ok(AgentView {
            mcp_servers: servers.into_iter().map(|server| server.name).collect(),
            fork: state.features.fork.clone(),
            ..AgentView::new(&said, state.features.choices.clone())
        })
    }

    /// The session's own MCP servers; redacted ones are given to no agent.
    pub(crate) async fn mcp_servers(
        &self,
        session: &SessionId,
        state: &State,
    ) -> Result<Vec<McpServer>> {
        let Some(seq) = state.features.mcp_servers else { return Ok(Vec::new()) };
        let servers = self.content(session, seq, "servers").await?;
        Ok(servers.and_then(|servers| serde_json::from_value(servers).ok()).unwrap_or_default())
    }

    async fn content(&self, session: &SessionId, seq: Seq, field: &str) -> Result<Option<Value>> {
        let records = self.store.read(session, seq - 1, 1, Detail::Full).await?;
        Ok(records.first().and_then(|record| record.content_field(field)))
    }

    /// The sessions of a task, last active first, and whether there are more than are counted.
    pub(crate) async fn list_task(&self, task: &TaskId) -> Result<(Vec<Listed>, bool)> {
        let listed = self.list(Some(task.clone()), |_| true, None, TASK_SESSIONS_MAX).await?;
        Ok((listed.0, listed.1.is_some()))
    }

    /// A page of sessions with their statuses, last active first. If all are wanted its cost follows
    /// the page, else how far apart the wanted ones are.
    pub async fn list(
        &self,
        task_id: Option<TaskId>,
        wanted: impl Fn(status::Name) -> bool,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<Listed>, Option<Cursor>)> {
        self.list_where(task_id, |listed| wanted(listed.status.name), after, limit).await
    }

    /// The same, of those sessions that a condition chooses.
    pub async fn list_where(
        &self,
        task_id: Option<TaskId>,
        wanted: impl Fn(&Listed) -> bool,
        mut after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<Listed>, Option<Cursor>)> {
        let mut found = Vec::new();
        loop {
            let query =
                Query { task_id: task_id.clone(), select: Select::All, after, limit: limit.max(1) };
            let page = self.store.list(query).await?;
            let rows = page.rows.len();
            for (i, row) in page.rows.into_iter().enumerate() {
                let status = self.status(&row.summary.facts);
                let mut listed = Listed { row, status, is_title_derived: false };
                if !wanted(&listed) {
                    continue;
                }
                self.derive_title(&mut listed).await;
                let cursor = listed.cursor();
                found.push(listed);
                if found.len() >= limit {
                    let is_last = i + 1 == rows && page.next.is_none();
                    return Ok((found, (!is_last).then_some(cursor)));
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok((found, None)),
            }
        }
    }

    /// One session as a list has it; `None` if there is none.
    pub async fn listed(&self, session: &SessionId) -> Result<Option<Listed>> {
        let Some(loaded) = self.store.load(session).await? else { return Ok(None) };
        let Some(mut summary) = loaded.state.summary() else { return Ok(None) };
        let is_title_derived = title::given(&summary.info, &summary.facts).is_none();
        summary.info.title = self.title(session, &summary.info, &summary.facts).await;
        let status = self.status(&summary.facts);
        let (last_seq, lease) = (loaded.state.last_seq, loaded.state.lease);
        let row = Row { session: session.clone(), last_seq, lease, summary };
        Ok(Some(Listed { row, status, is_title_derived }))
    }

    /// A session's title: the given one, or the one that is derived from its first prompt. A log that
    /// is damaged at its beginning still has a status.
    async fn title(&self, session: &SessionId, info: &Info, facts: &Facts) -> Option<String> {
        let given = title::given(info, facts);
        if given.is_some() {
            return given;
        }
        let read = self.titles.begin();
        let records = self.store.read(session, 0, FIRST_RECORDS, Detail::Full).await.ok()?;
        let title = title::of_records(&records);
        self.titles.keep(session, title.clone(), read);
        title
    }

    /// The same for a session of a page, which does not read every log.
    async fn derive_title(&self, listed: &mut Listed) {
        let Row { session, summary, .. } = &mut listed.row;
        if summary.info.title.is_none() {
            listed.is_title_derived = title::given(&summary.info, &summary.facts).is_none();
            summary.info.title = match self.titles.get(session) {
                Some(title) => Some(title),
                None => self.title(session, &summary.info, &summary.facts).await,
            };
        }
    }

    /// The content of a session is taken out: its title is derived again.
    pub(crate) fn forget_title(&self, session: &SessionId) {
        self.titles.forget(session);
    }

    pub async fn records(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<Record>> {
        Ok(self.store.read(session, after, limit, Detail::Full).await?)
    }

    /// The conversation, with every tool call paired.
    pub async fn transcript(&self, session: &SessionId) -> Result<Vec<Item>> {
        let state = self.state(session).await?;
        let items = self.conversation_after(session, &state, 0).await?;
        Ok(items.into_iter().filter_map(Item::of).collect())
    }

    /// The conversation after a position, as of a state. What began before it shows its rest.
    pub async fn conversation_after(
        &self,
        session: &SessionId,
        state: &State,
        after: Seq,
    ) -> Result<Vec<conversation::Item>> {
        // What a rewind left behind is not part of it.
        let segments = state.turns.live_segments(state.last_seq);
        let mut records = Vec::new();
        let mut last_read = after;
        loop {
            let read = self.records(session, last_read, READ_MAX).await?;
            let Some(last) = read.last() else { break };
            last_read = last.seq;
            records
                .extend(read.into_iter().filter(|record| is_live(segments.as_deref(), record.seq)));
        }
        let status = self.status(&state.facts);
        let live = state
            .facts
            .run
            .as_ref()
            .filter(|_| matches!(status.name, status::Name::Running | status::Name::Waiting));
        let damaged = |error| {
            let source: piton_store::Cause = Arc::new(error);
            piton_store::Error::RecordDamaged {
                session: session.clone(),
                seq: last_read,
                source: Some(source),
            }
        };
        let live = live.map(|run| &run.run_id);
        Ok(conversation::build(&records, live).map_err(damaged)?)
    }

    /// Follows a session's log from after a position.
    pub fn tail(&self, session: &SessionId, after: Seq) -> Tail {
        Tail::new(Arc::clone(&self.store), session.clone(), after)
    }
}
