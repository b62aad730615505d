//! `piton sessions search`: sessions whose title or messages contain a text. Reads the store, beside a
//! server or without one.

use piton_api::SessionSummary;
use piton_core::Timestamp;
use piton_core::id::SessionId;
use piton_core::transcript::{Item, Text};
use piton_runtime::{Listed, View};
use serde::Serialize;

use super::list::summary;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::ids::ShownIds;
use crate::table::{Column, Table};
use crate::text::one_line;
use crate::times;
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton sessions search 'flaky test'
  piton sessions search migrate --limit 5
  piton sessions search token --json | jq -r .session_id

Upper and lower case are the same. Tool calls and their output are not searched.

JSON: one object per session and line: session_id, title, agent_profile_id, working_dir, active_at,
in_title, count (of messages), matches (the first three: seq, who, text).";

/// Sessions read at a time.
const PAGE: usize = 200;
/// Matches that are named for each session.
const MATCHES_MAX: usize = 3;
/// Characters shown on either side of what was found.
const AROUND_CHARS: usize = 40;

/// Find sessions by their titles and messages, last active first
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The text to find
    #[arg(value_name = "TEXT")]
    text: String,
    /// The maximum number of sessions
    #[arg(long, short = 'n', default_value_t = 20, value_name = "COUNT",
          value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Match {
    seq: u64,
    who: &'static str,
    text: String,
}

#[derive(Debug, Serialize)]
struct Found {
    session_id: SessionId,
    title: Option<String>,
    agent_profile_id: Option<String>,
    working_dir: Option<String>,
    active_at: Timestamp,
    in_title: bool,
    count: usize,
    matches: Vec<Match>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let query = args.text.trim().to_lowercase();
    if query.is_empty() {
        return Err(Error::usage("Name a text to find"));
    }
    let Some(view) = cx.view()? else { return Err(cx.missing_store()) };
    let limit = usize::from(args.limit);
    let (mut found, mut after) = (Vec::new(), None);
    let mut unreadable = 0_usize;
    let is_cut = 'search: loop {
        let (listed, next) = view.list(None, |_| true, after, PAGE).await?;
        for one in listed {
            // A damaged session does not hide what the others contain.
            let hit = match search(&view, &one, &query).await {
                Ok(hit) => hit,
                Err(error) => {
                    unreadable += 1;
                    let session = &one.row.session;
                    ui.warn(&format!("{session} cannot be searched: {}", error.message()))?;
                    None
                }
            };
            let Some(hit) = hit else { continue };
            if found.len() == limit {
                break 'search true;
            }
            if ui.json {
                ui.json_line(&hit)?;
                ui.flush()?;
            }
            found.push(hit);
        }
        match next {
            Some(next) => after = Some(next),
            None => break false,
        }
    };
    if found.is_empty() {
        let of = if unreadable > 0 { " that can be read" } else { "" };
        ui.note(&format!("No session{of} contains {:?}.", args.text))?;
        return Ok(Exit::Failed);
    }
    if !ui.json {
        print(ui, &found, view.now())?;
    }
    if is_cut {
        ui.note("There are more sessions with this text: --limit shows them.")?;
    }
    if unreadable > 0 {
        ui.note("`piton verify` says what is wrong with sessions that cannot be searched.")?;
        return Ok(Exit::Failed);
    }
    Ok(Exit::Good)
}

async fn search(view: &View, listed: &Listed, query: &str) -> Result<Option<Found>> {
    let SessionSummary { session_id, title, agent_profile_id, working_dir, active_at, .. } =
        summary(listed);
    let in_title = title.as_ref().is_some_and(|title| title.to_lowercase().contains(query));
    let (mut count, mut matches) = (0, Vec::new());
    for item in view.transcript(&session_id).await? {
        let (seq, who, text) = match item {
            Item::User { seq, text: Text::Whole(text), .. } => (seq, "user", text),
            Item::Agent { seq, text: Text::Whole(text), .. } => (seq, "agent", text),
            _ => continue,
        };
        if let Some(text) = excerpt(&text, query) {
            count += 1;
            if matches.len() < MATCHES_MAX {
                matches.push(Match { seq, who, text });
            }
        }
    }
    let is_found = in_title || count > 0;
    Ok(is_found.then_some(Found {
        session_id,
        title,
        agent_profile_id,
        working_dir,
        active_at,
        in_title,
        count,
        matches,
    }))
}

/// What stands around the first place where a text contains the query, which is in lower case.
fn excerpt(text: &str, query: &str) -> Option<String> {
    // Lower case may have other lengths: the place is counted in characters of the original.
    let chars: Vec<char> = text.chars().collect();
    let mut lower = String::new();
    let mut starts = Vec::with_capacity(chars.len());
    for c in &chars {
        starts.push(lower.len());
        lower.extend(c.to_lowercase());
    }
    let at = lower.find(query)?;
    let char_of = |byte: usize| starts.partition_point(|start| *start <= byte).saturating_sub(1);
    let first = char_of(at).saturating_sub(AROUND_CHARS);
    let last = (char_of(at + query.len().saturating_sub(1)) + 1 + AROUND_CHARS).min(chars.len());
    let mut shown: String = chars[first..last].iter().collect();
    if first > 0 {
        shown.insert(0, '…');
    }
    if last < chars.len() {
        shown.push('…');
    }
    Some(one_line(&shown))
}

fn print(ui: &mut Ui, found: &[Found], now: Timestamp) -> Result<()> {
    let mut table = Table::new([
        Column::Whole("SESSION"),
        Column::Whole("ACTIVE"),
        Column::Cut("TITLE"),
        Column::Cut("FOUND"),
    ]);
    let ids = ShownIds::new(found.iter().map(|one| one.session_id.as_str()));
    for one in found {
        let text = match one.matches.first() {
            Some(first) if one.count > 1 => format!("{} ({} messages)", first.text, one.count),
            Some(first) => first.text.clone(),
            None => "in the title".to_owned(),
        };
        table.row([
            (Tone::Plain, ids.shown(one.session_id.as_str())),
            (Tone::Quiet, times::relative(one.active_at, now)),
            (Tone::Title, one.title.clone().unwrap_or_default()),
            (Tone::Plain, text),
        ]);
    }
    table.print(ui)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_around_a_match_is_shown() {
        assert_eq!(excerpt("Fix the FLAKY test", "flaky").as_deref(), Some("Fix the FLAKY test"));
        assert_eq!(excerpt("nothing", "flaky"), None);
        let long = format!("{}İx日本 here{}", "a".repeat(100), "b".repeat(100));
        let found = excerpt(&long, "日本 h").unwrap();
        assert!(found.starts_with("…a") && found.ends_with("b…") && found.contains("İx日本 here"));
        assert_eq!(excerpt("a\x1b[2Jb", "b").as_deref(), Some("a^[[2Jb"));
    }
}
