//! `piton sessions answer`: answers what an agent asks.

use piton_api::client::Client;
use piton_api::record::RecordQuery;
use piton_api::status::Wait;
use piton_api::wait::AnswerRequest;
use piton_core::Code;
use piton_core::id::WaitId;
use piton_core::permission::PermissionRequest;
use serde_json::{Value, json};

use super::answer_graph;
use crate::background;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::lookup;
use crate::permission_text;
use crate::stores;
use crate::text::one_line;
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton sessions answer SESSION                        What is asked, and what can be answered
  piton sessions answer SESSION 1                      The first option of its only open wait
  piton sessions answer WAIT --option allow_once       By the option's id
  piton sessions answer WAIT 'in the second file'      A question without options
  piton sessions answer WAIT --value '{\"count\": 3}'
  piton sessions answer WAIT reject --message 'use the library instead'
  piton sessions answer WAIT --refuse                  Withdraw the question; the run continues

JSON: one object: session_id, wait_id, kind, question, options {option_id, name}, deadline_at,
answer (null if none was given), replayed.";

/// Answer an open wait; without an answer, show the question
///
/// Starts a server in the background if none runs; it takes over the agent that waits.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The wait; or the session, if it has one open wait: an id, or the beginning or end of it
    #[arg(value_name = "WAIT|SESSION")]
    pub(super) target: String,
    /// The answer: an option's number, id or name; any text if the question has no options
    #[arg(conflicts_with_all = ["option", "value", "refuse"])]
    pub(super) answer: Option<String>,
    /// The option with this id
    #[arg(long, value_name = "ID", conflicts_with_all = ["value", "refuse"])]
    pub(super) option: Option<String>,
    /// The answer as a JSON value
    #[arg(long, value_name = "JSON", value_parser = parse_value, conflicts_with = "refuse")]
    pub(super) value: Option<Value>,
    /// Withdraw the question without an answer; the run continues
    #[arg(long)]
    pub(super) refuse: bool,
    /// Also send this message: the agent receives it as its first prompt after the turn
    #[arg(long, value_name = "TEXT")]
    pub(super) message: Option<String>,
}

fn parse_value(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))
}

/// An open wait, as the server shows it.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    wait: Wait,
    /// All of it; null if it was taken out of the log.
    question: Value,
    /// What is asked for.
    request: PermissionRequest,
    /// Ids and names.
    options: Vec<(String, String)>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    if stores::detect(&cx.settings.data.value)?.is_none() {
        return Err(cx.missing_store());
    }
    if let Some((session, wait)) = answer_graph::find(cx, &args.target).await? {
        return answer_graph::run(ui, cx, &session, &wait, args).await;
    }
    let client = background::ensure(cx).await?;
    let asked = find(&client, &args.target).await?;
    let message = args.message.clone();
    let Some(answer) = given(&asked, args)? else {
        if message.is_some() {
            let error = Error::usage("A message goes with an answer, and none is given");
            return Err(error.with_hint("Say which option it goes with, such as `reject`."));
        }
        return print(ui, &asked, None, false);
    };
    let request = AnswerRequest { answer, message };
    let answered = client.answer(&asked.wait.wait_id, &request).await?;
    print(ui, &asked, Some(&request.answer), answered.replayed)
}

/// The wait that is meant: by its id, or the only one of a session.
async fn find(client: &Client, target: &str) -> Result<Asked> {
    let all = client.waits().await?.waits;
    let wanted = lookup::wait(target, all.iter().map(|wait| &wait.wait_id));
    // A part of an id may be a session's as well.
    let is_wait = begins_like_a_wait(target) || matches!(wanted, Ok(Some(_)));
    let wanted = if is_wait { wanted? } else { None };
    if let Some(wait) = all.into_iter().find(|wait| Some(&wait.wait_id) == wanted.as_ref()) {
        return read(client, wait).await;
    }
    let id = match lookup::session_on(client, target.parse()?).await {
        Ok(id) => id,
        Err(error) if error.code() == Some(Code::SessionNotFound) && begins_like_a_wait(target) => {
            let wait: WaitId = target.parse()?;
            return Err(Error::new(Code::WaitNotFound, format!("There is no open wait {wait}")));
        }
        Err(error) => return Err(error),
    };
    // Of its own status: the list of all waits is cut.
    let own = client.session(&id).await?.waits;
    match own.as_slice() {
        [only] => read(client, only.clone()).await,
        [] => {
            let message = format!("Session {id} asks nothing");
            Err(Error::new(Code::WaitNotFound, message)
                .with_hint("`piton sessions waits` lists what is asked."))
        }
        several => {
            let names: Vec<&str> = several.iter().map(|wait| wait.wait_id.as_str()).collect();
            let message = format!("Session {id} has {} open waits", several.len());
            let hint = format!("Say which one: {}.", names.join(", "));
            Err(Error::usage(&message).with_hint(hint))
        }
    }
}

fn begins_like_a_wait(target: &str) -> bool {
    target.starts_with("wait_")
}

/// The question itself stands in the log.
async fn read(client: &Client, wait: Wait) -> Result<Asked> {
    let query = RecordQuery { after: Some(wait.since_seq.saturating_sub(1)), limit: Some(1) };
    let page = client.records(&wait.session_id, &query).await?;
    let question = page.records.first().map_or(Value::Null, |record| record["question"].clone());
    // With what the agent said of the tool call since.
    let request = match client.wait(&wait.wait_id).await?.permission {
        Some(request) => request.into(),
        None => PermissionRequest::new(&question, []),
    };
    let options = request.options.iter();
    let options = options.map(|option| (option.option_id.clone(), option.name.clone())).collect();
    Ok(Asked { wait, question, request, options })
}

/// What was answered; `None` if nothing was.
fn given(asked: &Asked, args: Args) -> Result<Option<Value>> {
    if args.refuse {
        return Ok(Some(json!({"outcome": "cancelled"})));
    }
    if let Some(value) = args.value {
        return Ok(Some(value));
    }
    if let Some(id) = args.option {
        return Ok(Some(json!({"option_id": id})));
    }
    let Some(text) = args.answer else { return Ok(None) };
    if asked.options.is_empty() {
        return Ok(Some(json!(text)));
    }
    let by_kind = || by_kind(&asked.request, &text);
    choose(&asked.options, &text)
        .map(str::to_owned)
        .or_else(by_kind)
        .map(|id| Some(json!({"option_id": id})))
        .ok_or_else(|| {
            let names: Vec<String> = asked
                .options
                .iter()
                .map(|(id, name)| format!("{id} ({})", one_line(name)))
                .collect();
            Error::new(Code::AnswerInvalid, format!("{text:?} is none of the options"))
                .with_hint(format!("Answer with a number or an id: {}.", names.join(", ")))
        })
}

/// `allow` and `reject` mean the option that counts once.
fn by_kind(request: &PermissionRequest, text: &str) -> Option<String> {
    let kind = match text {
        "allow" => "allow_once",
        "reject" => "reject_once",
        _ => return None,
    };
    let mut options = request.options.iter();
    let found = options.find(|option| option.kind.as_deref() == Some(kind));
    found.map(|option| option.option_id.clone())
}

/// The option that a text names: an id counts before a number, a number before a name.
pub(super) fn choose<'a>(options: &'a [(String, String)], text: &str) -> Option<&'a str> {
    let by_id = options.iter().find(|(id, _)| id == text);
    let by_number = || {
        let at = text.parse::<usize>().ok()?.checked_sub(1)?;
        options.get(at)
    };
    let by_name = || {
        let mut named = options.iter().filter(|(_, name)| name.eq_ignore_ascii_case(text));
        // Two options with the same name can only be chosen by id.
        named.next().filter(|_| named.next().is_none())
    };
    by_id.or_else(by_number).or_else(by_name).map(|(id, _)| id.as_str())
}

fn print(ui: &mut Ui, asked: &Asked, answer: Option<&Value>, replayed: bool) -> Result<Exit> {
    let Asked { wait, question, request, options } = asked;
    let Wait { session_id: session, wait_id, kind, deadline_at, .. } = wait;
    if ui.json {
        let options: Vec<Value> =
            options.iter().map(|(id, name)| json!({"option_id": id, "name": name})).collect();
        ui.json_line(&json!({
            "session_id": session, "wait_id": wait_id, "kind": kind, "question": question,
            "options": options, "deadline_at": deadline_at, "answer": answer, "replayed": replayed,
        }))?;
        return Ok(Exit::Good);
    }
    if answer.is_some() {
        ui.line(format_args!("{wait_id} of session {session} is answered."))?;
        return Ok(Exit::Good);
    }
    for (tone, line) in permission_text::lines(request) {
        ui.line(ui.paint(tone, &line))?;
    }
    for (at, (id, name)) in options.iter().enumerate() {
        let id = ui.paint(Tone::Quiet, &one_line(id));
        ui.line(format_args!("  {}  {}  {id}", at + 1, one_line(name)))?;
    }
    let what = if options.is_empty() { "TEXT" } else { "NUMBER" };
    ui.note(&format!("Answer with: {} sessions answer {wait_id} {what}", ui.call))?;
    Ok(Exit::Good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_named_by_its_id_its_number_or_its_name() {
        let pair = |id: &str, name: &str| (id.to_owned(), name.to_owned());
        let options = [pair("2", "Yes"), pair("b", "No"), pair("c", "Same"), pair("d", "same")];
        assert_eq!(choose(&options, "2"), Some("2"), "an id counts more than a number");
        assert_eq!(choose(&options, "3"), Some("c"));
        assert_eq!(choose(&options, "no"), Some("b"));
        assert_eq!(choose(&options, "d"), Some("d"));
        for none in ["0", "5", "same", "", "-1"] {
            assert_eq!(choose(&options, none), None, "{none:?}");
        }
    }
}
