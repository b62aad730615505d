//! `piton sessions list`: one page of the index, whatever the number of sessions.

use piton_api::SessionSummary;
use piton_core::Timestamp;
use piton_core::event::Outcome;
use piton_core::id::BootId;
use piton_core::status::{Name, Status};
use piton_runtime::Listed;
use piton_store::{Cursor, Row};
use serde::Serialize;

use crate::context::Context;
use crate::error::{Exit, Result};
use crate::ids::ShownIds;
use crate::lookup;
use crate::show;
use crate::table::{Column, Table};
use crate::times;
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton sessions list
  piton sessions list --status interrupted
  piton sessions list --agent weekly-report --status failed
  piton sessions list --limit 200 --json | jq -r 'select(.state == \"ERROR\").session_id'

JSON: one object per session and line, with the fields of the API's GET /sessions (session_id,
title, task_id, status, state, reason, sentence, last_outcome, working_dir, created_at, active_at,
last_seq, and more), and owner, cursor.";

/// List sessions, last active first
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only sessions with this status; failed, completed and cancelled also match the last run's outcome
    #[arg(long, value_name = "STATUS", value_parser = parse_status)]
    status: Option<StatusFilter>,
    /// Only sessions of this agent profile, or of the graph with this name
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Only sessions of this task: its id, or the beginning or end of it
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// The maximum number of sessions
    #[arg(long, short = 'n', default_value_t = 50, value_name = "COUNT",
          value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
    /// Continue an earlier list after the session with this cursor
    #[arg(long, value_name = "CURSOR")]
    after: Option<Cursor>,
}

/// Starting, running or waiting.
const ACTIVE: &str = "active";

/// A status, or the word that lists show for it.
#[derive(Clone, Debug)]
pub(crate) struct StatusFilter(String);

impl StatusFilter {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        parse_status(text)
    }

    fn is_named(&self, name: Name) -> bool {
        self.0 == name.as_str() || self.0 == show::status_word(name)
    }

    /// By its name, or by the words that say how a run stands or ended.
    pub(crate) fn fits(&self, status: &Status) -> bool {
        let name = status.name;
        self.is_named(name)
            || match self.0.as_str() {
                "active" => matches!(name, Name::Starting | Name::Running | Name::Waiting),
                "paused" => name.is_interrupted(),
                "failed" => name == Name::Error || status.last_outcome == Some(Outcome::Failed),
                "completed" => status.last_outcome == Some(Outcome::Completed),
                "cancelled" => status.last_outcome == Some(Outcome::Cancelled),
                _ => false,
            }
    }
}

fn parse_status(text: &str) -> Result<StatusFilter, String> {
    let wanted = StatusFilter(text.to_owned());
    if text == ACTIVE || Name::ALL.iter().any(|name| wanted.is_named(*name)) {
        return Ok(wanted);
    }
    let mut names: Vec<_> = Name::ALL.iter().map(|name| show::status_word(*name)).collect();
    names.dedup();
    names.push(ACTIVE);
    Err(format!("it is none of {}", names.join(", ")))
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let Some(view) = cx.view()? else {
        let data = cx.settings.data.value.display();
        ui.note(&format!("No sessions yet: there is no store at {data}."))?;
        return Ok(Exit::Good);
    };
    let limit = usize::from(args.limit);
    let wanted = |listed: &Listed| {
        let summary = &listed.row.summary;
        let by_status = args.status.as_ref().is_none_or(|wanted| wanted.fits(&listed.status));
        let by_agent = args.agent.as_ref().is_none_or(|agent| {
            summary.info.agent_profile_id.as_ref() == Some(agent)
                || summary.facts.graph.as_ref() == Some(agent)
        });
        by_status && by_agent
    };
    let task = match &args.task {
        Some(task) => Some(lookup::task(&view, task).await?),
        None => None,
    };
    let (listed, next) = view.list_where(task, wanted, args.after, limit).await?;
    if ui.json {
        for one in &listed {
            ui.json_line(&line(one))?;
        }
    } else if listed.is_empty() {
        ui.note("No sessions.")?;
    } else {
        let summaries: Vec<SessionSummary> = listed.iter().map(summary).collect();
        print_table(ui, &summaries, view.now())?;
    }
    if let Some(next) = next {
        ui.note(&format!("There may be more: continue with --after {next}"))?;
    }
    Ok(Exit::Good)
}

/// Sessions as a table: on a terminal with short ids and the last part of each folder.
pub(crate) fn print_table(ui: &mut Ui, sessions: &[SessionSummary], now: Timestamp) -> Result<()> {
    let mut table = Table::new([
        Column::Whole("SESSION"),
        Column::Whole("STATUS"),
        Column::Whole("AGENT"),
        Column::Cut("FOLDER/BRANCH"),
        Column::Whole("ACTIVE"),
        Column::Cut("TITLE"),
    ]);
    let ids = ShownIds::new(sessions.iter().map(|one| one.session_id.as_str()));
    for one in sessions {
        let status = one.status.known();
        let word = status
            .map_or_else(|| one.status.to_string(), |name| show::status_word(name).to_owned());
        table.row([
            (Tone::Plain, ids.shown(one.session_id.as_str())),
            (status.map_or(Tone::Plain, show::status_tone), word),
            (Tone::Plain, one.agent_profile_id.clone().unwrap_or_default()),
            (Tone::Quiet, place(one, Ui::shows_short_ids())),
            (Tone::Quiet, times::relative(one.active_at, now)),
            (Tone::Plain, one.title.clone().unwrap_or_default()),
        ]);
    }
    table.print(ui)
}

/// Where a session works.
fn place(session: &SessionSummary, is_short: bool) -> String {
    let folder = session.working_dir.as_deref().unwrap_or_default();
    let last = folder.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let folder = if is_short { last } else { folder };
    match &session.worktree_branch {
        // A worktree's folder is named after its branch.
        Some(branch) if is_short => format!("⎇ {branch}"),
        Some(branch) => format!("{folder} ⎇ {branch}"),
        None => folder.to_owned(),
    }
}

/// A session as the API's lists have it.
pub(super) fn summary(listed: &Listed) -> SessionSummary {
    let Row { session, last_seq, summary, .. } = &listed.row;
    let mut shown =
        SessionSummary::new(session, &summary.info, &summary.facts, *last_seq, &listed.status);
    // A graph has no agent of its own; its name says what runs.
    shown.agent_profile_id = shown.agent_profile_id.or_else(|| summary.facts.graph.clone());
    shown
}

/// A session as the API's lists have it, with its owner and its place in the list.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    summary: SessionSummary,
    owner: Option<&'a BootId>,
    cursor: String,
}

fn line(listed: &Listed) -> Line<'_> {
    let Row { session, last_seq, summary, lease, .. } = &listed.row;
    let status = &listed.status;
    Line {
        summary: SessionSummary::new(session, &summary.info, &summary.facts, *last_seq, status),
        owner: lease.owner.as_ref(),
        cursor: listed.cursor().to_string(),
    }
}
