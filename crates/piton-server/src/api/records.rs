//! What a session's log says: records, the conversation, and whether the log is whole.

use axum::Json;
use axum::extract::State;
use piton_api::problem::Problem as Document;
use piton_api::record::{
    BootstrapQuery, FlatRecord, Lineage, Message, MessagePage, MessageQuery, RecordPage,
    RecordQuery, SessionBootstrap, Verification,
};
use piton_core::id::SessionId;
use piton_core::status::Name;
use piton_core::turns::is_live;
use piton_core::{Code, Record, Seq, conversation};
use piton_runtime::{Abandoned, ConversationPage};
use piton_store::Detail;

use super::{queue, status, store, tasks};
use crate::app::App;
use crate::extract::{Administrator, Params, Path, Reader};
use crate::problem::{Problem, Result};

const PAGE_MAX: usize = 1_000;
const RECORDS_DEFAULT: usize = 200;
const MESSAGES_DEFAULT: usize = 100;

fn checked(limit: Option<usize>, default: usize) -> Result<usize> {
    let limit = limit.unwrap_or(default);
    let is_good = (1..=PAGE_MAX).contains(&limit);
    is_good.then_some(limit).ok_or_else(|| Problem::malformed(format!("limit is 1 to {PAGE_MAX}")))
}

async fn window(
    app: &App,
    session: &SessionId,
    window: &RecordQuery,
) -> Result<(Vec<Record>, Option<Seq>)> {
    let limit = checked(window.limit, RECORDS_DEFAULT)?;
    let store = app.handle().view().store();
    let head = store.head(session).await?;
    let unknown = || piton_store::Error::SessionNotFound { session: session.clone() };
    let head = head.ok_or_else(unknown)?;
    let after = window.after.unwrap_or(0);
    if after > head.last_seq {
        let title = format!("The log ends at {}, before {after}", head.last_seq);
        return Err(Problem::new(Code::CursorInvalid, title));
    }
    let records = store.read(session, after, limit, Detail::Full).await?;
    let next = records.last().map(|last| last.seq).filter(|last| *last < head.last_seq);
    Ok((records, next))
}

/// Get a page of a session's log.
#[utoipa::path(get, path = "/sessions/{session_id}/records", tag = "sessions",
    params(("session_id" = String, Path, description = "The session's id"), RecordQuery),
    responses((status = 200, body = RecordPage),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn records(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
    Params(wanted): Params<RecordQuery>,
) -> Result<Json<RecordPage>> {
    let session = SessionId::from_user(&session)?;
    let (records, next) = window(&app, &session, &wanted).await?;
    Ok(Json(RecordPage { records: flat(&session, &records, |record| record.try_into())?, next }))
}

/// Get the audit log: access tokens, actions, refusals, deleted and archived sessions, without
/// digests and kept responses.
#[utoipa::path(get, path = "/audit", tag = "access", params(RecordQuery),
    responses((status = 200, body = RecordPage),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn audit(
    State(app): State<App>,
    _administrator: Administrator,
    Params(wanted): Params<RecordQuery>,
) -> Result<Json<RecordPage>> {
    let metadata = SessionId::metadata_log();
    if app.handle().view().store().head(&metadata).await?.is_none() {
        return Ok(Json(RecordPage { records: Vec::new(), next: None }));
    }
    let (records, next) = window(&app, &metadata, &wanted).await?;
    let without_secrets = |record: &Record| {
        let mut fields = record.to_flat()?;
        fields.retain(|name, _| !["hash", "key", "digest", "response"].contains(&name.as_str()));
        fields.try_into()
    };
    let records = flat(&metadata, &records, without_secrets)?;
    Ok(Json(RecordPage { records, next }))
}

fn flat(
    session: &SessionId,
    records: &[Record],
    read: impl Fn(&Record) -> Result<FlatRecord, piton_core::record::Error>,
) -> Result<Vec<FlatRecord>> {
    let flat = |record: &Record| {
        read(record).map_err(|error| {
            Problem::from(piton_store::Error::RecordDamaged {
                session: session.clone(),
                seq: record.seq,
                source: Some(std::sync::Arc::new(error)),
            })
        })
    };
    records.iter().map(flat).collect()
}

/// Get a page of a session's conversation, with every tool call paired: after a record, or the last
/// messages before one.
#[utoipa::path(get, path = "/sessions/{session_id}/messages", tag = "sessions",
    params(("session_id" = String, Path, description = "The session's id"), MessageQuery),
    responses((status = 200, body = MessagePage),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn messages(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
    Params(wanted): Params<MessageQuery>,
) -> Result<Json<MessagePage>> {
    let session = SessionId::from_user(&session)?;
    let MessageQuery { after, before, limit, abandoned } = wanted;
    let abandoned = shown(abandoned);
    if let Some(before) = before {
        if after.is_some() {
            return Err(Problem::malformed("Name after or before, not both"));
        }
        let limit = checked(limit, MESSAGES_DEFAULT)?;
        let state = app.handle().state(&session).await?;
        let view = app.handle().view();
        let page = view.conversation_before(&session, &state, before, limit, abandoned).await?;
        let (messages, before) = spelled(page);
        return Ok(Json(MessagePage { messages, next: None, before }));
    }
    let (mut records, next) = window(&app, &session, &RecordQuery { after, limit }).await?;
    let state = app.handle().state(&session).await?;
    let segments = state.turns.live_segments(state.last_seq);
    if abandoned == Abandoned::Hidden {
        records.retain(|record| is_live(segments.as_deref(), record.seq));
    }
    let status = app.handle().view().status(&state.facts).name;
    let at_work = matches!(status, Name::Running | Name::Waiting);
    let live = state.facts.run.as_ref().filter(|_| at_work).map(|run| &run.run_id);
    let mut items = conversation::build(&records, live).map_err(|error| {
        let (seq, source): (_, piton_store::Cause) = (state.last_seq, std::sync::Arc::new(error));
        piton_store::Error::RecordDamaged { session, seq, source: Some(source) }
    })?;
    conversation::mark_abandoned(&mut items, segments.as_deref());
    let messages = items.into_iter().map(Message::from).collect();
    Ok(Json(MessagePage { messages, next, before: None }))
}

fn shown(abandoned: Option<bool>) -> Abandoned {
    if abandoned == Some(true) { Abandoned::Shown } else { Abandoned::Hidden }
}

fn spelled(page: ConversationPage) -> (Vec<Message>, Option<Seq>) {
    (page.items.into_iter().map(Message::from).collect(), page.before)
}

/// Get everything that a screen needs to show a session, as of one record: status with waits, task,
/// last messages, queue, and what the agent reports. Events continue after `last_seq`.
#[utoipa::path(get, path = "/sessions/{session_id}/bootstrap", operation_id = "bootstrap", tag = "sessions",
    params(("session_id" = String, Path, description = "The session's id"), BootstrapQuery),
    responses((status = 200, body = SessionBootstrap),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn bootstrap(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
    Params(wanted): Params<BootstrapQuery>,
) -> Result<Json<SessionBootstrap>> {
    let session = SessionId::from_user(&session)?;
    let limit = checked(wanted.limit, MESSAGES_DEFAULT)?;
    let report = app.engine().session(&session).await?;
    // One state for all: whatever comes later is an event.
    let state = &report.overview.state;
    let view = app.handle().view();
    let page = view
        .conversation_before(&session, state, state.last_seq + 1, limit, shown(wanted.abandoned))
        .await?;
    let queue = queue::list_of(app.engine().queue_of(&session, state).await?);
    let agent = view.agent_view(&session, state).await?.into();
    let task = match &report.overview.info.task_id {
        Some(task) => match app.engine().task(task).await {
            Ok(task) => Some(tasks::view(task)),
            Err(error) if error.code() == Code::TaskNotFound => None,
            Err(error) => return Err(error.into()),
        },
        None => None,
    };
    let (messages, before) = spelled(page);
    let (status, last_seq) = (status::spelled(&report), state.last_seq);
    let lineages = state.turns.lineages.starts().iter().map(Lineage::from).collect();
    let bootstrap =
        SessionBootstrap { status, task, messages, before, queue, agent, lineages, last_seq };
    Ok(Json(bootstrap))
}

/// Verify every record of a session's log. The scope `read` is enough: the response says less than
/// the records do.
#[utoipa::path(get, path = "/sessions/{session_id}/verify", tag = "sessions",
    params(("session_id" = String, Path, description = "The session's id")),
    responses((status = 200, body = Verification),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn verify(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
) -> Result<Json<Verification>> {
    let session = SessionId::from_user(&session)?;
    let found = app.handle().view().store().verify(&session).await?;
    Ok(Json(store::verification(session, found)))
}
