//! `piton sessions answer` of a graph: a server that runs takes the answer and continues the graph.
//! Without one the answer is written here, and the graph continues when its session is resumed.

use piton_api::wait::AnswerRequest;
use piton_core::id::{SessionId, WaitId};
use piton_core::{Code, Timestamp};
use piton_graph::checkpoints::{self, Question};
use piton_runtime::View;
use piton_store::{Query, Select};
use serde_json::{Value, json};

use super::answer::{Args, choose};
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::graphs::{self, GraphHost};
use crate::lookup;
use crate::server;
use crate::text::one_line;
use crate::ui::{Tone, Ui};

/// Sessions that wait, read at a time.
const PAGE_SESSIONS: usize = 1_000;

/// The graph's wait that is meant; `None`: it is another session's, or there is none.
pub(super) async fn find(cx: &Context, target: &str) -> Result<Option<(SessionId, WaitId)>> {
    let view = cx.existing_view()?;
    if let Some(found) = by_wait(&view, target).await? {
        return Ok(Some(found));
    }
    let session = match lookup::session(&view, target.parse()?).await {
        Ok(session) if graphs::is_graph(&view, &session).await? => session,
        // The way of all other sessions says what is wrong.
        _ => return Ok(None),
    };
    let waits = checkpoints::view(view.store(), &session).await?.waits;
    match waits.as_slice() {
        [wait] => Ok(Some((session, wait.clone()))),
        [] => {
            let message = format!("Session {session} asks nothing");
            Err(Error::new(Code::WaitNotFound, message))
        }
        several => {
            let names: Vec<&str> = several.iter().map(WaitId::as_str).collect();
            let message = format!("Session {session} has {} open waits", several.len());
            let hint = format!("Say which one: {}.", names.join(", "));
            Err(Error::usage(&message).with_hint(hint))
        }
    }
}

async fn by_wait(view: &View, target: &str) -> Result<Option<(SessionId, WaitId)>> {
    let mut after = None;
    let mut open: Vec<(SessionId, WaitId, bool)> = Vec::new();
    loop {
        let select = Select::DueBy(Timestamp::from_millis(i64::MAX));
        let page =
            view.store().list(Query { task_id: None, select, after, limit: PAGE_SESSIONS }).await?;
        for row in page.rows {
            let facts = &row.summary.facts;
            let waits = facts.run.iter().flat_map(|run| run.waits.keys());
            let is_graph = facts.graph.is_some();
            open.extend(waits.map(|wait| (row.session.clone(), wait.clone(), is_graph)));
        }
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    // The way of all other sessions says when several are meant.
    let Ok(Some(wait)) = lookup::wait(target, open.iter().map(|(_, wait, _)| wait)) else {
        return Ok(None);
    };
    let found = open.into_iter().find(|(_, one, is_graph)| *one == wait && *is_graph);
    Ok(found.map(|(session, wait, _)| (session, wait)))
}

pub(super) async fn run(
    ui: &mut Ui,
    cx: &Context,
    session: &SessionId,
    wait: &WaitId,
    args: Args,
) -> Result<Exit> {
    if args.refuse || args.message.is_some() {
        let message = "A graph's question takes neither --refuse nor --message";
        return Err(Error::usage(message).with_hint("Answer it, or cancel the run."));
    }
    let view = cx.existing_view()?;
    let question = checkpoints::question(view.store(), session, wait).await?;
    drop(view);
    let answer = given(&question, args)?;
    let client = server::connect(&cx.settings.data.value);
    if let (Some(answer), Some(client)) = (&answer, &client) {
        let answer = AnswerRequest { answer: answer.clone(), message: None };
        client.answer(wait, &answer).await?;
    } else if let Some(answer) = &answer {
        let host = GraphHost::open(cx)?;
        let answered = piton_graph::answer(&host.store, session, wait, answer.clone()).await;
        answered.map_err(|error| graphs::owned(cx, error))?;
    }
    if ui.json {
        let options: Vec<Value> = question
            .options
            .iter()
            .map(|option| json!({"option_id": option, "name": option}))
            .collect();
        ui.json_line(&json!({
            "session_id": session, "wait_id": wait, "kind": "human", "question": question.text,
            "options": options, "answer": answer, "replayed": false,
        }))?;
        return Ok(Exit::Good);
    }
    if answer.is_some() {
        ui.line(format_args!("{wait} of session {session} is answered."))?;
        if client.is_some() {
            ui.note("The server continues the graph.")?;
        } else {
            ui.note(&format!("Continue with: {} sessions resume {session}", ui.call))?;
        }
        return Ok(Exit::Good);
    }
    for line in question.text.lines() {
        ui.line(ui.paint(Tone::Attention, line))?;
    }
    for (at, option) in question.options.iter().enumerate() {
        ui.line(format_args!("  {}  {}", at + 1, one_line(option)))?;
    }
    ui.note(&format!("Answer with: {} sessions answer {wait} ANSWER", ui.call))?;
    Ok(Exit::Good)
}

/// What was answered; `None` if nothing was.
fn given(question: &Question, args: Args) -> Result<Option<Value>> {
    if let Some(value) = args.value {
        return Ok(Some(value));
    }
    let Some(text) = args.option.or(args.answer) else { return Ok(None) };
    if question.options.is_empty() {
        return Ok(Some(text.into()));
    }
    let options: Vec<(String, String)> =
        question.options.iter().map(|option| (option.clone(), option.clone())).collect();
    if let Some(option) = choose(&options, &text) {
        return Ok(Some(option.to_owned().into()));
    }
    let hint = format!("Answer with a number or one of: {}.", question.options.join(", "));
    let message = format!("{text:?} is none of the options");
    Err(Error::new(Code::AnswerInvalid, message).with_hint(hint))
}
