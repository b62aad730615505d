//! `piton sessions redact`: takes contents out of a log. Prints the plan; with --yes carries it out.

use std::collections::BTreeSet;
use std::path::PathBuf;

use piton_api::session::RedactRequest;
use piton_core::Seq;
use piton_core::id::SessionId;
use piton_core::redact::{Literal, Matcher, RedactionPlan, Selector, Target};
use piton_runtime::Pattern;
use piton_store::SecretText;
use serde_json::{Value, json};

use crate::backend::{Redact, SessionBackend};
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::secret;
use crate::table::{Column, Table};
use crate::text::one_line;
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton sessions redact SESSION --seq 12,20-24              What would be removed
  piton sessions redact SESSION --seq 12,20-24 --yes        Remove it
  pass show api-key | piton sessions redact SESSION --value-stdin
  piton sessions redact SESSION --value-env API_KEY --reason 'leaked key' --yes
  piton sessions redact SESSION --pattern 'sk-[a-z0-9]{20,}'

Removed content is gone from the whole store; its record stays, and a new record says when and
why. Fields of a record's header cannot be removed: delete the session to remove them. Copies
elsewhere (bundles, backups) are not touched.

JSON: one object: session_id, done, taken_out (a number), targets and in_headers [{seq, kind,
matches, excerpt}], empty, gone and missing [seq].";

/// More records than this are not named one by one.
const SEQS_MAX: u64 = 100_000;

/// Remove contents from a session's log permanently
///
/// Without --yes it only prints what it would do.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group(clap::ArgGroup::new("what").required(true).multiple(false)
    .args(["seq", "value_stdin", "value_file", "value_env", "pattern"])))]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// The records with these numbers, such as 7 or 3,10-12
    #[arg(long, value_name = "SEQS", value_parser = parse_seqs)]
    seq: Option<Seqs>,
    /// Every record with the secret that is read from stdin
    #[arg(long)]
    value_stdin: bool,
    /// Every record with the secret in this file
    #[arg(long, value_name = "FILE")]
    value_file: Option<PathBuf>,
    /// Every record with the secret in this environment variable
    #[arg(long, value_name = "NAME")]
    value_env: Option<String>,
    /// Every record that matches this regular expression
    #[arg(long, value_name = "REGEX", value_parser = parse_pattern)]
    pattern: Option<PatternText>,
    /// The reason, written to the log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Do it instead of printing what would be done
    #[arg(long, short)]
    yes: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seqs(BTreeSet<Seq>);

fn parse_seqs(text: &str) -> Result<Seqs, String> {
    let mut seqs = BTreeSet::new();
    let mut count: u64 = 0;
    for part in text.split(',').map(str::trim) {
        let wrong = || format!("{part:?} is neither a record's number nor a range such as 3-7");
        let number = |text: &str| text.trim().parse::<Seq>().ok().filter(|seq| *seq > 0);
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first), number(last)),
            None => (number(part), number(part)),
        };
        let (first, last) = first.zip(last).ok_or_else(wrong)?;
        if first > last {
            return Err(format!("the range {part} ends before it begins"));
        }
        count = count.saturating_add(last - first).saturating_add(1);
        if count > SEQS_MAX {
            return Err(format!("it names more than {SEQS_MAX} records"));
        }
        seqs.extend(first..=last);
    }
    Ok(Seqs(seqs))
}

/// A regular expression, checked.
#[derive(Clone, Debug)]
struct PatternText(String);

fn parse_pattern(text: &str) -> Result<PatternText, String> {
    Pattern::new(text).map(|_| PatternText(text.to_owned())).map_err(|e| {
        let why = std::error::Error::source(&e).map_or_else(String::new, ToString::to_string);
        format!("it is not a regular expression\n{why}")
    })
}

impl Args {
    fn value(&self) -> Result<Option<SecretText>> {
        Ok(if self.value_stdin {
            Some(secret::from_stdin()?)
        } else if let Some(path) = &self.value_file {
            Some(secret::from_file(path)?)
        } else {
            self.value_env.as_deref().map(secret::from_variable).transpose()?
        })
    }

    fn request(&self) -> Result<RedactRequest> {
        let mut request = RedactRequest { reason: self.reason.clone(), ..RedactRequest::default() };
        match (&self.seq, &self.pattern) {
            (Some(seqs), _) => request.seqs = Some(seqs.0.iter().copied().collect()),
            (None, Some(pattern)) => request.pattern = Some(pattern.0.clone()),
            (None, None) => {
                let value = self.value()?;
                // The line end is the file's or the pipe's, not the secret's.
                let value = value.as_ref().map(SecretText::reveal).unwrap_or_default().trim();
                request.value = Some(value.to_owned());
            }
        }
        Ok(request)
    }
}

fn selector(request: &RedactRequest) -> Result<Selector> {
    let matcher: Box<dyn Matcher> = match (&request.seqs, &request.pattern) {
        (Some(seqs), _) => return Ok(Selector::Seqs(seqs.iter().copied().collect())),
        (None, Some(pattern)) => {
            let invalid = |_| Error::usage("The pattern is not a regular expression");
            Box::new(Pattern::new(pattern).map_err(invalid)?)
        }
        (None, None) => {
            let empty = || Error::usage("The secret to look for is empty");
            Box::new(Literal::new(request.value.as_deref().unwrap_or_default()).ok_or_else(empty)?)
        }
    };
    if request.reason.as_deref().is_some_and(|reason| !matcher.find(reason).is_empty()) {
        return Err(Error::usage(
            "The reason holds what is to be taken out, and would be written to the log",
        ));
    }
    Ok(Selector::Matching(matcher))
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let request = args.request()?;
    let planned = selector(&request)?;
    let (view, id) = cx.view_of(&args.session).await?;
    let plan = view.plan_redaction(&id, planned).await?;
    let taken_out = if args.yes {
        let (backend, id) = SessionBackend::for_session(cx, id.as_str()).await?;
        let selector = selector(&request)?;
        Some(backend.redact(&id, Redact { selector, request }).await?)
    } else {
        None
    };
    print(ui, &id, &plan, taken_out)?;
    Ok(Exit::Good)
}

/// What is, or was, to be done; and how many contents were taken out, if it was done.
fn print(
    ui: &mut Ui,
    id: &SessionId,
    plan: &RedactionPlan,
    taken_out: Option<usize>,
) -> Result<()> {
    if ui.json {
        return ui.json_line(&json!({
            "session_id": id,
            "done": taken_out.is_some(),
            "taken_out": taken_out.unwrap_or(0),
            "targets": plan.targets.iter().map(to_json).collect::<Vec<_>>(),
            "in_headers": plan.in_headers.iter().map(to_json).collect::<Vec<_>>(),
            "empty": plan.empty,
            "gone": plan.gone,
            "missing": plan.missing,
        }));
    }
    print_table(ui, plan)?;
    for (seqs, what) in [
        (&plan.missing, "Not in the log"),
        (&plan.empty, "Without content"),
        (&plan.gone, "Taken out before"),
    ] {
        if !seqs.is_empty() {
            ui.note(&format!("{what}: {}.", numbers(seqs)))?;
        }
    }
    if !plan.in_headers.is_empty() {
        let seqs: Vec<Seq> = plan.in_headers.iter().map(|target| target.seq).collect();
        ui.warn(&format!(
            "Also found in headers, which stay: {}. Only deleting the session removes that: \
             {} sessions delete {id}",
            numbers(&seqs),
            ui.call
        ))?;
    }
    let count = plan.targets.len();
    match taken_out {
        Some(taken_out) if taken_out > 0 => {
            ui.line(format_args!("{} taken out of session {id}.", contents(taken_out)))
        }
        _ if count == 0 => ui.line(format_args!("Nothing to take out of session {id}.")),
        Some(_) => ui.line(format_args!("Everything was taken out of session {id} before.")),
        None => ui.note(&format!(
            "Nothing was changed. The same command with --yes takes {} out, for good.",
            contents(count)
        )),
    }
}

fn contents(count: usize) -> String {
    if count == 1 { "1 content".to_owned() } else { format!("{count} contents") }
}

fn print_table(ui: &mut Ui, plan: &RedactionPlan) -> Result<()> {
    if plan.targets.is_empty() && plan.in_headers.is_empty() {
        return Ok(());
    }
    let mut table = Table::new([
        Column::Whole("SEQ"),
        Column::Whole("KIND"),
        Column::Whole("IN"),
        Column::Whole("FOUND"),
        Column::Cut("AROUND IT"),
    ]);
    let rows = plan.targets.iter().map(|target| (target, "content", Tone::Plain));
    let headers = plan.in_headers.iter().map(|target| (target, "header", Tone::Attention));
    for (target, place, tone) in rows.chain(headers) {
        let found = if target.matches == 0 { String::new() } else { target.matches.to_string() };
        table.row([
            (Tone::Plain, target.seq.to_string()),
            (Tone::Plain, one_line(&target.kind)),
            (tone, place.to_owned()),
            (Tone::Plain, found),
            (Tone::Quiet, one_line(&target.excerpt)),
        ]);
    }
    table.print(ui)
}

fn to_json(target: &Target) -> Value {
    let Target { seq, kind, matches, excerpt } = target;
    json!({"seq": seq, "kind": kind, "matches": matches, "excerpt": excerpt})
}

/// `3, 7-9`.
fn numbers(seqs: &[Seq]) -> String {
    let mut parts: Vec<(Seq, Seq)> = Vec::new();
    for &seq in seqs {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == seq => *last = seq,
            _ => parts.push((seq, seq)),
        }
    }
    let part = |(first, last): &(Seq, Seq)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    parts.iter().map(part).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seqs_are_numbers_and_ranges() {
        let parsed = parse_seqs("7, 3-5,4").unwrap().0;
        assert_eq!(parsed.into_iter().collect::<Vec<_>>(), [3, 4, 5, 7]);
        assert_eq!(parse_seqs("1-100000").unwrap().0.len(), 100_000);
        for wrong in ["", "0", "x", "3-", "-3", "5-3", "1,,2", "1-100001", "1-18446744073709551615"]
        {
            assert!(parse_seqs(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_that_follow_each_other_are_one_range() {
        assert_eq!(numbers(&[1, 2, 3, 7, 9, 10]), "1-3, 7, 9-10");
    }
}
